"""Features with an offset: the head against the paper's formulas in 40 digits (mpmath)."""

import mpmath
import numpy as np
import pytest
from sklearn.datasets import load_digits

from kahm import KAHM, Bank, SpaceFoldingClassifier
from kahm.batches import split_by_clusters
from kahm.machine import MAX_DIRECTIONS

OFFSETS = (0.0, 1e3, 1e6, 1e7, 1e8)


def measure_in_forty_digits(records, point) -> float:
    """Algorithm 1 and eqs. (19), (102), (147), (149), (150), of numbers exactly as they are."""
    with mpmath.workdps(40):
        X = mpmath.matrix(records.tolist())
        n, d = X.rows, X.cols
        mean = [mpmath.fsum(X[i, j] for i in range(n)) / n for j in range(d)]
        Z = mpmath.matrix(n, d)
        for i in range(n):
            for j in range(d):
                Z[i, j] = X[i, j] - mean[j]
        squares, U = mpmath.eigsy(Z * Z.T)
        order = sorted(range(n), key=lambda i: -squares[i])[: min(MAX_DIRECTIONS, n - 1)]
        z = mpmath.matrix([mpmath.mpf(float(v)) - m for v, m in zip(point, mean, strict=True)])
        g = Z * z
        coordinates, own = [], []
        for c in order:
            column = U[:, c]
            scale = mpmath.sqrt(n - 1)
            coordinates.append([scale * column[i] for i in range(n)])
            own.append(scale * (column.T * g)[0] / squares[c])
        k = len(order)
        kernel = lambda a, b: mpmath.exp(  # noqa: E731  # two lines of a formula
            -mpmath.fsum((s - t) ** 2 for s, t in zip(a, b, strict=True)) / (2 * k)
        )
        rows = [[coordinates[c][i] for c in range(k)] for i in range(n)]
        K = mpmath.matrix([[kernel(a, b) for b in rows] for a in rows])
        values, vectors = mpmath.eigsy(K)
        energy = [mpmath.fsum(v**2 for v in (vectors[:, i].T * X)) / (n * d) for i in range(n)]
        tau = 2 * mpmath.fsum(v**2 for v in X) / (n * d)
        low, high = mpmath.mpf(0), tau / 2
        for _ in range(130):
            middle = (low + high) / 2
            shift = middle + tau
            total = mpmath.fsum((shift / (values[i] + shift)) ** 2 * energy[i] for i in range(n))
            low, high = (middle, high) if total > middle else (low, middle)
        h = mpmath.lu_solve(
            K + ((low + high) / 2 + tau) * mpmath.eye(n),
            mpmath.matrix([kernel(own, row) for row in rows]),
        )
        weights = h / mpmath.fsum(h)
        image = X.T * weights
        x = mpmath.matrix([mpmath.mpf(float(v)) for v in point])
        distance = mpmath.norm(x - image)
        cosine = (x.T * image)[0] / (mpmath.norm(x) * mpmath.norm(image))
        angle = mpmath.acos(min(mpmath.mpf(1), cosine)) / mpmath.pi
        return float(mpmath.sqrt(((1 - mpmath.exp(-distance)) ** 2 + angle**2) / 2))


@pytest.mark.parametrize("offset", OFFSETS)
def test_machine_and_bank_keep_nine_digits_of_features_with_an_offset(offset):
    X, y = load_digits(return_X_y=True)
    X = X / 16 + offset
    batches = [X[y == 3][:9], X[y == 8][:6]]
    points = np.concatenate([X[y == 3][20:22], X[y == 8][:1], [np.full(64, offset + 0.5)]])
    expected = [[measure_in_forty_digits(batch, point) for batch in batches] for point in points]
    machines = np.stack([KAHM.fit(batch).measure(points) for batch in batches], axis=1)
    bank = Bank.fit(batches, [0, 1], 2, dtype=np.float64)
    np.testing.assert_allclose(machines, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(bank.measures(points), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("scale", [1.0, 1 / 16])
def test_an_offset_changes_no_answer_of_the_machines(offset, scale):
    X, y = load_digits(return_X_y=True)
    X = X * scale + offset
    train, test = slice(0, None, 2), slice(1, 300, 2)
    head = SpaceFoldingClassifier().fit(X[train], y[train])
    machines = [KAHM.fit(batch).measure(X[test]) for batch in head.bank_.batches()]
    smallest = np.ones((len(X[test]), 10))
    for cell, measures in zip(head.bank_.cells, machines, strict=True):
        smallest[:, cell] = np.minimum(smallest[:, cell], measures)
    np.testing.assert_allclose(head.bank_.measures(X[test]), smallest, rtol=0, atol=1e-9)
    found = head.predict(X[test])
    # Two classes may be as near as the last digit of a measure tells.
    two = np.partition(smallest, 1, axis=1)
    apart = two[:, 1] - two[:, 0] > 1e-14
    np.testing.assert_array_equal(found[apart], smallest.argmin(axis=1)[apart])
    accuracy = np.mean(smallest.argmin(axis=1) == y[test])
    assert np.mean(found == y[test]) == pytest.approx(accuracy, abs=np.mean(~apart))
    assert accuracy > 0.85


def test_machines_with_offsets_of_their_own_agree_although_no_origin_is_near_all():
    rng = np.random.default_rng(0)
    batches = [rng.normal(0, 1, (20, 6)) + offset for offset in (1e8, -1e8, 3e5, 0.0)]
    points = np.concatenate([batch[:3] + 0.1 for batch in batches])
    bank = Bank.merge([Bank.fit([b], [c], 4, dtype=np.float64) for c, b in enumerate(batches)])
    machines = np.stack([KAHM.fit(batch).measure(points) for batch in batches], axis=1)
    np.testing.assert_allclose(bank.measures(points), machines, rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_a_single_precision_bank_keeps_five_digits_of_what_it_stores(offset):
    rng = np.random.default_rng(1)
    batches = [(rng.normal(0, 1, (n, 8)) + offset).astype(np.float32) for n in (1, 5, 30)]
    points = np.concatenate(batches) + np.float32(0.5)
    bank = Bank.fit(batches, range(3), 3)
    machines = np.stack([KAHM.fit(batch).measure(points) for batch in batches], axis=1)
    np.testing.assert_allclose(bank.measures(points), machines, rtol=0, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_clusters_do_not_depend_on_an_offset(offset):
    """k-means expands squared distances into products, too."""
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(0, 0.1, (10, 3)) + c for c in (0.0, 2.0, 4.0)])
    parts = split_by_clusters(X + offset, 10, np.random.default_rng(3))
    expected = split_by_clusters(X, 10, np.random.default_rng(3))
    assert [len(part) for part in parts] == [len(part) for part in expected]
    for part, other in zip(parts, expected, strict=True):
        np.testing.assert_allclose(part - offset, other, atol=1e-7)

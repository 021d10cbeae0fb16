"""Moments under noise that hides every record: sensitivity, books, floors, and what uses them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import differential_evolution

import dp
from secure_fl.data import Dataset, Scaling
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.privacy.promises import RecordPromise
from secure_fl.trainers.private_moments import (
    PublicClip,
    moment_sums,
    noise_of_moments,
    private_moments,
)
from secure_fl.training.released_scaling import SHARE, ReleasedScaling, clip_of, split

D = 3
BOX = PublicClip.box(np.array([-1.0, 0.0, 5.0]), np.array([1.0, 10.0, 5.0]))
BALL = PublicClip.norm(D, 2.0)
CLIPS = [pytest.param(BOX, id="box"), pytest.param(BALL, id="ball")]
DELTA = 1e-5


def added(clip, x):
    """What one record adds, by the definition of the sums and not by their code."""
    u = (np.asarray(x) - clip.centres) / clip.halves
    u = u / max(1.0, np.sqrt(u @ u)) if clip.ball else np.minimum(np.maximum(u, -1), 1)
    return np.concatenate([u, u**2 - (0 if clip.ball else 0.5), [1.0]])


records = arrays(np.float64, D, elements=st.floats(-50, 50))


@pytest.mark.parametrize("clip", CLIPS)
@given(x=records, y=records)
@settings(max_examples=150)
def test_the_sums_are_of_clipped_records_and_no_record_changes_them_by_more_than_stated(clip, x, y):
    sums = [moment_sums(clip.applied(each), ball=clip.ball) for each in (np.stack([x, y]), x[None])]
    np.testing.assert_allclose(sums[0], added(clip, x) + added(clip, y), atol=1e-12)
    np.testing.assert_allclose(sums[0] - sums[1], added(clip, y), atol=1e-12)
    assert np.linalg.norm(added(clip, x)) <= clip.sensitivity("add-remove") * (1 + 1e-12)
    change = np.linalg.norm(added(clip, x) - added(clip, y))
    assert change <= clip.sensitivity("replace") * (1 + 1e-12)
    moved = np.where(np.arange(D) == 1, y, x)
    change = np.linalg.norm(added(clip, x) - added(clip, moved))
    assert change <= clip.sensitivity("element") * (1 + 1e-12)


@pytest.mark.parametrize("clip", CLIPS)
def test_the_sensitivity_is_what_the_worst_records_reach(clip):
    """By a search that knows nothing of the proof: nothing is above it, and little is lost."""
    span = [(-60.0, 60.0)] * D
    options = {"seed": 0, "maxiter": 300, "tol": 1e-10}
    one = differential_evolution(lambda x: -np.linalg.norm(added(clip, x)), span, **options)
    two = differential_evolution(
        lambda z: -np.linalg.norm(added(clip, z[:D]) - added(clip, z[D:])), span * 2, **options
    )
    # A ball's bound for replacing is that of whole products, of which the squares are a part.
    for found, kind, reached in ((one, "add-remove", 0.999), (two, "replace", 0.97)):
        bound = clip.sensitivity(kind)
        assert reached * bound <= -found.fun <= bound * (1 + 1e-9)


@pytest.mark.parametrize("large", [1e150, 1e200, 1e308])
def test_a_record_that_overflows_adds_no_more_than_another(large):
    """Its quotient, or its square, is infinite."""
    X = np.array([[large, -large, 1.0], [1.0, 0.0, large]])
    for clip in (PublicClip.norm(D, 1e-10), PublicClip.box(np.full(D, -1e-9), np.full(D, 1e-9))):
        for row in X:
            sums = moment_sums(clip.applied(row[None]), ball=clip.ball)
            assert np.linalg.norm(sums) <= clip.sensitivity("add-remove") * (1 + 1e-12)


def clients(sizes=(150, 250, 200), seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for i, n in enumerate(sizes):
        X = np.stack([rng.normal(0.2, 0.3, n), rng.normal(4, 2, n), np.full(n, 5.0)], axis=1)
        y = np.arange(n) % 2
        X[:, 0] += 0.3 * y
        made.append(Dataset(X.astype(np.float64), y, ("0", "1"), f"c{i}"))
    return made


def released(clip, epsilon, members=None):
    members = [Client(each.name, each.X, each.y) for each in members or clients()]
    with Federation(members, aggregation=SecureAggregation()) as fed:
        noise = noise_of_moments(fed, clip, split(epsilon, DELTA)[0], "replace")
        return private_moments(fed, clip, noise, dp.Record(1.0))


def test_with_little_noise_they_are_the_pooled_moments_of_clipped_records():
    pooled = np.concatenate([each.X for each in clients()])
    for clip, near in ((BOX, 0.05), (PublicClip.norm(D, 20.0), 0.3)):
        means, deviations, floored = released(clip, 1e5)
        np.testing.assert_allclose(means, pooled.mean(axis=0), atol=0.1)
        np.testing.assert_allclose(deviations[:2], pooled.std(axis=0)[:2], rtol=near)
        # The third does not vary, and noise seldom makes it seem to.
        assert floored <= 1
    clipped = np.clip(pooled, [-0.1, 2, 4], [0.1, 5, 6])
    means, _, _ = released(PublicClip.box(np.array([-0.1, 2, 4]), np.array([0.1, 5, 6])), 1e5)
    np.testing.assert_allclose(means, clipped.mean(axis=0), atol=0.02)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 8.0])
@pytest.mark.parametrize("clip", CLIPS)
def test_no_noise_gives_a_scale_that_is_absurd(clip, epsilon):
    """Means stay in the public ranges, deviations above their noise and below half of the range."""
    for members in (clients(), clients((1, 1))):
        means, deviations, floored = released(clip, epsilon, members)
        low, high = clip.centres - clip.halves, clip.centres + clip.halves
        assert ((means >= low) & (means <= high)).all()
        assert ((deviations > 0) & (deviations <= clip.halves)).all()
        assert 0 <= floored <= D
        # The scaled records of those ranges are of moderate size, however little is known.
        assert np.isfinite((high - low) / deviations).all()
        if epsilon < 1e-2:
            assert (deviations > clip.halves / 2).all()


# ----------------------------------------------------------------------------------------- books


def scaling_of(tmp_path, adjacency="replace", epsilon=8.0, budget=None, clip=(-5.0, 15.0)):
    promise = RecordPromise(epsilon=epsilon, delta=DELTA, norm=3.0, adjacency=adjacency)
    unit = dp.Record(3.0) if adjacency == "replace" else dp.Membership("record")
    path = tmp_path / "books"
    if budget is not None:
        dp.Ledger.create(path, "trial", dp.Budget(budget, DELTA, unit))
    release = ReleasedScaling(clip, "moments", 1.0, unit_rows=False)
    made = release(clients(), promise, path, seed=0)
    return release, *made, path, unit


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 50.0])
def test_moments_and_what_follows_cost_the_promise_together(tmp_path, adjacency, epsilon):
    """By dp's own accountant of two Gaussians, from the noise that was added."""
    release, scaling, left, path, unit = scaling_of(tmp_path, adjacency, epsilon)
    assert scaling.kind == "released"
    assert left.whole == epsilon
    ledger = dp.Ledger.open(path)
    (event,) = ledger.events
    assert event.adjacency == unit
    assert ledger.holds(release.released.event)
    whole = dp.compose([], [dp.Gaussian(event.gaussian.noise_multiplier * SHARE**0.5)], DELTA)
    assert whole.epsilon == pytest.approx(epsilon, rel=1e-2)
    # The method spends all that is left, and the books have room for just that.
    rest = split(epsilon, DELTA)[1]
    assert left.epsilon == pytest.approx(dp.compose([], [dp.Gaussian(rest)], DELTA).epsilon)
    ledger.spend(dp.Event("all that is left", unit, gaussian=dp.Gaussian(rest)))
    total = ledger.get_epsilon(DELTA, unit)
    expected = dp.compose([], [event.gaussian, dp.Gaussian(rest)], DELTA)
    assert total.epsilon == pytest.approx(expected.epsilon)
    assert 0.98 * epsilon < total.epsilon <= epsilon * (1 + 1e-9)


def test_nothing_is_spent_where_moments_and_method_do_not_both_fit(tmp_path):
    """The moments alone would."""
    with pytest.raises(dp.BudgetError):
        scaling_of(tmp_path, epsilon=8.0, budget=4.0)
    assert dp.Ledger.open(tmp_path / "books").events == ()


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (0.0, "clip 0.0, expected a finite norm above 0"),
        (float("inf"), "expected a finite norm above 0"),
        ((1.0, 0.0), "ends below its start"),
        ((0.0, float("nan")), "not finite"),
        (Scaling(kind="moments", offsets=(0.0,), spreads=(1.0,)), "one of public ranges"),
        (Scaling(kind="range", offsets=(0.0,), spreads=(1.0,)), "3 features, the scaling has 1"),
    ],
)
def test_a_clip_that_is_none_is_refused(clip, message):
    with pytest.raises(InputError, match=message):
        clip_of(clip, D)

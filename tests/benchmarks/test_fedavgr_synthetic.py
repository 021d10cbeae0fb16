"""FedAvgR's synthetic set, what is measured of it, and how methods are compared on it."""

import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression

from benchmarks import _drawings
from benchmarks import _regularised as shared
from benchmarks._harness import Run
from benchmarks._kept import Numbers
from benchmarks._regularised_tables import show_gains, table_of_gains
from benchmarks._synthetic_clients import drawn
from benchmarks.fedavgr_synthetic import FIGURE_SET, _course, _look, _problem, apart


@pytest.fixture(scope="module")
def draws():
    return [drawn(0.0, 2.0, np.random.default_rng(seed)) for seed in (0, 1, 2)]


def test_features_have_the_variances_and_the_centres_that_the_generator_says(draws):
    """x_j of variance j^-1.2 around a client's centre, the centres' means from N(0, v^2)."""
    expected = np.arange(1, 61) ** -1.2
    largest = max((c for each in draws for c in each.clients), key=len)
    own = largest.features.var(axis=0, ddof=1)
    assert len(largest) > 1000
    assert np.abs(own / expected - 1).max() < 6 * np.sqrt(2 / len(largest))
    centres = np.array([c.features.mean(axis=0) for each in draws for c in each.clients])
    assert 0.7 < (centres - centres.mean(axis=1, keepdims=True)).std() < 1.3
    assert 1.3 < centres.mean(axis=1).std(ddof=1) < 2.8


def test_clients_differ_in_size_by_a_power_law_and_test_records_go_by_shares(draws):
    sizes = np.array([[len(c) for c in each.clients] for each in draws])
    assert sizes.shape == (3, 10)
    assert sizes.min() >= 100
    logs = np.log(np.maximum(sizes - 100, 1))
    assert 3.0 < logs.mean() < 5.0
    assert 1.2 < logs.std() < 2.8
    X, y = draws[0].test
    assert X.shape == (10_000, 60)
    assert len(y) == 10_000
    # Records of a client lie about its centre, far from the others' where v is large.
    centres = np.array([c.features.mean(axis=0) for c in draws[0].clients])
    nearest = np.square(X[:, None] - centres).sum(axis=2).argmin(axis=1)
    found = np.bincount(nearest, minlength=10) / len(X)
    assert np.abs(found - sizes[0] / sizes[0].sum()).max() < 0.03


def test_a_clients_classes_are_told_by_a_linear_classifier_of_its_own(draws):
    """The labels are an argmax of W_k x + b_k: separable at every client, not across them."""
    for client in draws[0].clients[:3]:
        fitted = LogisticRegression(C=1e6, max_iter=5000).fit(client.features, client.targets)
        assert fitted.score(client.features, client.targets) == 1.0


def test_distances_of_means_by_hand():
    """Two clients in the plane: means (1, 0) and (3, 0) of 2 records each, so (2, 0) of all."""
    features = [np.array([[0.0, 0], [2, 0]]), np.array([[3.0, 4], [3, -4]])]
    distances, within = apart(features, [np.array([0, 1]), np.array([1, 1])])
    assert distances == pytest.approx([1.0, 1.0])
    # Class 0: one client alone. Class 1: (2, 0) and twice (3, 0) in the mean, about (8/3, 0).
    assert within == pytest.approx((0 + 2 / 3 + 2 * 1 / 3) / 4)


def test_a_look_is_theorem_4_of_the_models_own_features():
    """Oracle: sqrt(2) cos(omega x + b) and the terms, from the flat parameters alone."""
    setting = _problem(FIGURE_SET, 1, 1)
    look = _look(setting, setting.start, draw=True)
    flat = setting.start.parameters.astype(float)
    omega, b = flat[:6000].reshape(100, 60), flat[6000:6100]
    W = flat[6100:7100].reshape(10, 100)
    phi = [np.sqrt(2) * np.cos(c.features @ omega.T + b) for c in setting.clients]
    n = np.array([len(each) for each in phi])
    middle = np.concatenate(phi).mean(axis=0)
    gaps = np.array([np.linalg.norm(each.mean(axis=0) - middle) for each in phi])
    B = np.linalg.svd(W, compute_uv=False).sum()
    norms = np.array([np.sqrt((each**2).sum()) for each in phi])
    G1 = (norms * B * np.sqrt(10) / n.sum()).sum() + np.sqrt(1 / n.sum())
    G2 = B * np.sqrt(10) / n.sum() * np.sqrt((norms**2).sum()) + np.sqrt(1 / n.sum())
    G3 = (n / n.sum() * (gaps + B * np.sqrt(10) / n * norms + np.sqrt(1 / n))).sum()
    assert look.terms == pytest.approx((G1, G2, G3), rel=1e-4)
    assert (look.distance, look.trace) == pytest.approx((gaps.mean(), B), rel=1e-4)
    assert look.points.shape == (11, 100, 100)
    for k, each in enumerate([*phi, np.concatenate(phi)]):
        gap = np.abs(look.points[k][:3, None] - each).max(axis=2).min(axis=1)
        assert gap.max() < 1e-4


def test_a_course_looks_at_the_start_and_at_the_shares_of_its_rounds(monkeypatch, small):
    from benchmarks import fedavgr_synthetic as module

    seen = []
    monkeypatch.setattr(module, "_problem", lambda *_: small)
    monkeypatch.setattr(module, "_look", lambda _, state, draw: seen.append(state) or state.round)
    assert _course("FedAvg", {"learning_rate": 0.1}, 0, 10, 1, False) == [0, 3, 6, 10]
    assert seen[0] is small.start


@pytest.mark.parametrize(
    ("best", "more"), [(0.003, []), (0.1, [0.3]), (0.3, [1.0, 0.3]), (50.0, [3.0, 1.0, 0.3])]
)
def test_larger_rates_are_tried_while_the_largest_is_the_best(best, more):
    """Where 0.1 is the best, 0.3 has been tried too."""

    def score(told):
        assert told["mmd"] == 1e-4
        return -abs(np.log(told["learning_rate"] / best))

    assert shared.rates_of(score, {"mmd": [1e-4]}) == [*more, *shared.RATES]


def test_equal_runs_are_made_once_and_others_are_not(monkeypatch, small):
    """FedAvg at FedAvgR's rate is FedAvgR without terms; the MMD by class is another run."""
    made = []
    fit = shared.fit
    monkeypatch.setattr(shared, "fit", lambda *args: made.append(args[1:]) or fit(*args))
    score = shared.scorer(small, 2, Numbers(None))
    rate = {"learning_rate": 0.3}
    score("FedAvg", rate)
    assert score("FedAvgR", rate) == score("FedAvg", rate) == score(shared.BY_CLASS, rate)
    assert len(made) == 1
    pulled = {**rate, "mmd": 1.0}
    score("FedAvgR", pulled)
    score(shared.BY_CLASS, pulled)
    score("OneShot", rate)
    score("FedProx", {**rate, "proximal": 0.1})
    assert len(made) == 5


def test_the_settings_reach_the_training(small):
    """Of equal numbers by two methods the runs differ; their states are of the rounds asked."""
    told = {"learning_rate": 0.3, "mmd": 0.5}
    found = {
        method: [s.parameters for s in shared.states(small, method, 2, told)(small.federation())]
        for method in ("FedAvgR", shared.BY_CLASS, shared.MIXTURE)
    }
    assert all(len(each) == 2 for each in found.values())
    assert not np.allclose(found["FedAvgR"][-1], found[shared.BY_CLASS][-1], atol=1e-3)


def test_gains_are_paired_by_seed_and_by_class_ones_stand_where_they_were_run():
    """Oracle: scipy's paired t-test."""
    rng = np.random.default_rng(0)
    names = ("FedAvg", "FedAvgR", shared.NONE, *shared.SINGLE.values())
    every = (*names, *shared.OF_CLASSES)
    found = {seed: {method: rng.normal(80, 1) for method in every} for seed in range(6)}
    run = Run(name="x", quick=False, as_json=True)
    table = table_of_gains(run)
    first = show_gains(table, "x", found)
    rows = {row[1]: row for row in table.rows}
    against = {
        "FedAvgR": ("FedAvgR", "FedAvg"),
        shared.ALL: ("FedAvgR", shared.NONE),
        "MMD": ("MMD", shared.NONE),
        shared.BY_CLASS: (shared.BY_CLASS, "FedAvg"),
        shared.ALL_BY_CLASS: (shared.BY_CLASS, shared.NONE_BY_CLASS),
        shared.MMD_BY_CLASS: (shared.MMD_BY_CLASS, shared.NONE_BY_CLASS),
        shared.MMD_MOST: (shared.MMD_MOST, shared.NONE_BY_CLASS),
        shared.CLASS_MOST: (shared.CLASS_MOST, shared.NONE_BY_CLASS),
        shared.CLASS_AGAINST_PLAIN: (shared.BY_CLASS, "FedAvgR"),
    }
    for title, (a, b) in against.items():
        ours, theirs = ([found[seed][m] for seed in found] for m in (a, b))
        oracle = scipy.stats.ttest_rel(ours, theirs)
        expected = (np.mean(np.subtract(ours, theirs)), oracle.statistic, oracle.pvalue)
        assert rows[title][3:] == pytest.approx(expected)
    assert first == pytest.approx(rows["FedAvgR"][3])
    plain = table_of_gains(run)
    show_gains(plain, "x", {s: {m: each[m] for m in names} for s, each in found.items()})
    assert {row[1] for row in plain.rows} == {"FedAvgR", shared.ALL, *shared.SINGLE.values()}


def test_the_picture_names_every_client_and_says_the_distance(monkeypatch, tmp_path):
    """By numbers and marks, so that it can be read without colours."""
    pytest.importorskip("matplotlib")
    from benchmarks import fedavgr_synthetic as module

    rng = np.random.default_rng(0)
    points = rng.normal(size=(11, 20, 5)) + 5 * rng.normal(size=(11, 1, 5))
    looks = [
        module.Look(at, distance, 1.0, 80.0, 1.0, (1.0, 1.0, 1.0), 9.0, points)
        for at, distance in ((0, 7.125), (100, 3.5))
    ]
    monkeypatch.setattr(_drawings, "DOCS", tmp_path)
    for quick, told in ((True, "not drawn of a short run"), (False, "plot: fedavgr_figure2.svg")):
        assert not list(tmp_path.iterdir())
        run = Run("fedavgr_synthetic", quick=quick, as_json=True)
        module._save_drawing(run, looks)
        assert told in run.notes[0]
    drawing = (tmp_path / "fedavgr_figure2.svg").read_text(encoding="utf-8")
    for words in ("round 0", "round 100", "distance 7.12", "distance 3.50", "all"):
        assert f">{words}<" in drawing
    # Once in each panel and once in the legend.
    assert [drawing.count(f">{k}<") for k in range(10)] == [3] * 10
    assert len(set(module.MARKS)) == 10

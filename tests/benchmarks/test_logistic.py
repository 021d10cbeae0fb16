"""The synthetic data of FedNL's B.14."""

import numpy as np

from benchmarks._logistic import iid, synthetic


def test_synthetic_labels_follow_the_stated_model() -> None:
    """A label is -1 with probability sigma(w a + c): logistic regression finds w and c again."""
    clients, d = iid(0.0, np.random.default_rng(3))
    assert (len(clients), d) == (30, 100)
    rng = np.random.default_rng(3)
    w, c = rng.normal(0, 1.0, d), rng.normal(0, 1.0)
    A = np.vstack([each.features.toarray() for each in clients])
    b = np.concatenate([each.targets for each in clients])
    probability = 1 / (1 + np.exp(-(A @ w + c)))
    surprise = (b == -1) - probability
    # Centred, and of the variance p (1 - p), within five standard errors.
    spread = probability * (1 - probability)
    assert abs(surprise.mean()) < 5 * np.sqrt(spread.sum()) / len(b)
    assert abs((surprise**2 - spread).mean()) < 5 * (spread.std() + 0.25) / len(b) ** 0.5


def test_features_have_the_stated_variances_and_means_differ_more_with_beta() -> None:
    clients, d = synthetic(0.0, 0.0, np.random.default_rng(0))
    within = np.mean([each.features.toarray().var(axis=0) for each in clients], axis=0)
    assert np.allclose(within / np.arange(1, d + 1) ** -1.2, 1, atol=0.15)
    far, _ = synthetic(0.0, 9.0, np.random.default_rng(0))
    spread = [np.var([each.features.mean() for each in data]) for data in (clients, far)]
    assert spread[1] > 10 * spread[0]


def test_alpha_moves_model_and_offset_of_a_client_together() -> None:
    """w_i and c_i share the mean u_i: with a large alpha a client's labels follow its u_i."""
    clients, _ = synthetic(100.0, 0.0, np.random.default_rng(0))
    shares = [np.mean(each.targets == 1) for each in clients]
    assert np.std(shares) > 0.3

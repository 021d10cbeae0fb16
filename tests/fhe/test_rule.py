"""The circuits against the plain rule: exhaustive in simulation, random on ciphertexts."""

import itertools

import attrs
import numpy as np
import pytest

import fhe
from fhe.circuits import compile_rule, knockout_sides
from fhe.code import to_digits
from fhe.simulation import padded
from kahm import classify, feature_map


def run(codes, keys):
    public = fhe.make_public_key(keys)
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(codes.shape[1])
    ]
    return fhe.read_answer(fhe.evaluate(sent, keys.evaluation, public), keys)


def corners(parameters, rng, count):
    """Random codes, ties across classes and contributors, both ends."""
    shape = (parameters.contributors, parameters.classes)
    top = 2**parameters.bits - 1
    return np.stack(
        [
            np.zeros(shape, np.int64),
            np.full(shape, top),
            *rng.integers(0, 2, (4, *shape)),
            *rng.integers(top - 1, top + 1, (4, *shape)),
            *rng.integers(0, top + 1, (count, *shape)),
        ]
    )


def test_encrypted_answers_at_the_default_failure_are_those_of_the_plain_rule(parameters):
    parameters = attrs.evolve(parameters, failure_exponent=128, block=10)
    codes = corners(parameters, np.random.default_rng(3), 10)
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


def test_encrypted_answers_are_those_of_the_plain_rule(parameters, keys):
    codes = corners(parameters, np.random.default_rng(0), 30)
    found = run(codes, keys)
    np.testing.assert_array_equal(found, fhe.plain(codes, parameters))
    np.testing.assert_array_equal(found, classify(codes))


@pytest.mark.slow
@pytest.mark.parametrize(("contributors", "classes"), [(256, 20), (4, 1000)])
def test_the_largest_federations_give_the_plain_rule(contributors, classes):
    parameters = fhe.RuleParameters(
        contributors=contributors, classes=classes, bits=8, block=1, failure_exponent=40
    )
    codes = np.random.default_rng(4).integers(0, 256, (6, contributors, classes))
    np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


def test_simulated_answers_are_those_of_the_plain_rule(parameters):
    codes = corners(parameters, np.random.default_rng(1), 300)
    np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


@pytest.mark.parametrize("failure", [40, 64, 128])
def test_every_pair_of_four_bit_codes_is_compared_right(failure):
    """All 256 pairs at p = 4 with the class as the tie-break, through the compiled circuit."""
    parameters = fhe.RuleParameters(
        contributors=2, classes=2, bits=4, block=64, failure_exponent=failure
    )
    pairs = np.array(list(itertools.product(range(16), repeat=2)))
    for first, second in itertools.product(range(2), repeat=2):
        codes = np.full((len(pairs), 2, 2), 15)
        codes[:, 0, first] = pairs[:, 0]
        codes[:, 1, second] = pairs[:, 1]
        np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


@pytest.mark.parametrize("rule", ["tournament", "paper"])
@pytest.mark.parametrize("contributors", [1, 2, 3, 4, 7, 11])
@pytest.mark.parametrize(("classes", "failure"), [(2, 40), (5, 40), (5, 128)])
def test_every_number_of_contributors_gives_the_plain_rule(rule, contributors, classes, failure):
    parameters = fhe.RuleParameters(
        rule=rule, contributors=contributors, classes=classes, bits=5, failure_exponent=failure
    )
    rng = np.random.default_rng(contributors)
    codes = rng.integers(0, 32, (16, contributors, classes))
    np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


@pytest.mark.parametrize("failure", [40, 128])
@pytest.mark.parametrize("rule", ["tournament", "paper"])
def test_every_case_of_three_clients_and_classes_at_three_levels(rule, failure):
    """All 3^9 = 19,683 code tables with values 0..2: every tie across clients and classes."""
    parameters = fhe.RuleParameters(
        rule=rule, contributors=3, classes=3, bits=4, block=256, failure_exponent=failure
    )
    codes = np.array(list(itertools.product(range(3), repeat=9))).reshape(-1, 3, 3)
    np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


def test_the_papers_rule_marks_every_tied_class():
    """Eq. (106) on ciphertexts: the one-hot output has a 1 for each class at the minimum."""
    parameters = fhe.RuleParameters(
        rule="paper", contributors=2, classes=3, bits=4, block=2, failure_exponent=40
    )
    codes = np.array([[[5, 9, 5], [7, 5, 9]], [[15, 15, 15], [15, 15, 3]]])
    circuit = compile_rule(parameters)
    output = circuit.simulate(*(parameters.encode(codes[:, i]) for i in range(2)))
    np.testing.assert_array_equal(output.T, feature_map(codes))


@pytest.mark.parametrize("failure", [40, 128])
def test_the_papers_rule_answers_on_ciphertexts(failure):
    parameters = fhe.RuleParameters(
        rule="paper", contributors=3, classes=4, bits=4, block=4, failure_exponent=failure
    )
    codes = corners(parameters, np.random.default_rng(5), 2)
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


@pytest.mark.parametrize("players", range(2, 40))
def test_every_player_meets_the_others_in_the_inputs_that_set_the_widths(players):
    """In each round some match has its sides apart; after the last round one player is left."""
    sides = knockout_sides(players)
    assert 2 ** len(sides) >= players
    assert all(0 < second.sum() < players for second in sides)
    assert len({tuple(column) for column in np.array(sides).T}) >= len(sides)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("failure", [40, 128])
def test_three_hundred_encrypted_decisions_are_right(bits, failure):
    parameters = fhe.RuleParameters(
        contributors=3, classes=20, bits=bits, block=50, failure_exponent=failure
    )
    codes = corners(parameters, np.random.default_rng(bits), 290)
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


@pytest.mark.slow
def test_one_contributor_alone_gets_its_own_answer():
    """The library mishandles outputs that no table has touched; Q = 1 is the rule's corner."""
    parameters = fhe.RuleParameters(contributors=1, classes=6, bits=4, failure_exponent=40)
    codes = np.random.default_rng(2).integers(0, 16, (8, 1, 6))
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


@pytest.mark.parametrize(("failure", "width"), [(40, 4), (64, 4), (128, 3)])
def test_no_table_is_wider_than_the_design_says(parameters, failure, width):
    circuit = compile_rule(attrs.evolve(parameters, failure_exponent=failure))
    assert circuit.graph.maximum_integer_bit_width() == width


@pytest.mark.parametrize("rule", ["tournament", "paper"])
@pytest.mark.parametrize("failure", [40, 64, 128])
def test_the_failure_probability_is_split_over_a_decisions_lookups(parameters, rule, failure):
    parameters = attrs.evolve(parameters, rule=rule, failure_exponent=failure)
    circuit = compile_rule(parameters)
    assert circuit.programmable_bootstrap_count <= parameters.lookups * parameters.block
    assert parameters.lookups * circuit.p_error <= 2.0**-parameters.failure_exponent * (1 + 1e-9)


def test_both_sides_compile_the_same_circuit(parameters):
    """Nobody takes a compiled circuit from a peer, so compiling must be deterministic."""
    again = compile_rule.__wrapped__(parameters)
    assert again.client.specs.serialize() == compile_rule(parameters).client.specs.serialize()


def test_padding_does_not_reach_the_answer():
    np.testing.assert_array_equal(
        padded(to_digits(np.array([7]), 2, 4), 3), [[1, 3], [0, 0], [0, 0]]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"contributors": 0},
        {"contributors": 257},
        {"classes": 1},
        {"bits": 3},
        {"bits": 17},
        {"block": 0},
        {"failure_exponent": 20},
        {"rule": "vote"},
    ],
)
def test_configurations_that_are_not_offered_are_refused(changes):
    with pytest.raises(fhe.InputError, match="is not offered"):
        fhe.RuleParameters(**{"contributors": 3, "classes": 5, "bits": 6, **changes})


def test_codes_for_other_contributors_are_refused(parameters):
    with pytest.raises(fhe.InputError, match="expected"):
        fhe.plain(np.zeros((1, 2, 5), np.int64), parameters)

"""The circuits against the plain rule: exhaustive in simulation, random on ciphertexts."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fhe
from fhe.circuits import Circuit, compile_functions, compile_rule, noisy
from fhe.digits import look_up, minimum
from fhe.errors import LibraryError
from fhe.knockout import calls_of, function_name, levels, rule_outputs
from fhe.lwe_layout import check_results, input_type, read_specs
from fhe.operands import call_in_blocks, integers_of
from fhe.parameters import sizes_of
from fhe.simulation import simulate_outputs
from kahm import classify, feature_map


def _compiled_anew(value):
    """A circuit that no other test compiles, and no everyday question hangs on."""
    return pytest.param(value, marks=pytest.mark.slow)


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


@pytest.mark.slow  # the same at 2^-40 below
def test_encrypted_answers_at_the_default_failure_are_those_of_the_plain_rule(parameters):
    parameters = attrs.evolve(parameters, failure_exponent=128, block=10)
    codes = corners(parameters, np.random.default_rng(3), 10)
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


def test_encrypted_answers_are_those_of_the_plain_rule(parameters, keys):
    codes = corners(parameters, np.random.default_rng(0), 6)
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


@pytest.mark.parametrize("failure", [*map(_compiled_anew, (40, 64)), 128])
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
@pytest.mark.parametrize("contributors", [1, 2, *map(_compiled_anew, (3, 4, 7, 11))])
@pytest.mark.parametrize(
    ("classes", "failure"), [pytest.param(2, 128, marks=pytest.mark.slow), (5, 40)]
)
def test_every_number_of_contributors_gives_the_plain_rule(rule, contributors, classes, failure):
    parameters = fhe.RuleParameters(
        rule=rule,
        contributors=contributors,
        classes=classes,
        bits=5,
        block=3,
        failure_exponent=failure,
    )
    rng = np.random.default_rng(contributors)
    codes = rng.integers(0, 32, (16, contributors, classes))
    np.testing.assert_array_equal(fhe.simulate(codes, parameters), classify(codes))


@pytest.mark.slow  # 19,683 tables; every day the batched engine decides all of its own
@pytest.mark.parametrize(("rule", "failure"), [("tournament", 128), ("paper", 40)])
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
    marks = simulate_outputs(codes, parameters).reshape(3, 2).T
    np.testing.assert_array_equal(marks, feature_map(codes))


@pytest.mark.parametrize("failure", [40, _compiled_anew(128)])
def test_the_papers_rule_answers_on_ciphertexts(failure):
    parameters = fhe.RuleParameters(
        rule="paper", contributors=2, classes=3, bits=4, block=4, failure_exponent=failure
    )
    # Every other one of its corners: a decision takes Q x C minima here.
    codes = corners(parameters, np.random.default_rng(5), 2)[::2]
    np.testing.assert_array_equal(run(codes, fhe.generate_keys(parameters)), classify(codes))


def in_numpy(parameters, codes):
    """The rule on one-digit integers, and every call that it makes: kind, level and pairs."""
    calls = []

    def run(kind, level, rows, operands):
        pairs = [np.concatenate(each) for each in zip(*operands, strict=True)]
        assert all(len(each) == rows for each in pairs)
        calls.append((kind, level, rows))
        if kind == "only":
            return pairs[0]
        if kind == "equal":
            return (pairs[0] == pairs[1]).astype(int)
        return np.minimum(*pairs)

    found = rule_outputs(parameters, codes.__getitem__, 2, run)
    called = sum(len(parameters.blocks(rows)) for _, _, rows in calls)
    assert called == calls_of(parameters, 2)
    return found, calls


@pytest.mark.parametrize("players", [1, 2, 3, 5, 8, 13, 100, 255, 256])
def test_everybody_plays_and_q_minus_one_minima_are_taken(players):
    parameters = fhe.RuleParameters(contributors=players, classes=5, bits=6)
    codes = np.random.default_rng(players).integers(0, 1000, (players, 2))
    found, calls = in_numpy(parameters, codes)
    assert found.tolist() == codes.min(axis=0).tolist()
    if players > 1:
        kinds = ["minimum"] * (levels(parameters) - 1) + ["last"]
        assert [(kind, level) for kind, level, _ in calls] == list(zip(kinds, itertools.count()))
        assert sum(rows for _, _, rows in calls) == 2 * (players - 1)


@pytest.mark.parametrize(("players", "classes"), [(1, 2), (2, 5), (7, 3), (10, 20)])
def test_the_papers_rule_takes_qc_minus_one_minima_and_c_equalities(players, classes):
    parameters = fhe.RuleParameters(
        contributors=players, classes=classes, bits=6, rule="paper", failure_exponent=40
    )
    codes = np.random.default_rng(0).integers(0, 9, (players, classes, 2))
    found, calls = in_numpy(parameters, codes.reshape(players, -1))
    marks = found.reshape(classes, 2).T
    np.testing.assert_array_equal(marks, feature_map(np.moveaxis(codes, 2, 0)))
    assert sum(rows for kind, _, rows in calls if kind != "equal") == 2 * (players * classes - 1)
    assert calls[-1] == ("equal", levels(parameters), 2 * classes)


def test_a_level_is_finished_before_the_next_begins(keys, public):
    codes = np.random.default_rng(7).integers(0, 64, (9, 3, 5))  # 9 = 4 + 4 + 1 matches a level
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(3)
    ]
    seen = []
    fhe.evaluate(sent, keys.evaluation, public, progress=lambda *facts: seen.append(facts))
    expected = [(f"level {i} of 2", done, 3) for i in (1, 2) for done in (1, 2, 3)]
    assert seen[1:] == expected


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


@pytest.mark.parametrize(
    ("failure", "width"), [(40, 4), pytest.param(64, 4, marks=pytest.mark.slow), (128, 3)]
)
@pytest.mark.parametrize("rule", ["tournament", "paper"])
def test_no_table_is_wider_than_the_design_says(parameters, rule, failure, width):
    module = compile_rule(attrs.evolve(parameters, rule=rule, failure_exponent=failure))
    for function in module.functions().values():
        assert function.graph.maximum_integer_bit_width() == width


@pytest.mark.parametrize("rule", ["tournament", "paper"])
@pytest.mark.parametrize("failure", [40, _compiled_anew(64), 128])
def test_the_failure_probability_is_split_over_a_decisions_lookups(parameters, rule, failure):
    parameters = attrs.evolve(parameters, rule=rule, failure_exponent=failure)
    module = compile_rule(parameters)
    lookups = {
        name: function.programmable_bootstrap_count for name, function in module.functions().items()
    }
    _, calls = in_numpy(parameters, np.zeros((3, 2 * parameters.numbers), int))
    for size in parameters.sizes:
        for kind, _, _ in calls:
            one = lookups[function_name(kind, 1)]
            assert lookups[function_name(kind, size)] == size * one
    made = sum(lookups[function_name(kind, 1)] * rows for kind, _, rows in calls) / 2
    assert made <= parameters.lookups
    assert parameters.lookups * module.p_error <= 2.0**-parameters.failure_exponent * (1 + 1e-9)


@pytest.mark.parametrize("rule", ["tournament", "paper"])
@pytest.mark.parametrize("failure", [*map(_compiled_anew, (40, 64)), 128])
@pytest.mark.parametrize("contributors", [_compiled_anew(1), 2, _compiled_anew(100)])
def test_all_functions_share_one_set_of_keys(rule, failure, contributors):
    """A result can be an operand, and no second bootstrap key doubles what is sent."""
    parameters = fhe.RuleParameters(
        contributors=contributors, classes=20, bits=8, rule=rule, failure_exponent=failure
    )
    specs = compile_rule(parameters).client.specs
    assert len(read_specs(specs)["keyset"]["lweBootstrapKeys"]) == 1
    assert input_type(specs).width == parameters.width


def test_a_result_that_is_not_of_the_operands_type_is_refused():
    """A wider result stands at another bit, and would be read as another one."""
    bit = Circuit(lambda a, b: look_up([0, 1], look_up([0, 0, 1, 1], a + b)))
    module = compile_functions({"minimum_1": bit}, (), [1, 1], 2.0**-40)
    with pytest.raises(LibraryError, match="results of minimum_1 are not of the type of operands"):
        check_results(module.client.specs, ["minimum_1"])


def test_parameters_are_chosen_for_the_noise_of_the_last_level():
    """The library accepts more noise after more minima, at one failure a look-up."""

    def dimensions(minima):
        functions = {"minimum_1": Circuit(lambda a, b: minimum(a, b, (5,) * 7, 7, 4), ordered=True)}
        wires = [("noise", "minimum_1")] if minima else []
        if minima:
            functions["noise"] = noisy(minima, 4)
        module = compile_functions(functions, wires, [4] * 7, 2.0**-50)
        (key,) = read_specs(module.client.specs)["keyset"]["lweBootstrapKeys"]
        return key["params"]["inputLweDimension"]

    assert dimensions(0) < dimensions(8) < dimensions(32)


def test_both_sides_compile_the_same_circuit(parameters):
    """Nobody takes a compiled circuit from a peer, so compiling must be deterministic."""
    again = compile_rule.__wrapped__(parameters)
    assert again.client.specs.serialize() == compile_rule(parameters).client.specs.serialize()


def test_integers_are_taken_class_by_class_and_in_it_query_by_query():
    parameters = fhe.RuleParameters(
        contributors=2, classes=2, bits=4, rule="paper", failure_exponent=40
    )
    found = integers_of(np.arange(1, 13).reshape(3, 4), parameters)
    assert found.tolist() == [[1, 2], [5, 6], [9, 10], [3, 4], [7, 8], [11, 12]]


@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=9),
    block=st.integers(1, 20),
    digits=st.integers(1, 3),
)
def test_blocks_hold_whoevers_rows_come_next_and_nothing_else(counts, block, digits):
    total, called = sum(counts), []
    rows = np.arange(1, total * digits + 1).reshape(total, digits)
    parts = np.split(rows, np.cumsum(counts)[:-1])

    def call(operands):
        size = len(operands[0])
        assert [each.shape for each in operands] == [(size, digits)] * 2
        called.append(size)
        return operands[0] + operands[1]

    found = call_in_blocks(call, block, zip(parts, parts, strict=True))
    np.testing.assert_array_equal(found, 2 * rows)
    parameters = fhe.RuleParameters(contributors=2, classes=2, bits=4, block=block)
    assert called == parameters.blocks(total)
    assert set(called) <= set(sizes_of(block))
    assert sum(size < block for size in called) <= len(sizes_of(block))


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

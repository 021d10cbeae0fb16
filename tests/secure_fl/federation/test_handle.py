"""The one verb: a sum over clients, exact, metered, and nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse

from secure_fl.federation import (
    Client,
    Federation,
    FederationError,
    FixedNumber,
    FixedProbability,
    QuorumError,
    RandomDropOuts,
    ScriptedDropOuts,
    SparseArray,
    Stage,
    StepError,
    client_step,
    wire,
)
from secure_fl.federation.steps import step_name
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.shared import one_line


def test_a_sum_is_the_sum_in_the_clients_order(clients: list[Client]):
    fed = Federation(clients)
    weights = np.arange(4.0)
    expected = np.zeros(4)
    for client in clients:
        expected += steps.gradient(client, steps.Ridge(0.5), weights)
    assert np.array_equal(fed.sum(steps.gradient, steps.Ridge(0.5), weights), expected)


def test_a_sum_keeps_the_structure_and_the_types(clients: list[Client]):
    found = Federation(clients).sum(steps.statistics)
    pooled = np.concatenate([client.features for client in clients])
    np.testing.assert_allclose(found["moment"], pooled.T @ pooled, rtol=1e-12)
    assert found["count"].dtype == np.int64
    assert found["count"].tolist() == [len(pooled)]
    sums, total = found["pair"]
    assert sums.dtype == np.float32
    np.testing.assert_allclose(sums, pooled.sum(axis=0), rtol=1e-5)
    assert total[0].shape == ()
    assert list(found) == ["moment", "count", "pair"]


def test_a_mean_weighs_clients_by_their_records(clients: list[Client]):
    fed = Federation(clients)
    means = [client.features.mean(axis=0) for client in clients]
    sizes = [len(client) for client in clients]
    found = fed.mean(steps.statistics)["pair"][0]
    sums = [client.features.sum(axis=0) for client in clients]
    np.testing.assert_allclose(found, np.average(sums, axis=0, weights=sizes), rtol=1e-5)
    assert fed.mean(steps.statistics)["count"].dtype == np.float64
    assert fed.weight() == sum(sizes)
    assert len(means) == len(fed)


def test_a_mean_of_whole_numbers_does_not_depend_on_the_first_weight():
    clients = [Client("one", np.zeros((1, 1)), np.zeros(1)), *make_clients(1)]
    found = Federation(clients).mean(steps.constant, np.array([3]))
    assert found.tolist() == [3.0]


def test_float32_is_added_in_float64(clients: list[Client]):
    small = np.array([2.0**-24], np.float32)
    fed = Federation(make_clients(20))
    one = np.array([1.0], np.float32)

    @client_step_of_test
    def step(client: Client) -> np.ndarray:
        return one if client.name == "a" else small

    total = fed.sum(step)
    assert total.dtype == np.float32
    assert total[0] == np.float32(1.0 + 19 * 2.0**-24)


def client_step_of_test(function):  # a step that only this process needs to find
    function.__qualname__ = function.__name__
    return client_step(function)


def test_sparse_arrays_add_up_to_a_dense_one(clients: list[Client]):
    found = Federation(clients).sum(steps.sparse, 8)
    dense = sum(steps.sparse(client, 8).dense() for client in clients)
    np.testing.assert_allclose(found, dense, rtol=1e-15)


def test_a_subset_of_the_participants(clients: list[Client]):
    fed = Federation(clients)
    assert fed.sum(steps.counted, over=["c", "a"]).tolist() == [2.0]
    assert fed.survivors == ("a", "c")
    with pytest.raises(FederationError, match=r'client "z" does not take part'):
        fed.sum(steps.counted, over=["z"])


def test_a_gathering_is_in_the_fixed_order(clients: list[Client]):
    fed = Federation(clients)
    assert [int(v["count"][0]) for v in fed.gather(steps.statistics)] == [5, 6, 7]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_never_reaches_the_sum(clients: list[Client], value: float):
    fed = Federation(clients)
    assert fed.sum(steps.poisoned, ("b",), value).tolist() == [2.0, 4.0]
    assert fed.refused == ("b",)
    assert fed.survivors == ("a", "c")
    assert fed.meter.of_round("b") == fed.meter.of_round("a")


def test_a_finite_update_is_kept_though_its_sum_overflows(clients: list[Client]):
    fed = Federation(clients[:1])
    huge = np.full(3, np.finfo(np.float64).max)
    assert np.array_equal(fed.sum(steps.constant, huge), huge)


def test_too_few_finite_updates_end_the_round(clients: list[Client]):
    fed = Federation(clients, threshold=2)
    with pytest.raises(QuorumError) as caught:
        fed.sum(steps.poisoned, ("a", "b"), np.nan)
    assert "1 clients left of 3" in one_line(caught.value)


@pytest.mark.parametrize(
    ("stage", "kept", "ran"),
    [
        (Stage.ADVERTISE, 2, False),
        (Stage.SHARE, 2, False),
        (Stage.MASK, 2, True),
        (Stage.UNMASK, 3, True),
    ],
)
def test_drop_outs_by_stage(clients: list[Client], stage: Stage, kept: int, ran: bool):
    fed = Federation(clients, drop_outs=ScriptedDropOuts({"b": stage}))
    assert fed.sum(steps.counted).tolist() == [kept]
    assert ("count" in clients[1].state) == ran


def test_random_drop_outs_repeat_with_the_seed():
    def survivors(seed: int) -> list[tuple[str, ...]]:
        fed = Federation(make_clients(20), seed=seed, drop_outs=RandomDropOuts(0.3))
        found = []
        for _ in range(4):
            fed.sum(steps.drawn)
            found.append(fed.survivors)
        return found

    assert survivors(1) == survivors(1)
    assert survivors(1) != survivors(2)
    assert len(set(survivors(1))) == 4


def test_a_fixed_number_takes_part():
    fed = Federation(make_clients(10), participation=FixedNumber(4))
    drawn = []
    for _ in range(30):
        drawn.append(fed.participants)
        assert fed.participants == drawn[-1]
        fed.close_round()
    assert {len(names) for names in drawn} == {4}
    assert len(set(drawn)) > 10
    assert {name for names in drawn for name in names} == set(fed.names)
    assert all(list(names) == sorted(names) for names in drawn)


def test_a_fixed_probability_takes_part():
    fed = Federation(make_clients(20), participation=FixedProbability(0.3))
    sizes = []
    for _ in range(200):
        sizes.append(len(fed.participants))
        fed.close_round()
    assert abs(np.mean(sizes) - 6) < 0.8  # five standard errors of 20 x 0.3 over 200 rounds


def test_an_empty_round_has_no_sum():
    fed = Federation(make_clients(1), participation=FixedProbability(1e-9))
    with pytest.raises(QuorumError, match="0 clients left of 0"):
        fed.sum(steps.drawn)


def test_a_clients_randomness_depends_on_seed_name_round_and_call_alone():
    def values(seed: int, names: int) -> np.ndarray:
        fed = Federation(make_clients(names), seed=seed)
        first = fed.gather(steps.drawn)[0]
        second = fed.gather(steps.drawn)[0]
        fed.close_round()
        return np.concatenate([first, second, fed.gather(steps.drawn)[0]])

    assert np.array_equal(values(0, 2), values(0, 5))
    assert len(set(np.concatenate([values(0, 2), values(1, 2)]).tolist())) == 18


def test_the_meter_counts_what_the_wire_would_carry(clients: list[Client]):
    fed = Federation(clients)
    weights = np.arange(4.0)
    fed.sum(steps.gradient, steps.Ridge(0.5), weights)
    request = {"step": step_name(steps.gradient), "broadcast": (steps.Ridge(0.5), weights)}
    traffic = fed.meter.of_round("a")
    assert traffic.bytes_down == len(wire.encode(request))
    assert traffic.bytes_up == len(wire.encode(weights))
    assert (traffic.floats_down, traffic.floats_up) == (4, 4)
    fed.close_round()
    assert fed.meter.of_round().bytes_up == 0
    assert fed.meter.total().bytes_up == 3 * traffic.bytes_up


def test_sparse_uploads_are_metered_by_what_is_kept(clients: list[Client]):
    fed = Federation(clients)
    fed.sum(steps.sparse, 1000)
    value = SparseArray(np.arange(3), np.ones(3), 1000)
    assert fed.meter.of_round("b").bytes_up == len(wire.encode(value))
    assert fed.meter.of_round("b").floats_up == 3


def test_who_drops_out_before_sending_sends_nothing(clients: list[Client]):
    fed = Federation(clients, drop_outs=ScriptedDropOuts({"b": Stage.MASK}))
    fed.sum(steps.drawn)
    assert fed.meter.of_round("b").bytes_up == 0
    assert fed.meter.of_round("b").bytes_down > 0


def test_threads_give_the_same_bytes():
    one, four = Federation(make_clients(9)), Federation(make_clients(9), workers="threads:4")
    with one, four:
        for _ in range(3):
            assert np.array_equal(one.sum(steps.drawn), four.sum(steps.drawn))
            assert np.array_equal(one.sum(steps.counted), four.sum(steps.counted))
            one.close_round()
            four.close_round()


def test_a_sum_given_up_in_threads_does_not_run_into_the_next_one():
    with Federation(make_clients(9), workers="threads:4") as fed:
        for _ in range(20):
            with pytest.raises(FederationError, match="one structure everywhere"):
                fed.sum(steps.uneven)
            with pytest.raises(StepError):
                fed.sum(steps.failing)
            fed.sum(steps.counted)
        assert fed.sum(steps.counted).tolist() == [9 * 21]


@dataclass
class AtRound:
    round: int
    threads: set[int]


@pytest.mark.parametrize(("workers", "threads"), [(1, 2), ("threads:2", 1)])
def test_the_servers_algebra_keeps_to_one_thread_beside_clients_in_threads(workers, threads):
    """What its idle threads would spin on is the cores of the clients' threads."""
    from threadpoolctl import threadpool_info, threadpool_limits

    def in_use():
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    def trainer():
        yield AtRound(1, in_use())
        yield AtRound(2, in_use())

    with threadpool_limits(2, user_api="blas"), Federation(make_clients(3), workers=workers) as fed:
        for state in fed.rounds(trainer()):
            assert state.threads == {threads}
            assert in_use() == {2}


def test_sparse_features_are_a_clients_own_affair():
    dense = make_clients(1)[0]
    client = Client("a", scipy.sparse.csr_array(dense.features), dense.targets)
    found = Federation([client]).sum(steps.gradient, steps.Ridge(0.0), np.ones(4))
    expected = steps.gradient(dense, steps.Ridge(0.0), np.ones(4))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_trainer_is_driven_round_by_round(clients: list[Client]):
    fed = Federation(clients)

    def trainer():
        for _ in range(3):
            yield float(fed.sum(steps.counted)[0])

    assert list(fed.rounds(trainer())) == [3.0, 6.0, 9.0]
    assert fed.round == 3


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, "threshold: found 0, expected 1 to 3"),
        ({"threshold": 4}, "threshold: found 4"),
        ({"seed": -1}, "seed: found -1"),
        ({"workers": 0}, "workers: found 0"),
        ({"workers": "threads:x"}, "workers: found 'threads:x'"),
    ],
)
def test_options_out_of_range(clients: list[Client], options: dict, message: str):
    with pytest.raises(FederationError) as caught:
        Federation(clients, **options)
    assert message in one_line(caught.value)


def test_a_name_used_twice(clients: list[Client]):
    with pytest.raises(FederationError, match='client "a": the name is used twice'):
        Federation([clients[0], clients[0]])
    with pytest.raises(FederationError, match="0 clients"):
        Federation([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", np.zeros((1, 1)), np.zeros(1)), "1 to 200 characters"),
        (("a\nb", np.zeros((1, 1)), np.zeros(1)), "one printable line"),
        (("a", np.zeros((2, 1)), np.zeros(3)), "2 records and 3 targets"),
        (("a", np.zeros((0, 1)), np.zeros(0)), "found weight 0.0"),
        (("a", np.zeros((1, 1)), np.zeros(1), np.inf), "found weight inf"),
    ],
)
def test_clients_that_cannot_be(arguments: tuple, message: str):
    with pytest.raises(FederationError, match=message) as caught:
        Client(*arguments)
    one_line(caught.value)


def test_only_registered_steps_run(clients: list[Client]):
    with pytest.raises(FederationError, match="not registered"):
        Federation(clients).sum(lambda client: np.zeros(1))
    with pytest.raises(FederationError, match="top of a module"):
        client_step(lambda client: np.zeros(1))


def test_a_failing_step_names_the_client_and_the_cause(clients: list[Client]):
    with pytest.raises(StepError) as caught:
        Federation(clients).sum(steps.failing)
    assert 'client "a": failing failed' in one_line(caught.value)
    assert "ZeroDivisionError: no such luck" in one_line(caught.value)


def test_trees_of_different_structure_are_refused(clients: list[Client]):
    with pytest.raises(FederationError) as caught:
        Federation(clients).sum(steps.uneven)
    assert 'client "b": its step returned float64(3,), client "a" returned float64(2,)' in one_line(
        caught.value
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(2, np.int32), "array of int32"),
        ({"x": None}, r"tree\['x'\]: found NoneType"),
        ((np.zeros(1), "text"), r"tree\[1\]: found str"),
    ],
)
def test_what_is_no_tree_is_refused(clients: list[Client], value: object, message: str):
    with pytest.raises(FederationError, match=message):
        Federation(clients).sum(steps.constant, value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((np.zeros(1, np.int32), np.zeros(1), 3), "indices int32"),
        ((np.zeros(2, np.int64), np.zeros(1), 3), "two vectors of one length"),
        ((np.array([3]), np.zeros(1), 3), r"outside \[0, 3\)"),
        ((np.array([-1]), np.zeros(1), 3), r"outside \[0, 3\)"),
    ],
)
def test_sparse_arrays_that_cannot_be(parts: tuple, message: str):
    with pytest.raises(FederationError, match=message):
        SparseArray(*parts)

"""Steps done for many clients at once: the same bits, meter, refusals as one client at a time."""

from typing import Any

import numpy as np
import pytest

from secure_fl.federation import (
    Client,
    Cohort,
    Federation,
    FederationError,
    LowRank,
    LowRankRows,
    PrivacyError,
    SecureAggregation,
    SparseArray,
    SparseRows,
    Stack,
    StepError,
    Tree,
    batched_step,
    client_step,
    wire,
)
from secure_fl.federation.plain import PlainSum
from secure_fl.federation.trees import flatten, is_finite, unflatten

D = 4
CALLS: list[int] = []
"""How many clients each call of the form got; shows that it ran."""


def everything(client: Client, scale: float) -> dict[str, Any]:
    """Leaves of every kind, of unequal lengths; NaN where the records say so."""
    rng = np.random.default_rng(len(client.name) + int(client.targets[0]))
    k = int(client.targets[0]) + 1
    sparse = SparseArray(
        rng.integers(0, 9, k), rng.standard_normal(k) * 10.0 ** rng.integers(-9, 9), 9
    )
    low = LowRank(rng.standard_normal(2), rng.standard_normal((2, D)))
    dense = scale * rng.standard_normal(3) * 10.0 ** rng.integers(-9, 9)
    if client.features[0, 0] < 0:
        dense[1] = np.nan
    return {"dense": dense, "one": dense[:1] ** 2, "sparse": sparse, "low": low}


@client_step
def singly(client: Client, scale: float) -> Tree:
    return everything(client, scale)


@client_step
def jointly(client: Client, scale: float) -> Tree:
    return everything(client, scale)


@batched_step(jointly)
def _jointly(cohort: Cohort, chosen: Any, scale: float) -> Stack | None:
    if scale == 0.0:
        return None
    if scale < 0.0:
        raise ArithmeticError("negative scale")
    CALLS.append(len(chosen))
    trees = [everything(cohort.clients[c], scale) for c in chosen]
    lengths = [len(tree["sparse"].values) for tree in trees]
    sparse = SparseRows(
        np.concatenate([tree["sparse"].indices for tree in trees]),
        np.concatenate([tree["sparse"].values for tree in trees]),
        np.concatenate([[0], np.cumsum(lengths)]),
        9,
    )
    low = LowRankRows(
        np.stack([tree["low"].values for tree in trees]),
        np.stack([tree["low"].vectors for tree in trees]),
    )
    dense = np.stack([tree["dense"] for tree in trees])
    return Stack(
        {"dense": dense, "one": np.stack([t["one"] for t in trees]), "sparse": sparse, "low": low}
    )


def clients(n: int, *, bad: tuple[int, ...] = ()) -> list[Client]:
    return [
        Client(f"c{i}", np.full((1, 1), -1.0 if i in bad else 1.0), np.array([float(i)]))
        for i in range(n)
    ]


def same(a: Tree, b: Tree) -> bool:
    return all(np.array_equal(a[key], b[key]) for key in ("dense", "one", "sparse", "low"))


@pytest.mark.parametrize("workers", [1, "threads:2", "threads:5"])
@pytest.mark.parametrize("bad", [(), (1, 4)])
def test_a_sum_of_stacks_has_the_bits_meter_and_refusals_of_single_calls(
    workers: int | str, bad: tuple[int, ...]
) -> None:
    CALLS.clear()
    with (
        Federation(clients(7, bad=bad), workers=workers) as one,
        Federation(clients(7, bad=bad)) as other,
    ):
        found, wanted = one.sum(jointly, 2.0), other.sum(singly, 2.0)
        assert sum(CALLS) == 7
        assert same(found, wanted)
        assert one.survivors == other.survivors
        assert one.refused == other.refused == tuple(f"c{i}" for i in bad)
        # The two steps' names are of different length in the request alone.
        up = [fed.meter.total(name).bytes_up for fed in (one, other) for name in fed.names]
        assert up[:7] == up[7:]


def test_a_sum_over_a_subset_takes_only_its_rows() -> None:
    fed, other = Federation(clients(7), workers="threads:3"), Federation(clients(7))
    names = ("c1", "c6")
    assert same(fed.sum(jointly, 2.0, over=names), other.sum(singly, 2.0, over=names))
    assert fed.survivors == names
    fed.close()


def test_a_form_that_declines_leaves_the_clients_to_go_one_by_one() -> None:
    CALLS.clear()
    fed, other = Federation(clients(3)), Federation(clients(3))
    assert same(fed.sum(jointly, 0.0), other.sum(singly, 0.0))
    assert CALLS == []


def test_weighted_means_and_masked_sums_go_one_by_one() -> None:
    CALLS.clear()
    fed, other = Federation(clients(3)), Federation(clients(3))
    assert same(fed.mean(jointly, 2.0), other.mean(singly, 2.0))
    secure = Federation(clients(3), aggregation=SecureAggregation())
    with pytest.raises(PrivacyError, match="sparse array"):
        secure.sum(jointly, 2.0)
    assert CALLS == []


def test_an_error_of_the_form_names_step_and_round() -> None:
    with pytest.raises(StepError, match="jointly failed in round 0: ArithmeticError: negative"):
        Federation(clients(3)).sum(jointly, -1.0)


@client_step
def factors(client: Client) -> Tree:
    return LowRank(np.array([2.0]), np.array([[1.0, -1.0]]))


def test_factors_do_not_add_up_under_masks() -> None:
    fed = Federation(clients(3), aggregation=SecureAggregation())
    with pytest.raises(PrivacyError, match="low-rank"):
        fed.sum(factors)


def test_a_sum_of_low_rank_matrices_is_the_triangle_of_their_sum() -> None:
    rng = np.random.default_rng(0)
    leaves = [LowRank(rng.standard_normal(2), rng.standard_normal((2, D))) for _ in range(3)]
    wanted = sum((leaf.vectors.T * leaf.values) @ leaf.vectors for leaf in leaves)
    total = sum(leaf.dense() for leaf in leaves)
    assert np.allclose(total, wanted[np.tril_indices(D)])
    structure, _ = flatten(leaves[0])
    rows = LowRankRows(np.stack([x.values for x in leaves]), np.stack([x.vectors for x in leaves]))
    stacked = PlainSum().sum_stacks(structure, [Stack({"": rows})], ("a", "b", "c"), 3.0)
    assert np.allclose(stacked.leaves[0], total)


def test_a_low_rank_matrix_survives_the_wire_and_is_measured() -> None:
    leaf = LowRank(np.array([2.0, -1.0]), np.arange(6.0).reshape(2, 3))
    data = wire.encode(leaf)
    found = wire.decode(data)
    assert np.array_equal(found.values, leaf.values)
    assert np.array_equal(found.vectors, leaf.vectors)
    structure, leaves = flatten(leaf)
    assert wire.measure_tree(structure, leaves) == (len(data), 8)
    assert unflatten(structure, leaves) is leaf
    assert not is_finite(LowRank(np.array([1.0]), np.array([[np.inf]])))


@pytest.mark.parametrize(
    "parts",
    [
        (np.zeros(2), np.zeros((3, 4))),
        (np.zeros(2), np.zeros(2)),
        (np.zeros(2, np.float32), np.zeros((2, 4))),
        (np.zeros(2), np.zeros((2, 4), np.int64)),
    ],
)
def test_factors_of_unlike_shapes_or_types_are_refused(parts: tuple[Any, Any]) -> None:
    with pytest.raises(FederationError, match="low rank"):
        LowRank(*parts)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data import partition
from secure_fl.errors import PartitionError

labels_of = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def assert_partition(parts, n, clients, min_records):
    """Disjoint, covering, one sorted array a client, none below the minimum."""
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    for part in parts:
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)
        assert part.size >= min_records


@given(st.integers(1, 300), st.integers(1, 20), seeds)
def test_iid_parts_cover_once_and_differ_by_at_most_one(n, clients, seed):
    if n < clients:
        with pytest.raises(PartitionError):
            partition.iid(n, clients, np.random.default_rng(seed))
        return
    parts = partition.iid(n, clients, np.random.default_rng(seed))
    assert_partition(parts, n, clients, 1)
    sizes = [part.size for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(labels_of, st.integers(1, 20), st.sampled_from([1e-3, 0.1, 1.0, 5.0, 1e3]), seeds, st.data())
def test_dirichlet_parts_cover_once_and_reach_the_minimum(labels, clients, alpha, seed, data):
    least = data.draw(st.integers(0, labels.size // clients))
    parts = partition.dirichlet(
        labels, clients, alpha, np.random.default_rng(seed), min_records=least
    )
    assert_partition(parts, labels.size, clients, least)


@settings(max_examples=200)
@given(st.integers(1, 6), st.integers(1, 12), seeds, st.data())
def test_pathological_gives_every_client_exactly_k_labels(classes, clients, seed, data):
    k = data.draw(st.integers(1, classes))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), clients * 3))
    if clients * k < classes:
        with pytest.raises(PartitionError):
            partition.pathological(labels, clients, k, rng)
        return
    parts = partition.pathological(labels, clients, k, rng)
    assert_partition(parts, labels.size, clients, 1)
    held = partition.describe(parts, labels, classes) > 0
    assert np.all(held.sum(axis=1) == k)
    holders = held.sum(axis=0)
    assert holders.max() - holders.min() <= 1


@given(labels_of, st.integers(1, 10), st.integers(1, 4), seeds)
def test_shards_cover_once_and_a_client_sees_few_labels(labels, clients, s, seed):
    rng = np.random.default_rng(seed)
    if clients * s > labels.size:
        with pytest.raises(PartitionError):
            partition.shards(labels, clients, s, rng)
        return
    parts = partition.shards(labels, clients, s, rng)
    assert_partition(parts, labels.size, clients, 1)
    # A client's label count: each shard of sorted labels adds the boundaries that it spans.
    boundaries = np.unique(labels).size - 1
    held = (partition.describe(parts, labels) > 0).sum(axis=1)
    assert np.all(held <= s + boundaries)
    assert held.sum() <= clients * s + boundaries


@given(st.lists(st.sampled_from(["north", "south", "east"]), min_size=1, max_size=50))
def test_groups_become_clients(groups):
    parts = partition.by_group(groups)
    names = partition.group_names(groups)
    assert_partition(parts, len(groups), len(set(groups)), 1)
    for name, part in zip(names, parts, strict=True):
        assert {groups[i] for i in part} == {name}


@pytest.mark.parametrize("rho", [1, 10, 50, 100])
def test_long_tailed_sizes_follow_the_formula(rho):
    """Cui et al. 2019: n_c = n_0 rho^(-c/(C-1)); CIFAR-10's 5,000 images a class."""
    labels = np.tile(np.arange(10), 5000)
    kept = partition.long_tailed(labels, rho, np.random.default_rng(0))
    sizes = np.bincount(labels[kept])
    # In exact arithmetic: the largest n with n^9 * rho^c <= 5000^9.
    for c, size in enumerate(sizes.tolist()):
        assert size**9 * rho**c <= 5000**9 < (size + 1) ** 9 * rho**c
    assert np.all(np.diff(kept) > 0)


@given(labels_of, st.floats(1, 1000), seeds)
def test_long_tailed_keeps_every_class_and_the_ratio(labels, rho, seed):
    kept = partition.long_tailed(labels, rho, np.random.default_rng(seed))
    present, sizes = np.unique(labels[kept], return_counts=True)
    assert np.array_equal(present, np.unique(labels))
    if sizes.size > 1:
        assert sizes.max() <= np.bincount(labels).max()
        # Each size is the formula rounded down, or one.
        assert np.all(sizes[1:] <= np.maximum(sizes[:-1], 1))


def test_parts_of_a_subset_are_indices_into_the_whole():
    labels = np.tile(np.arange(4), 50)
    kept = partition.long_tailed(labels, 5, np.random.default_rng(1))
    parts = partition.dirichlet(labels[kept], 3, 0.5, np.random.default_rng(2))
    whole = partition.within(kept, parts)
    assert np.array_equal(np.sort(np.concatenate(whole)), kept)
    assert np.array_equal(
        partition.describe(whole, labels, 4), partition.describe(parts, labels[kept], 4)
    )


def test_one_seed_gives_one_partition_and_another_seed_another():
    labels = np.tile(np.arange(5), 40)

    def draw(seed):
        return partition.dirichlet(labels, 4, 0.5, np.random.default_rng(seed))

    assert all(np.array_equal(a, b) for a, b in zip(draw(3), draw(3), strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(draw(3), draw(4), strict=True))


def test_dirichlet_shares_have_the_moments_of_the_distribution():
    """A symmetric Dirichlet's share has mean 1/Q and variance (Q-1)/(Q^2 (Q alpha + 1))."""
    labels = np.zeros(1000, dtype=int)
    clients, alpha, runs = 4, 0.5, 3000
    rng = np.random.default_rng(0)
    shares = np.array(
        [
            [part.size for part in partition.dirichlet(labels, clients, alpha, rng, min_records=0)]
            for _ in range(runs)
        ]
    )
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    # Five standard errors.
    assert np.allclose(shares.mean(axis=0) / 1000, 1 / clients, atol=5 * np.sqrt(variance / runs))
    assert np.allclose(shares.var(axis=0) / 1e6, variance, rtol=0.12)


def test_a_small_alpha_concentrates_a_class_and_a_large_one_spreads_it():
    labels = np.tile(np.arange(10), 200)
    rng = np.random.default_rng(0)
    few = partition.describe(partition.dirichlet(labels, 10, 1e-3, rng, min_records=0), labels)
    even = partition.describe(partition.dirichlet(labels, 10, 1e4, rng), labels)
    assert np.all(few.max(axis=0) >= 190)
    assert np.all(np.abs(even - 20) <= 5)


def test_alpha_so_small_that_gamma_variables_underflow_still_covers():
    labels = np.zeros(50, dtype=int)
    parts = partition.dirichlet(labels, 5, 1e-12, np.random.default_rng(0), min_records=0)
    assert sorted(part.size for part in parts) == [0, 0, 0, 0, 50]


def test_describe_counts_classes_per_client():
    labels = np.array([0, 2, 2, 0])
    counts = partition.describe((np.array([0, 1]), np.array([2, 3])), labels, classes=4)
    assert counts.tolist() == [[1, 0, 1, 0], [1, 0, 1, 0]]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: partition.iid(3, 4, RNG),
            "3 records for 4 clients of at least 1; give fewer clients",
        ),
        (
            lambda: partition.iid(3, 0, RNG),
            "0 clients of at least 1 records; give at least one client and no negative minimum",
        ),
        (
            lambda: partition.dirichlet(np.zeros(9, int), 4, 1.0, RNG, min_records=3),
            "9 records for 4 clients of at least 3; give fewer clients",
        ),
        (
            lambda: partition.dirichlet(np.zeros(9, int), 2, 0.0, RNG),
            "Dirichlet alpha is 0.0; give a positive number",
        ),
        (
            lambda: partition.dirichlet(np.zeros(9, int), 2, float("nan"), RNG),
            "Dirichlet alpha is nan; give a positive number",
        ),
        (
            lambda: partition.pathological(np.arange(9) % 3, 2, 4, RNG),
            "4 labels a client, the data has 3; give 1 to 3",
        ),
        (
            lambda: partition.pathological(np.arange(9) % 3, 2, 1, RNG),
            "2 clients of 1 labels leave some of 3 labels to nobody; give more clients or labels"
            " a client",
        ),
        (
            lambda: partition.pathological(np.array([0, 1, 1, 1, 1]), 4, 1, RNG),
            "label 0 has 1 records for 2 clients; give fewer clients or labels a client",
        ),
        (
            lambda: (
                partition.pathological(np.arange(8) % 2, 4, 1, RNG, min_records=2)
                and partition.pathological(np.array([0] * 12 + [1] * 2), 2, 1, RNG, min_records=3)
            ),
            "pathological partition: a client gets 2 records, fewer than 3; give fewer clients",
        ),
        (
            lambda: partition.shards(np.zeros(5, int), 3, 2, RNG),
            "3 clients of 2 shards for 5 records; give each client at least one shard and each"
            " shard a record",
        ),
        (
            lambda: partition.by_group(["a", "a", "b"], min_records=2),
            'group "b" has 1 records, fewer than 2; merge it with another',
        ),
        (
            lambda: partition.by_group([]),
            "no records to divide; give at least one",
        ),
        (
            lambda: partition.long_tailed(np.zeros(5, int), 0.5, RNG),
            "imbalance ratio rho is 0.5; give a number of at least 1",
        ),
        (
            lambda: partition.long_tailed(np.zeros(0, int), 2, RNG),
            "no records to choose from; give at least one",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(call, message):
    with pytest.raises(PartitionError) as caught:
        call()
    assert str(caught.value) == message


def test_groups_that_differ_in_a_nul_stay_two():
    """Arrays of fixed-width text, in which names are sorted, lose a NUL at the end."""
    assert partition.group_names(["x", "x\0"]) == ("x", "x\0")
    assert [part.tolist() for part in partition.by_group(["x", "x\0", "x"])] == [[0, 2], [1]]


def test_names_and_numbers_together_are_no_groups():
    """As an array of text 1 and "1" would be one group."""
    with pytest.raises(PartitionError, match="names and numbers together"):
        partition.by_group([1, "1"])

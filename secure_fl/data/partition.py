"""Dividing records over clients, for experiments.

Every scheme returns one array of record indices a client, sorted, disjoint; together they hold
every record once. Randomness comes from the generator passed in, so one seed gives one partition.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secure_fl.errors import PartitionError

Labels: TypeAlias = NDArray[np.integer[Any]]
Parts: TypeAlias = tuple[NDArray[np.int64], ...]


def iid(n: int, clients: int, rng: np.random.Generator, *, min_records: int = 1) -> Parts:
    """A random permutation cut into parts whose sizes differ by at most one.

    Args:
        n: records.
        clients: at least 1.
        rng: draws the permutation.
        min_records: the fewest records a client may get.

    Raises:
        PartitionError: n < clients * min_records.
    """
    _check_counts(n, clients, min_records)
    return _sorted(np.array_split(rng.permutation(n), clients))


def dirichlet(
    labels: Labels,
    clients: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_records: int = 1,
) -> Parts:
    """Label skew of strength alpha, drawn class by class.

    For each class on its own, p ~ Dirichlet(alpha, ..., alpha) over the clients is drawn, the
    class's records are shuffled and cut at the rounded cumulative sums of p. So both the mix of
    classes and the number of records vary over clients. This is the scheme of Yurochkin et al.
    2019 that the papers of this project use. (Hsu et al. 2019 draw the other way round: a class
    mix for each client, with equal client sizes.)

    A client left with fewer than `min_records` then takes random records, one at a time, from
    the client that holds most at that moment.

    Args:
        labels: class codes, shape (n,).
        clients: Q, at least 1.
        alpha: concentration, > 0; 0.1 gives most of a class to few clients, 100 is nearly iid.
        rng: draws everything.
        min_records: the fewest records a client may get, >= 0.

    Raises:
        PartitionError: alpha not positive and finite, or n < clients * min_records.
    """
    labels = np.asarray(labels)
    _check_counts(labels.size, clients, min_records)
    if not (np.isfinite(alpha) and alpha > 0):
        raise PartitionError(f"Dirichlet alpha is {alpha}; give a positive number")
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for members in _by_class(labels):
        shares = _dirichlet(alpha, clients, rng)
        cuts = np.rint(np.cumsum(shares)[:-1] * members.size).astype(np.int64)
        for part, piece in zip(parts, np.split(rng.permutation(members), cuts), strict=True):
            part.append(piece)
    joined = [np.concatenate(part) if part else np.empty(0, np.int64) for part in parts]
    return _sorted(_topped_up(joined, min_records, rng))


def pathological(
    labels: Labels,
    clients: int,
    labels_per_client: int,
    rng: np.random.Generator,
    *,
    min_records: int = 1,
) -> Parts:
    """Every client holds exactly k classes; a class's records are shared evenly by its holders.

    Classes are dealt out so that the numbers of holders of any two classes differ by at most
    one: each client in turn takes the k classes with most places left, ties broken at random.

    Args:
        labels: class codes, shape (n,); C distinct ones.
        clients: Q, at least 1.
        labels_per_client: k, in 1..C, with Q * k >= C so that every class has a holder.
        rng: draws everything.
        min_records: the fewest records a client may get; not topped up, for that would add
            a class.

    Raises:
        PartitionError: k out of range, Q * k < C, a class with fewer records than holders, or a
            client below `min_records`.
    """
    labels = np.asarray(labels)
    _check_counts(labels.size, clients, min_records)
    classes = list(_by_class(labels))
    k, count = labels_per_client, len(classes)
    if not 1 <= k <= count:
        raise PartitionError(f"{k} labels a client, the data has {count}; give 1 to {count}")
    if clients * k < count:
        raise PartitionError(
            f"{clients} clients of {k} labels leave some of {count} labels to nobody; give more"
            " clients or labels a client"
        )
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for members, owners in zip(classes, _deal(count, clients, k, rng), strict=True):
        if members.size < len(owners):
            raise PartitionError(
                f"label {labels[members[0]]} has {members.size} records for {len(owners)} clients;"
                " give fewer clients or labels a client"
            )
        pieces = np.array_split(rng.permutation(members), len(owners))
        for owner, piece in zip(rng.permutation(owners), pieces, strict=True):
            parts[int(owner)].append(piece)
    joined = [np.concatenate(part) for part in parts]
    _require(joined, min_records, "pathological partition")
    return _sorted(joined)


def shards(
    labels: Labels,
    clients: int,
    shards_per_client: int,
    rng: np.random.Generator,
    *,
    min_records: int = 1,
) -> Parts:
    """Records sorted by label, cut into clients * s even shards, s random shards a client.

    McMahan et al. 2017, section 3. Within a label the order is random.

    Args:
        labels: class codes, shape (n,).
        clients: at least 1.
        shards_per_client: s, at least 1.
        rng: draws everything.
        min_records: the fewest records a client may get.

    Raises:
        PartitionError: more shards than records, or a client below `min_records`.
    """
    labels = np.asarray(labels)
    _check_counts(labels.size, clients, min_records)
    total = clients * shards_per_client
    if shards_per_client < 1 or total > labels.size:
        raise PartitionError(
            f"{clients} clients of {shards_per_client} shards for {labels.size} records; give each"
            " client at least one shard and each shard a record"
        )
    shuffled = rng.permutation(labels.size)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, total)
    dealt = rng.permutation(total).reshape(clients, shards_per_client)
    joined = [np.concatenate([pieces[i] for i in hand]) for hand in dealt]
    _require(joined, min_records, "shards")
    return _sorted(joined)


def by_group(groups: ArrayLike, *, min_records: int = 1) -> Parts:
    """One client a group, in the order of `group_names`.

    Args:
        groups: a group name or number a record, shape (n,).
        min_records: the fewest records a client may get.

    Raises:
        PartitionError: no records, names beside numbers, or a group below `min_records`.
    """
    values, inverse = np.unique(_exactly(groups), return_inverse=True)
    if not values.size:
        raise PartitionError("no records to divide; give at least one")
    parts = [np.flatnonzero(inverse == g).astype(np.int64) for g in range(values.size)]
    for name, part in zip(values, parts, strict=True):
        if part.size < min_records:
            raise PartitionError(
                f'group "{name}" has {part.size} records, fewer than {min_records}; merge it with'
                " another"
            )
    return tuple(parts)


def group_names(groups: ArrayLike) -> tuple[str, ...]:
    """The distinct groups, sorted: the clients of `by_group`."""
    return tuple(str(name) for name in np.unique(_exactly(groups)))


def _exactly(groups: ArrayLike) -> NDArray[Any]:
    """Groups as an array that keeps them: one of fixed-width text would lose a NUL at the end."""
    if isinstance(groups, np.ndarray):
        return groups
    found = np.array(groups, dtype=object)
    if len({isinstance(name, str) for name in found.tolist()}) > 1:
        raise PartitionError("groups: names and numbers together; give one or the other")
    return found


def long_tailed(labels: Labels, rho: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """A subset whose class sizes fall geometrically: class c keeps n0 * rho^(-c/(C-1)) records.

    Cui et al. 2019, section 5. n0 is the largest head that every class can follow: the size of
    class 0 for balanced data. Sizes are rounded down, to at least one record.

    Args:
        labels: class codes, shape (n,); C distinct ones, taken in ascending order.
        rho: ratio of the first class to the last, >= 1.
        rng: chooses the records of each class.

    Returns:
        Sorted indices of the records kept; to divide them, index `labels` with them first and
        pass the parts to `within`.

    Raises:
        PartitionError: rho below 1 or not finite, or no records.
    """
    labels = np.asarray(labels)
    if not (np.isfinite(rho) and rho >= 1):
        raise PartitionError(f"imbalance ratio rho is {rho}; give a number of at least 1")
    classes = list(_by_class(labels))
    if not classes:
        raise PartitionError("no records to choose from; give at least one")
    steps = np.arange(len(classes)) / max(len(classes) - 1, 1)
    shares = rho**-steps
    sizes = np.array([members.size for members in classes])
    head = float(np.min(sizes / shares))
    # The small excess undoes rounding where the product is a whole number.
    kept = np.clip((head * shares * (1 + 1e-12)).astype(np.int64), 1, sizes)
    chosen = [rng.permutation(each)[:count] for each, count in zip(classes, kept, strict=True)]
    return np.sort(np.concatenate(chosen))


def within(kept: NDArray[np.int64], parts: Sequence[NDArray[np.int64]]) -> Parts:
    """Parts of a subset as indices into the whole: `kept[part]` for each part."""
    return tuple(kept[part] for part in parts)


def describe(
    parts: Sequence[NDArray[np.integer[Any]]], labels: Labels, classes: int | None = None
) -> NDArray[np.int64]:
    """Records of each class at each client.

    Args:
        parts: one index array a client.
        labels: class codes from 0, shape (n,).
        classes: C; None takes the largest code + 1.

    Returns:
        Shape (clients, C).
    """
    labels = np.asarray(labels)
    width = classes if classes is not None else int(labels.max(initial=-1)) + 1
    rows = [np.bincount(labels[part], minlength=width) for part in parts]
    return np.array(rows, dtype=np.int64).reshape(len(parts), width)


def _check_counts(n: int, clients: int, min_records: int) -> None:
    if clients < 1 or min_records < 0:
        raise PartitionError(
            f"{clients} clients of at least {min_records} records; give at least one client and no"
            " negative minimum"
        )
    if n == 0 or n < clients * min_records:
        raise PartitionError(
            f"{n} records for {clients} clients of at least {min_records}; give fewer clients"
        )


def _by_class(labels: Labels) -> list[NDArray[np.int64]]:
    """Indices of each class's records, classes ascending."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    _, starts = np.unique(labels[order], return_index=True)
    return np.split(order, starts[1:]) if labels.size else []


def _dirichlet(alpha: float, clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw; exact also where every gamma variable underflows to 0."""
    # log of a Gamma(alpha) variable = log Gamma(alpha + 1) + log(U) / alpha (Devroye 1986, IV.6).
    logs = np.log(rng.standard_gamma(alpha + 1, clients)) + np.log1p(-rng.random(clients)) / alpha
    shares = np.exp(logs - logs.max())
    return shares / shares.sum()


def _topped_up(
    parts: list[NDArray[np.int64]], min_records: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    parts = [rng.permutation(part) for part in parts]
    for needy in range(len(parts)):
        while parts[needy].size < min_records:
            donor = max(range(len(parts)), key=lambda i: parts[i].size)
            parts[needy] = np.append(parts[needy], parts[donor][-1])
            parts[donor] = parts[donor][:-1]
    return parts


def _deal(count: int, clients: int, k: int, rng: np.random.Generator) -> list[list[int]]:
    """Holders of each class: k classes a client, numbers of holders differ by at most one."""
    places = np.full(count, clients * k // count)
    places[rng.permutation(count)[: clients * k % count]] += 1
    owners: list[list[int]] = [[] for _ in range(count)]
    for client in range(clients):
        order = np.lexsort((rng.random(count), -places))
        for c in order[:k]:
            owners[int(c)].append(client)
            places[c] -= 1
    return owners


def _require(parts: Sequence[NDArray[np.int64]], min_records: int, what: str) -> None:
    smallest = min(part.size for part in parts)
    if smallest < min_records:
        raise PartitionError(
            f"{what}: a client gets {smallest} records, fewer than {min_records}; give fewer"
            " clients"
        )


def _sorted(parts: Sequence[NDArray[Any]]) -> Parts:
    return tuple(np.sort(part).astype(np.int64) for part in parts)

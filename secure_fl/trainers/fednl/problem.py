"""Logistic regression with a ridge term (FedNL, eq. 12) on a client's sparse rows."""

import threading
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import FeatureError, LabelError
from secure_fl.federation import Client, broadcastable
from secure_fl.trainers.fednl.triangles import diagonal_places, packed_size, places_of

Array = NDArray[Any]


@broadcastable
@dataclass(frozen=True)
class LogisticRidge:
    """f_i(x) = mean of log(1 + exp(-b a.x)) over the client's records + penalty/2 |x|^2 (eq. 12).

    Attributes:
        penalty: lambda, at least 0; every f_i has it, so f is penalty-strongly convex.
        positive: the class code whose records have target 1, all others -1; None for targets that
            are -1 and 1 already.

    Raises:
        ValueError: a negative or non-finite penalty.
    """

    penalty: float
    positive: int | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"penalty {self.penalty}: expected a finite number of at least 0")


DENSE_SHARE = 0.2
"""Share of entries other than 0 from which contiguous columns were measured faster than pairs."""


@dataclass(frozen=True, eq=False)
class Support:
    """Entries of the lower triangle in which a client's Hessian can differ from 0.

    The whole diagonal belongs to it, since the ridge term does.

    Attributes:
        d: order of the matrix.
        index: packed places, ascending, int64, shape (p,).
        diagonal: where the diagonal stands among them, shape (d,).
    """

    d: int
    index: NDArray[np.int64]
    diagonal: NDArray[np.int64]

    @staticmethod
    def of(d: int, places: NDArray[np.int64]) -> "Support":
        """The support made of some packed places and the diagonal."""
        seen = np.zeros(packed_size(d), bool)
        seen[places] = True
        seen[diagonal_places(d)] = True
        index = np.flatnonzero(seen)
        return Support(d, index, np.searchsorted(index, diagonal_places(d)))

    @staticmethod
    def full(d: int) -> "Support":
        """All entries."""
        return Support(d, np.arange(packed_size(d), dtype=np.int64), diagonal_places(d).copy())

    @property
    def weights(self) -> Array:
        """1 on the diagonal and 2 off it: how often an entry stands in the full matrix."""
        out = np.full(len(self.index), 2.0)
        out[self.diagonal] = 1.0
        return out

    def dense(self, values: Array) -> Array:
        """Values on the support as a full packed triangle."""
        out = np.zeros(packed_size(self.d))
        out[self.index] = values
        return out


_scratch = threading.local()


def scratch(size: int) -> Array:
    """A thread's own buffer of that size, valid until its next use; small enough for the cache."""
    held = getattr(_scratch, "buffer", None)
    if held is None or len(held) < size:
        held = _scratch.buffer = np.empty(size)
    return held[:size]


class LocalProblem:
    """A client's records prepared for many evaluations.

    Args:
        client: targets -1 and 1; features dense or scipy CSR, finite.
        entrywise: keep the Hessian on the entries that rows can reach; otherwise on all pairs of
            features present, which a low-rank update fills.

    Raises:
        LabelError: a target that is neither -1 nor 1.
        FeatureError: features that are not finite.
    """

    def __init__(self, client: Client, entrywise: bool) -> None:
        from scipy.sparse import csr_array

        targets = np.asarray(client.targets, np.float64)
        if targets.ndim != 1 or not np.isin(targets, (-1.0, 1.0)).all():
            raise LabelError(
                f'client "{client.name}": logistic regression expects targets -1 and 1; map the'
                " two classes to them"
            )
        # A copy: records that came through a pipe are read-only, and a client's stay as they are.
        rows = csr_array(client.features, dtype=np.float64, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        if not np.isfinite(rows.data).all():
            raise FeatureError(f'client "{client.name}": features must be finite; clean them')
        self.targets = targets
        self.m, self.d = rows.shape
        self.indptr = rows.indptr.astype(np.int64)
        self.indices = rows.indices.astype(np.int32)
        self.data = rows.data
        self.curvature = np.empty(self.m)
        self.entrywise = entrywise
        self._lay_out()

    def _lay_out(self) -> None:
        from secure_fl.trainers.fednl import kernels

        self.columns: Array | None = None
        self.position = np.empty(0, np.int32)
        self.present = np.unique(self.indices).astype(np.int64)
        self.constant: float | None = None
        if len(self.data) >= DENSE_SHARE * self.m * self.d:
            from scipy.sparse import csr_array

            shape = (self.m, self.d)
            self.columns = kernels.contiguous(
                csr_array((self.data, self.indices, self.indptr), shape=shape)
            )
            self.support = Support.full(self.d)
            self.present = np.arange(self.d, dtype=np.int64)
            return
        counts = np.diff(self.indptr)
        places = np.empty(int((counts * (counts + 1) // 2).sum()), np.int64)
        kernels.pair_places(self.indptr, self.indices, places)
        if self.entrywise:
            self.support = Support.of(self.d, places)
        else:
            r, c = np.tril_indices(len(self.present))
            self.support = Support.of(self.d, places_of(self.present[r], self.present[c]))
        where = np.zeros(packed_size(self.d), np.int32)
        where[self.support.index] = np.arange(len(self.support.index), dtype=np.int32)
        self.position = where[places]
        if len(self.data) and np.all(self.data == self.data[0]):
            self.constant = float(self.data[0])

    def evaluate(self, x: Array, penalty: float, out: Array | None = None) -> tuple[float, Array]:
        """Loss and gradient at x; keeps the curvature of every row for `hessian`."""
        from secure_fl.trainers.fednl import kernels

        gradient = np.empty(self.d) if out is None else out
        if self.columns is not None:
            loss = kernels.evaluate_dense(
                self.columns,
                self.targets,
                x,
                gradient,
                self.curvature,
                np.empty(self.columns.shape[1]),
            )
        else:
            loss = kernels.evaluate(
                self.indptr, self.indices, self.data, self.targets, x, gradient, self.curvature
            )
        gradient += penalty * x
        return loss + 0.5 * penalty * float(x @ x), gradient

    def loss(self, x: Array, penalty: float) -> float:
        """Loss at x."""
        from secure_fl.trainers.fednl import kernels

        mean = kernels.loss_only(self.indptr, self.indices, self.data, self.targets, x)
        return mean + 0.5 * penalty * float(x @ x)

    def hessian(self, penalty: float, out: Array | None = None) -> Array:
        """The Hessian's values on the support, where `evaluate` was called last; shape (p,)."""
        return self.weighted_gram(self.curvature, penalty, out)

    def weighted_gram(self, weights: Array, penalty: float, out: Array | None = None) -> Array:
        """Sum of weight times outer product over the rows, plus the ridge, on the support."""
        from secure_fl.trainers.fednl import kernels

        values = np.empty(len(self.support.index)) if out is None else out
        if self.columns is not None:
            kernels.dense_outer_products(self.columns, weights, np.empty_like(self.columns), values)
        elif self.constant is None:
            kernels.outer_products(self.indptr, self.data, weights, self.position, values)
        else:
            kernels.equal_outer_products(self.indptr, weights, self.position, self.constant, values)
        values[self.support.diagonal] += penalty
        return values


class _Own(MutableMapping[str, Array]):
    """The part of a client's state whose names end in a class."""

    def __init__(self, whole: dict[str, Array], ending: str) -> None:
        self.whole, self._ending = whole, ending

    def __getitem__(self, name: str) -> Array:
        return self.whole[name + self._ending]

    def __setitem__(self, name: str, value: Array) -> None:
        self.whole[name + self._ending] = value

    def __delitem__(self, name: str) -> None:
        del self.whole[name + self._ending]

    def __iter__(self) -> Iterator[str]:
        ending = self._ending
        return (name.removesuffix(ending) for name in self.whole if name.endswith(ending))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def seen_by(objective: LogisticRidge, client: Client) -> Client:
    """The client with the objective's targets; its state is a part of the client's own."""
    code = objective.positive
    if code is None:
        return client
    key = f"fednl class {code}"
    found: Client | None = client.cache.get(key)
    if found is None or cast(_Own, found.state).whole is not client.state:
        targets = np.where(np.asarray(client.targets) == code, 1.0, -1.0)
        state = cast("dict[str, Array]", _Own(client.state, f" of class {code}"))
        found = Client(client.name, client.features, targets, state=state)
        client.cache[key] = found
    found.begin_as(client)
    return found


def local_problem(client: Client, entrywise: bool = True) -> LocalProblem:
    """The client's prepared records, from its cache where they are there already."""
    key = f"fednl problem, {'entries' if entrywise else 'features'}"
    found = client.cache.get(key)
    if found is None:
        found = client.cache[key] = LocalProblem(client, entrywise)
    return found

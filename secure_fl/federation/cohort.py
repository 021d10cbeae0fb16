"""Steps done for many clients of one process at once, where calling each costs more than its work.

What comes out is what the step would have returned for each client by itself, to the same bits; the
server sees no more of it than of the step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation.client import Client
from secure_fl.federation.trees import Array, LowRank, SparseArray, Tree, is_finite


@dataclass(eq=False)
class Cohort:
    """Clients whose steps run in one thread of this process.

    Attributes:
        clients: in the federation's order.
        cache: derived objects of them all; may vanish at any time.
    """

    clients: Sequence[Client]
    cache: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse arrays of several clients, end to end.

    Attributes:
        indices: int64; `values`: float64, both of one length.
        values: see there.
        starts: where each client's part begins, shape (n + 1,).
        size: length of every vector.
    """

    indices: NDArray[np.int64]
    values: Array
    starts: NDArray[np.int64]
    size: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> SparseArray:
        part = slice(self.starts[i], self.starts[i + 1])
        return SparseArray(self.indices[part], self.values[part], self.size)


@dataclass(frozen=True, eq=False)
class LowRankRows:
    """Low-rank matrices of several clients.

    Attributes:
        values: shape (n, R).
        vectors: shape (n, R, d).
    """

    values: Array
    vectors: Array

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> LowRank:
        return LowRank(self.values[i], self.vectors[i])


Rows: TypeAlias = Array | SparseRows | LowRankRows


@dataclass(frozen=True, eq=False)
class Stack:
    """What a step returns for several clients: a dict whose leaves have a row for each.

    Attributes:
        leaves: by key, all of one length.
    """

    leaves: dict[str, Rows]

    def __len__(self) -> int:
        return len(next(iter(self.leaves.values())))

    def trees(self) -> Iterator[Tree]:
        """One client's tree after the other."""
        for i in range(len(self)):
            yield {key: rows[i] for key, rows in self.leaves.items()}

    def is_finite(self) -> bool:
        """Whether no leaf holds NaN or infinity."""
        return all(
            is_finite(rows if isinstance(rows, np.ndarray) else rows.values)
            and (not isinstance(rows, LowRankRows) or is_finite(rows.vectors))
            for rows in self.leaves.values()
        )

    def counts(self) -> list[tuple[int, ...]]:
        """Of each client the number of values of its sparse and low-rank leaves."""
        columns = [
            np.diff(rows.starts).tolist()
            if isinstance(rows, SparseRows)
            else [rows.values.shape[1]] * len(rows)
            for rows in self.leaves.values()
            if not isinstance(rows, np.ndarray)
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)


BatchedStep: TypeAlias = Callable[..., Stack | None]
_TOGETHER: dict[Callable[..., Any], BatchedStep] = {}


def batched_step(step: Callable[..., Any]) -> Callable[[BatchedStep], BatchedStep]:
    """Registers a function of (cohort, chosen, *broadcast) that does a step for many clients.

    `chosen` are places in the cohort, int64, ascending. It returns None, before it changed
    anything, where the clients must go one by one; and never for one cohort only.
    """

    def register(function: BatchedStep) -> BatchedStep:
        _TOGETHER[step] = function
        return function

    return register


def batched_form(step: Callable[..., Any]) -> BatchedStep | None:
    """What `batched_step` registered for a step."""
    return _TOGETHER.get(step)

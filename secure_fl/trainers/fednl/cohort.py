"""A round of FedNL for many clients of one process in one compiled call."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import Client, Cohort, LowRankRows, SparseRows, Stack
from secure_fl.trainers.fednl.compressors import Compressor, Identity
from secure_fl.trainers.fednl.low_rank import RankR
from secure_fl.trainers.fednl.problem import LocalProblem, local_problem
from secure_fl.trainers.fednl.sparsifiers import RandK, SharedRandK, TopK
from secure_fl.trainers.fednl.triangles import packed_size

Array = NDArray[Any]

_COMPILED: tuple[type, ...] = (SharedRandK, RandK, TopK, Identity, RankR)
"""In the order of the kinds of `cohort_kernels`."""


def kind_of(compressor: Compressor) -> int | None:
    """The kind of a compressor that the compiled loop knows; None for the others."""
    if isinstance(compressor, RankR) and compressor.rank != 1:
        return None
    return next((i for i, cls in enumerate(_COMPILED) if type(compressor) is cls), None)


@dataclass(eq=False)
class Pool:
    """Prepared records and estimates of a cohort's clients, end to end.

    Attributes:
        records: of all clients, a `cohort_kernels.Records`.
        held: the estimates; each client's `state["hessian"]` is its part of this array.
        d: number of features.
    """

    records: Any
    held: Array
    d: int

    def attach(self, clients: Sequence[Client], chosen: NDArray[np.int64]) -> None:
        """Takes over the estimates that came from elsewhere: a checkpoint, or a first round."""
        starts = self.records.supports
        for c in chosen.tolist():
            state = clients[c].state
            estimate = state["hessian"]
            if estimate.base is not self.held:
                own = self.held[starts[c] : starts[c + 1]]
                own[:] = estimate
                state["hessian"] = own


_building = threading.Lock()


def pool_of(cohort: Cohort, entrywise: bool) -> Pool:
    """The cohort's pool, made when first asked for."""
    key = f"fednl pool, {'entries' if entrywise else 'features'}"
    found = cohort.cache.get(key)
    if found is None:
        with _building:  # compiling in two threads at once takes twice as long
            problems = [local_problem(client, entrywise) for client in cohort.clients]
            records = _records(problems)
        held = np.empty(records.supports[-1])
        found = cohort.cache[key] = Pool(records, held, problems[0].d)
    return found


def _records(problems: Sequence[LocalProblem]) -> Any:
    from secure_fl.trainers.fednl.cohort_kernels import Records

    def starts(lengths: Sequence[int]) -> Array:
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    d = problems[0].d
    rows = starts([p.m for p in problems])
    dense = [np.empty(0) if p.columns is None else p.columns.ravel() for p in problems]
    segments = [_segments(p) for p in problems]
    return Records(
        rows,
        starts([len(p.data) for p in problems]),
        starts([len(p.position) for p in problems]),
        starts([len(p.support.index) for p in problems]),
        starts([len(s) for s in segments]),
        np.concatenate([p.indptr for p in problems]),
        np.concatenate([p.indices for p in problems]),
        np.concatenate([p.data for p in problems]),
        np.concatenate([p.targets for p in problems]),
        np.concatenate([p.position for p in problems]),
        np.concatenate(dense),
        starts([len(columns) for columns in dense]),
        np.array([np.nan if p.constant is None else p.constant for p in problems]),
        np.concatenate([p.support.index for p in problems]),
        np.stack([p.support.diagonal for p in problems]),
        np.concatenate(segments),
        np.stack([np.append(p.present, np.setdiff1d(np.arange(d), p.present)) for p in problems]),
        np.empty(rows[-1]),
    )


def _segments(problem: LocalProblem) -> NDArray[np.int64]:
    """Where each present feature's line begins in a support of all pairs of present features."""
    if problem.entrywise and problem.columns is None:
        return np.empty(0, np.int64)
    i = problem.present
    return np.searchsorted(problem.support.index, i * (i + 1) // 2 + i[:1])


def learn_together(
    cohort: Cohort,
    chosen: NDArray[np.int64],
    penalty: float,
    compressor: Compressor,
    rate: float,
    x: Array,
    draw: int,
    *,
    sparse: bool,
    spectral: bool,
) -> Stack | None:
    """Lines 4 to 6 of Algorithm 1 for the chosen clients; None where they must go one by one.

    Args:
        cohort: clients that hold an estimate each.
        chosen: places among them.
        penalty: lambda.
        compressor: of the Hessians.
        rate: alpha.
        x: the model, shape (d,).
        draw: the round.
        sparse: whether sums take sparse and low-rank leaves.
        spectral: the norm of l_i, of Rank-1 alone; otherwise it is the Frobenius norm.

    Returns:
        Rows of {"slope": loss, l_i and gradient; "difference": S_i}, as `learning.learn` makes
        them.
    """
    kind = kind_of(compressor)
    # Masked and clipped sums take triangles, but for the shared places.
    if kind is None or not (sparse or compressor.summable):
        return None
    from secure_fl.trainers.fednl import cohort_kernels as kernels

    pool = pool_of(cohort, compressor.entrywise)
    pool.attach(cohort.clients, chosen)
    d, q, size = pool.d, len(chosen), packed_size(pool.d)
    k = min(getattr(compressor, "k", 0), size)
    places, words = np.empty(0, np.int64), np.empty(0, np.int64)
    room, lengths = q * k, pool.records.supports
    if isinstance(compressor, SharedRandK):
        places = compressor.places(size, 0, draw).copy()
    elif isinstance(compressor, RandK):
        words = np.array([cohort.clients[c].word for c in chosen.tolist()], np.int64)
    elif isinstance(compressor, RankR):
        room = q * (d + 1)
    elif isinstance(compressor, Identity):
        room = int((lengths[chosen + 1] - lengths[chosen]).sum())
    slope, starts = np.empty((q, d + 2)), np.empty(q + 1, np.int64)
    indexed = kind in (kernels.RANDOM, kernels.TOP, kernels.WHOLE)
    index, sent = np.empty(room if indexed else 0, np.int64), np.empty(room)
    # Copies, because read-only arrays would have the loop compiled anew.
    kernels.learn_all(
        kind, chosen, pool.records, np.array(x), penalty, rate, k, places, words, pool.held, slope,
        index, sent, starts,
    )  # fmt: skip
    message: Any
    if indexed:
        message = SparseRows(index[: starts[-1]], sent[: starts[-1]], starts, size)
    elif kind == kernels.RANK_ONE:
        pairs = sent.reshape(q, 1, d + 1)
        if spectral:
            # The leading eigenvalue of the difference is its spectral norm.
            slope[:, 1] = np.abs(pairs[:, 0, 0])
        message = LowRankRows(pairs[:, :, 0], pairs[:, :, 1:])
    else:
        message = sent.reshape(q, k)
    return Stack({"slope": slope, "difference": message})

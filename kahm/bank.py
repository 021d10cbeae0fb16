"""All machines of a client evaluated together.

A bank gives, for a query, the smallest measure over the machines of each cell. A cell is a class
for one client's bank (eq. 121), or a (client, class) pair for a simulated federation (eq. 122).
Agrees with `kahm.machine` to 1e-9 when it stores float64.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import groupby
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from kahm._typing import Array, IntArray
from kahm.checks import feature_matrix
from kahm.errors import InputError
from kahm.machine import Regularisation, check_regularisation, least_distance_sq
from kahm.measures import Measure, check_measure
from kahm.stack import (
    Doubt,
    Products,
    Queries,
    Stack,
    Workspace,
    by_count,
    join_stacks,
    measure_from_records,
    measure_stack,
)
from kahm.stack_fit import fit_stack
from kahm.threads import SMALL, one_thread

DOUBT = {
    np.dtype(np.float32): Doubt(1e-2, 1e-4, 3e-6),
    np.dtype(np.float64): Doubt(1e-6, 1e-10, 3e-10),
}
"""What is distrusted is computed from the records by differences: float32 then stays within 1e-5 of
the machines, float64 within 1e-9."""

_NEAR = {np.dtype(np.float32): 10.0, np.dtype(np.float64): 1e5}
"""Squared length of the records' mean over their mean squared distance from it, up to which 0 is
origin enough: a tenth of what makes `Doubt.closeness` distrust everything."""

_BLOCK_VALUES = 768 * 512
"""Machines x N x queries of one block, chosen by measurement (benchmarks.kahm_speed)."""
_LEAST_PRODUCTS = 2**27
"""Records times queries from which on loading the compiler pays."""
_MOST_RECORDS = 32
"""Of a machine, up to which compiled loops are faster than products of matrices."""
_CHUNK_QUERIES = 512
"""Queries at a time; memory is 2 kB x machines, and some blocks."""


@dataclass(frozen=True)
class Bank:
    """Machines of one or several cells, sorted by their number of records.

    Make one with `Bank.fit`; join several with `Bank.merge`.

    Attributes:
        records: all batches, stacked, shape (R, d); float32 or float64.
        sizes: records of each machine, shape (M,), ascending.
        cells: the cell of each machine, shape (M,).
        n_cells: number of cells; a cell without a machine has measure 1 (eq. 123).
        stacks: the fitted machines, one stack for each distinct size, float64.
    """

    records: Array
    sizes: IntArray
    cells: IntArray
    n_cells: int
    stacks: tuple[Stack, ...]

    @classmethod
    def fit(
        cls,
        batches: Sequence[Array],
        cells: Sequence[int] | IntArray,
        n_cells: int,
        *,
        dtype: type = np.float32,
        regularisation: Regularisation = "absolute",
        factor: float = 1.0,
    ) -> "Bank":
        """One machine per batch.

        Args:
            batches: each of shape (N_i, d), N_i >= 1, finite; N_i may differ.
            cells: the cell of each batch, in [0, n_cells).
            n_cells: number of cells.
            dtype: of the stored records: float32 (half the memory, measures to 1e-5) or float64.
            regularisation: one of `kahm.machine.REGULARISATIONS`.
            factor: on lambda*, above 0.

        Raises:
            InputError: an unknown regularisation, a factor out of range, no batch, an empty batch,
                feature counts that differ, a row that is not
                finite, or a cell out of range.
        """
        return cls.fit_noting(
            batches, cells, n_cells, dtype=dtype, regularisation=regularisation, factor=factor
        )[0]

    @classmethod
    def fit_noting(
        cls,
        batches: Sequence[Array],
        cells: Sequence[int] | IntArray,
        n_cells: int,
        *,
        dtype: type = np.float32,
        regularisation: Regularisation = "absolute",
        factor: float = 1.0,
    ) -> tuple["Bank", NDArray[np.bool_]]:
        """As `fit`, and which batches do not spread, so that their mean alone is stored, (B,)."""
        check_regularisation(regularisation, factor)
        cells = np.asarray(cells, dtype=np.int64)
        if not batches:
            raise InputError("batches: none given, a bank needs at least 1")
        if len(cells) != len(batches):
            raise InputError(f"cells: {len(cells)} given for {len(batches)} batches")
        if cells.min() < 0 or cells.max() >= n_cells:
            raise InputError(
                f"cells: found {cells.min()}..{cells.max()}, expected 0..{n_cells - 1}"
            )
        checked: list[Array] = []
        for i, batch in enumerate(batches):
            n_features = checked[0].shape[1] if checked else None
            matrix = feature_matrix(batch, name=f"batch {i}", n_features=n_features)
            if len(matrix) == 0:
                raise InputError(f"batch {i}: 0 records, a machine needs at least 1")
            checked.append(matrix.astype(dtype, copy=False))
        sizes = np.array([len(batch) for batch in checked])
        stacks: dict[int, Stack] = {}
        for n in np.unique(sizes).tolist():
            members = np.flatnonzero(sizes == n)
            records = np.stack([checked[i] for i in members]).astype(np.float64)
            with one_thread() if n <= SMALL else nullcontext():
                stacks[n], flat = fit_stack(records, regularisation, factor)
            if flat.any():
                for i in members[flat]:
                    checked[i] = checked[i].mean(axis=0, keepdims=True, dtype=np.float64)
                bank, more = cls.fit_noting(
                    checked,
                    cells,
                    n_cells,
                    dtype=dtype,
                    regularisation=regularisation,
                    factor=factor,
                )
                more[members[flat]] = True
                return bank, more
        order = np.argsort(sizes, kind="stable")
        records = np.concatenate([checked[i] for i in order])
        if 1 in stacks:
            floor = least_distance_sq(records, regularisation, factor)
            stacks[1] = replace(stacks[1], floor=np.full(stacks[1].n_machines, floor))
        bank = cls(records, sizes[order], cells[order], n_cells, tuple(stacks.values()))
        return bank, np.zeros(len(sizes), bool)

    @classmethod
    def merge(cls, banks: Sequence["Bank"]) -> "Bank":
        """One bank with the machines of several, none of them fitted again.

        Raises:
            InputError: no bank, or banks that differ in features, cells or stored type.
        """
        if not banks:
            raise InputError("banks: none given, at least 1 is needed")
        kinds = {(bank.n_features, bank.n_cells, bank.records.dtype.name) for bank in banks}
        if len(kinds) > 1:
            raise InputError(f"banks: features, cells and types differ: {sorted(kinds)}")
        parts = [piece for bank in banks for piece in bank._by_size()]
        parts.sort(key=lambda part: part[0])
        stacks = tuple(
            join_stacks([stack for _, stack, _, _ in group])
            for _, group in groupby(parts, key=lambda part: part[0])
        )
        return cls(
            np.concatenate([records for _, _, records, _ in parts]),
            np.concatenate([np.full(len(cells), n) for n, _, _, cells in parts]),
            np.concatenate([cells for _, _, _, cells in parts]),
            banks[0].n_cells,
            stacks,
        )

    def select(self, machines: IntArray) -> "Bank":
        """The bank of the given machines alone, none of them fitted again.

        Args:
            machines: ascending indices, at least one.
        """
        kept = np.zeros(self.n_machines, bool)
        kept[machines] = True
        first, stacks = 0, []
        for stack in self.stacks:
            inside = np.flatnonzero(kept[first : first + stack.n_machines])
            first += stack.n_machines
            if len(inside):
                stacks.append(stack[inside])
        rows = np.repeat(kept, self.sizes)
        return Bank(
            self.records[rows], self.sizes[kept], self.cells[kept], self.n_cells, tuple(stacks)
        )

    def batches(self) -> list[Array]:
        """The records of each machine, in the order of `cells`."""
        return np.split(self.records, np.cumsum(self.sizes)[:-1])

    def _by_size(self) -> Iterator[tuple[int, Stack, Array, IntArray]]:
        """Size, stack, records and cells of the machines of each size."""
        record = machine = 0
        for stack in self.stacks:
            m, rows = stack.n_machines, stack.n_machines * stack.size
            cells = self.cells[machine : machine + m]
            yield stack.size, stack, self.records[record : record + rows], cells
            record, machine = record + rows, machine + m

    @cached_property
    def _origin(self) -> Array | None:
        """What is taken from records and queries before products, or None for nothing."""
        mean: Array = self.records.mean(axis=0, dtype=np.float64)
        flat = self.records.reshape(-1)
        whole = float(np.einsum("i,i->", flat, flat, dtype=np.float64)) / len(self.records)
        share = float(mean @ mean) / whole if 0 < whole < np.inf else 0.0
        near = _NEAR[self.records.dtype]
        return mean if share > near / (1.0 + near) else None

    @cached_property
    def _about(self) -> Array:
        """Records less the origin, in the stored type."""
        if self._origin is None:
            return self.records
        return (self.records - self._origin).astype(self.records.dtype)

    @cached_property
    def _products(self) -> tuple[Products, ...]:
        found, dtype = [], self.records.dtype.type
        for n, stack, records, _ in self._by_size():
            Z = records.reshape(-1, n, self.n_features).astype(np.float64)
            if self._origin is not None:
                Z -= self._origin
            found.append(stack.products(Z, self._origin, dtype))
        return tuple(found)

    @property
    def n_machines(self) -> int:
        """M."""
        return len(self.sizes)

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.records.shape[1])

    @property
    def floors(self) -> Array:
        """Least squared distance of each machine, shape (M,), see `least_distance_sq`."""
        return np.concatenate([stack.floor for stack in self.stacks])

    def measures(self, queries: object, measure: Measure = "folding") -> Array:
        """The smallest measure of each cell (eqs. 121, 123), shape (queries, n_cells), in [0, 1].

        Args:
            queries: shape (q, d), finite.
            measure: one of `kahm.measures.MEASURES`.

        Raises:
            InputError: another feature count than the records', or a row that is not finite.
        """
        order = np.argsort(self.cells, kind="stable")
        present, first = np.unique(self.cells[order], return_index=True)
        found = []
        for chunk in self._chunks(queries, measure):
            result = np.ones((self.n_cells, chunk.shape[1]), chunk.dtype)
            result[present] = np.minimum.reduceat(chunk[order], first, axis=0)
            found.append(result.T)
        return np.concatenate(found)

    def machine_measures(self, queries: object, measure: Measure = "folding") -> Array:
        """The measure of every machine, shape (queries, M); otherwise as `measures`."""
        return np.concatenate(list(self._chunks(queries, measure)), axis=1).T

    def _chunks(self, queries: object, measure: Measure) -> Iterator[Array]:
        """Machine measures of consecutive queries, each of shape (M, at most _CHUNK_QUERIES)."""
        check_measure(measure)
        queries = feature_matrix(queries, name="queries", n_features=self.n_features)
        dtype = self.records.dtype.type
        n_threads = len(os.sched_getaffinity(0))
        blocks = list(self._blocks())
        _ = self._products  # made once, before threads ask for it
        many = len(self.records) * len(queries) >= _LEAST_PRODUCTS
        compiled = import_module("kahm.compiled") if many else None
        with ThreadPoolExecutor(n_threads) as pool:
            workspaces = [self._workspace(dtype) for _ in range(n_threads)]
            for start in range(0, max(len(queries), 1), _CHUNK_QUERIES):
                part = queries[start : start + _CHUNK_QUERIES].astype(dtype, copy=False)
                out = np.empty((self.n_machines, len(part)), dtype)
                z, common = self._shifted(part)
                with one_thread():
                    jobs = [
                        pool.submit(
                            self._run,
                            *(compiled, blocks[i::n_threads], z, part, common, measure, work, out),
                        )
                        for i, work in enumerate(workspaces)
                    ]
                    for job in jobs:
                        job.result()
                yield out

    def _shifted(self, queries: Array) -> tuple[Array, Queries]:
        """Queries less the origin, and what they have in common with every machine."""
        query_sq = np.einsum("qd,qd->q", queries, queries)
        if self._origin is None:
            return queries, Queries(query_sq, query_sq, None)
        dtype = queries.dtype
        z = queries - self._origin  # float64 whatever the queries are
        along = (z @ self._origin).astype(dtype)
        return z.astype(dtype), Queries(np.einsum("qd,qd->q", z, z).astype(dtype), query_sq, along)

    def _workspace(self, dtype: type) -> Workspace:
        largest = max(int(self.sizes[-1]), _BLOCK_VALUES // _CHUNK_QUERIES)
        return Workspace.allocate(2 * (largest + 1) * _CHUNK_QUERIES, dtype)

    def _blocks(self) -> Iterator[tuple[int, int, slice]]:
        """Which stack, which first machine of the bank and which machines of the stack."""
        first = 0
        for i, stack in enumerate(self.stacks):
            step = max(1, _BLOCK_VALUES // (_CHUNK_QUERIES * stack.size))
            for start in range(0, stack.n_machines, step):
                yield i, first + start, slice(start, min(start + step, stack.n_machines))
            first += stack.n_machines

    def _run(
        self,
        compiled: ModuleType | None,
        blocks: Sequence[tuple[int, int, slice]],
        z: Array,
        queries: Array,
        common: Queries,
        measure: Measure,
        work: Workspace,
        out: Array,
    ) -> None:
        """Fills `out` for the given blocks; products stay with a block, so memory does too."""
        doubt = DOUBT[self.records.dtype]
        starts = np.cumsum(self.sizes) - self.sizes
        for i, first, machines in blocks:
            products = self._products[i][machines]
            m, n = products.n_machines, products.size
            rows = slice(starts[first], starts[first] + m * n)
            g = work.products(self._about[rows], z, n)
            loops = compiled if n <= _MOST_RECORDS and common.along is None else None
            evaluate = measure_stack if loops is None else loops.measure_stack
            values, distrusted = evaluate(products, g, common, measure, work, doubt.of_size(n))
            records = self.records[rows].reshape(m, n, -1)
            if compiled is not None:
                # A few of many, which one row tells faster than two coordinates.
                pairs = np.divmod(np.flatnonzero(distrusted), len(z))
                values[pairs] = compiled.measure_from_records(
                    self.stacks[i][machines], records, queries, pairs, measure
                )
            else:
                for js, hits in by_count(distrusted, _BLOCK_VALUES // max(n, self.n_features)):
                    values[js[:, None], hits] = measure_from_records(
                        self.stacks[i][machines.start + js],
                        records[js].astype(np.float64),
                        queries[hits].astype(np.float64),
                        measure,
                    )
            out[first : first + m] = values

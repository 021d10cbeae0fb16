"""The Hessian learning of FedNL (Algorithm 1, lines 4-6 and 10): the clients' side and its sum.

A client keeps its estimate H_i on its own support in `state["hessian"]`; the server keeps the mean
of the estimates as a packed triangle. Should a client drop out after it has updated its estimate,
the two would part for ever; so whenever the survivors of a round are not those whose estimates the
server holds, the server asks the survivors for their estimates anew.
"""

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import (
    Client,
    Cohort,
    Federation,
    SparseArray,
    Stack,
    Tree,
    batched_step,
    broadcastable,
    client_step,
)
from secure_fl.trainers.fednl.cohort import learn_together
from secure_fl.trainers.fednl.compressors import Compressor, learning_rate
from secure_fl.trainers.fednl.low_rank import RankR
from secure_fl.trainers.fednl.problem import (
    LocalProblem,
    LogisticRidge,
    local_problem,
    scratch,
    seen_by,
)
from secure_fl.trainers.fednl.sparsifiers import SharedRandK, TopK
from secure_fl.trainers.fednl.triangles import packed_size

Array = NDArray[Any]

LOCAL, ZERO = "local", "zero"
"""Initial estimates: the local Hessian at x^0, or 0."""


@broadcastable
@dataclass(frozen=True)
class Learning:
    """How Hessians are learned.

    Attributes:
        compressor: of the differences of Hessians.
        rate: alpha, at least 0.
        l_norm: "frobenius", or "spectral" as in the authors' code; of the errors l_i.
        sparse: whether sums take sparse arrays.
    """

    compressor: Compressor
    rate: float
    l_norm: str = "frobenius"
    sparse: bool = True


def takes_sparse(fed: Federation) -> bool:
    """Whether this federation's sums take sparse arrays: neither masked nor clipped."""
    return "clip" not in fed.pipeline


def learning_for(
    fed: Federation,
    d: int,
    compressor: Compressor | None,
    rate: str | float,
    l_norm: str,
) -> Learning:
    """The settings of a run; by default the compressor that the aggregation can sum cheaply.

    Top-K for plain sums and Rand-K from a shared seed under secure aggregation or client-level
    privacy, both with k = 8 d: there positions of a client's own would leak and cannot be summed.

    Raises:
        ValueError: an unknown norm, or a rate that does not fit the compressor.
    """
    if l_norm not in ("frobenius", "spectral"):
        raise ValueError(f'l_norm {l_norm!r}: expected "frobenius" or "spectral"')
    sparse = takes_sparse(fed)
    if compressor is None:
        compressor = (TopK if sparse else SharedRandK)(min(8 * d, packed_size(d)))
    return Learning(compressor, learning_rate(rate, compressor, d), l_norm, sparse)


@client_step
def begin(client: Client, objective: LogisticRidge, learning: Learning, x: Array, how: str) -> Tree:
    """Sets H_i^0 and returns it, as a packed triangle or sparse; 0 returns the number 0."""
    client = seen_by(objective, client)
    local = local_problem(client, learning.compressor.entrywise)
    if how == ZERO:
        client.state["hessian"] = np.zeros(len(local.support.index))
        return np.zeros(1)
    local.evaluate(x, objective.penalty)
    client.state["hessian"] = local.hessian(objective.penalty)
    return packed(local, client.state["hessian"], learning.sparse)


@client_step
def estimate(client: Client, objective: LogisticRidge, learning: Learning) -> Tree:
    """H_i as a packed triangle or sparse."""
    client = seen_by(objective, client)
    local = local_problem(client, learning.compressor.entrywise)
    return packed(local, client.state["hessian"], learning.sparse)


def packed(local: LocalProblem, values: Array, sparse: bool) -> Tree:
    """Values on a client's support as the leaf that a sum can take."""
    if sparse:
        return SparseArray(local.support.index, values, packed_size(local.d))
    return local.support.dense(values)


@client_step
def learn(
    client: Client, objective: LogisticRidge, learning: Learning, x: Array, draw: int
) -> Tree:
    """Lines 4 to 6: loss, l_i and gradient at x in one vector, and S_i; moves H_i by alpha S_i."""
    client = seen_by(objective, client)
    alone = Cohort([client], client.cache)
    found = learn_seen(alone, np.zeros(1, np.int64), objective, learning, x, draw)
    if found is not None:
        return next(found.trees())
    local = local_problem(client, learning.compressor.entrywise)
    # One leaf for all that is dense: every leaf costs the handle a check and a sum.
    slope = np.empty(local.d + 2)
    slope[0], _ = local.evaluate(x, objective.penalty, slope[2:])
    slope[1], message = improve(client, local, objective, learning, draw)
    return {"slope": slope, "difference": message}


@batched_step(learn)
def learn_all(
    cohort: Cohort,
    chosen: NDArray[np.int64],
    objective: LogisticRidge,
    learning: Learning,
    x: Array,
    draw: int,
) -> Stack | None:
    """`learn` for many clients at once, with compressors that have a compiled loop."""
    code = objective.positive
    if code is None:
        return learn_seen(cohort, chosen, objective, learning, x, draw)
    seen = [seen_by(objective, client) for client in cohort.clients]
    key = f"fednl class {code}"
    found = cohort.cache.get(key)
    if found is None or any(map(operator.is_not, found.clients, seen)):
        found = cohort.cache[key] = Cohort(seen)
    return learn_seen(found, chosen, objective, learning, x, draw)


def learn_seen(
    cohort: Cohort,
    chosen: NDArray[np.int64],
    objective: LogisticRidge,
    learning: Learning,
    x: Array,
    draw: int,
) -> Stack | None:
    """`learn_all` for clients that have the objective's targets."""
    spectral = learning.l_norm == "spectral"
    if spectral and not isinstance(learning.compressor, RankR):
        return None
    return learn_together(
        cohort, chosen, objective.penalty, learning.compressor, learning.rate, x, draw,
        sparse=learning.sparse, spectral=spectral,
    )  # fmt: skip


def improve(
    client: Client, local: LocalProblem, objective: LogisticRidge, learning: Learning, draw: int
) -> tuple[float, Tree]:
    """l_i before the update, and S_i; the problem must have been evaluated at the point."""
    from secure_fl.trainers.fednl import kernels

    compressor = learning.compressor
    held = client.state["hessian"]
    values = local.hessian(objective.penalty, scratch(len(held)))
    squared = kernels.subtract(values, held, local.support.diagonal)
    error = float(np.sqrt(max(squared, 0.0)))
    if learning.l_norm == "spectral":
        error = _spectral(local, values)
    if isinstance(compressor, SharedRandK):
        # Everything in one merge of two ascending lists; nothing of the size of the support.
        size = packed_size(local.d)
        places = compressor.places(size, 0, draw)
        sent = np.empty(len(places))
        kernels.take_and_learn(
            local.support.index, values, places, size / len(places), learning.rate, held, sent
        )
        return error, sent
    found = compressor.compress(values, local.support, lambda: client.rng, draw, learning.sparse)
    kernels.add_scaled(held, learning.rate, found.values)
    return error, found.message


def _spectral(local: LocalProblem, values: Array) -> float:
    from secure_fl.trainers.fednl.low_rank import leading_eigenpairs
    from secure_fl.trainers.fednl.triangles import unpack

    largest, _ = leading_eigenpairs(unpack(local.support.dense(values), local.d), 1)
    return float(np.abs(largest[0]))


@dataclass
class Server:
    """What the server does with the sums of Hessian learning.

    Attributes:
        fed: the clients.
        objective: theirs.
        learning: the settings.
        d: number of features.
        members: whose estimates the mean is of.
        bits: sent by a client so far.
    """

    fed: Federation
    objective: LogisticRidge
    learning: Learning
    d: int
    members: tuple[str, ...] = field(default=())
    bits: float = 0.0

    def begin(self, x: Array, how: str) -> Array:
        """Lets every client set H_i^0; returns their mean, a packed triangle.

        Raises:
            ValueError: an unknown way.
        """
        if how not in (LOCAL, ZERO):
            raise ValueError(f"initial Hessian {how!r}: expected {LOCAL!r} or {ZERO!r}")
        total = self.fed.sum(begin, self.objective, self.learning, x, how)
        self.members = self.fed.survivors
        if how == ZERO:
            return np.zeros(packed_size(self.d))
        self.bits += 64.0 * packed_size(self.d)
        return np.asarray(total) / len(self.members)

    def learn(self, x: Array, hessian: Array, draw: int) -> "Learned":
        """One exchange at x: means of loss, gradient and errors, and the next mean estimate."""
        total = self.fed.sum(learn, self.objective, self.learning, x, draw)
        self.bits += 64.0 * (self.d + 1) + self.learning.compressor.matrix_bits(self.d)
        n = len(self.fed.survivors)
        return Learned(
            float(total["slope"][0]) / n,
            total["slope"][2:] / n,
            float(total["slope"][1]) / n,
            self.next(hessian, total["difference"], draw),
        )

    def next(self, hessian: Array, difference: Array, draw: int) -> Array:
        """Line 10: H^{k+1} = H^k + alpha S^k, or the survivors' estimates asked for anew."""
        if self.fed.survivors != self.members:
            return self.ask_again()
        change = self.learning.compressor.expand(difference, self.d, draw)
        return hessian + (self.learning.rate / len(self.members)) * change

    def ask_again(self) -> Array:
        """The mean of the participants' estimates; costs a triangle."""
        total = self.fed.sum(estimate, self.objective, self.learning)
        self.members = self.fed.survivors
        self.bits += 64.0 * packed_size(self.d)
        return np.asarray(total) / len(self.members)


@dataclass(frozen=True)
class Learned:
    """Means over the survivors at x^k, and H^{k+1}.

    Attributes:
        loss: f.
        gradient: shape (d,).
        error: l^k.
        hessian: H^{k+1}, packed.
    """

    loss: float
    gradient: Array
    error: float
    hessian: Array


@client_step
def value(client: Client, objective: LogisticRidge, x: Array) -> Tree:
    """f_i(x)."""
    return local_problem(seen_by(objective, client)).loss(x, objective.penalty)


@client_step
def slope(client: Client, objective: LogisticRidge, x: Array) -> Tree:
    """f_i and its gradient at x."""
    loss, gradient = local_problem(seen_by(objective, client)).evaluate(x, objective.penalty)
    return {"loss": loss, "gradient": gradient}


@client_step
def curve(client: Client, objective: LogisticRidge, sparse: bool, x: Array) -> Tree:
    """f_i, its gradient and its Hessian (a packed triangle) at x."""
    local = local_problem(seen_by(objective, client))
    loss, gradient = local.evaluate(x, objective.penalty)
    hessian = packed(local, local.hessian(objective.penalty), sparse)
    return {"loss": loss, "gradient": gradient, "hessian": hessian}


def mean_value(fed: Federation, objective: LogisticRidge, x: Array) -> float:
    """f(x), the mean over the participants, each weighing the same (eq. 1)."""
    return float(fed.sum(value, objective, x)) / len(fed.survivors)


def mean_slope(fed: Federation, objective: LogisticRidge, x: Array) -> tuple[float, Array]:
    """f and its gradient at x."""
    total = fed.sum(slope, objective, x)
    n = len(fed.survivors)
    return float(total["loss"]) / n, total["gradient"] / n


def mean_curve(fed: Federation, objective: LogisticRidge, x: Array) -> tuple[float, Array, Array]:
    """f, its gradient and its Hessian (packed) at x."""
    total = fed.sum(curve, objective, takes_sparse(fed), x)
    n = len(fed.survivors)
    return float(total["loss"]) / n, total["gradient"] / n, total["hessian"] / n

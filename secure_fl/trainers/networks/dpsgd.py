"""DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1).

Gradients of single records come from opacus. Clipping, noise and their sum are here and in
integers: a step takes every record with a fixed probability, puts each record's clipped gradient on
a grid whose steps add up exactly, adds rounded Gaussian noise, and divides by the expected batch
size. Sample and noise are drawn from a keystream under the client's secret of the operating
system's randomness; torch's generator is never asked.

The gradients themselves are in `record_gradients`: each depends on its record alone, to the bit.
All is computed in one thread: a run that goes on with more of them would send other codes, under
noise of their own, that the ledger takes for the message that it has booked.

Every term of the loss that sees records belongs to one record: FedAvgR's are written below so that
no record's gradient depends on another. What sees none, the proximal term and the trace norm, is
added after the noise.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dp.exact import RandomSource
from dp.rounded_gaussian import RoundedGaussian
from secure_fl.crypto.keys import digest
from secure_fl.federation import Client, Federation, PrivacyError, Tree, client_step
from secure_fl.federation.privacy import GRID_BITS, Codes, Grid
from secure_fl.trainers.networks.augmentation import Copies
from secure_fl.trainers.networks.device import one_torch_thread
from secure_fl.trainers.networks.local import LocalTraining, as_vectors, network_of, records_of
from secure_fl.trainers.networks.models import Array, Model, Network, load, to_tensor
from secure_fl.trainers.networks.record_gradients import (
    AT_ONCE,
    Loss,
    filled,
    group_size,
    mean_gradients,
    placed,
    private_network_of,
)
from secure_fl.trainers.networks.record_privacy import Books, make_plan
from secure_fl.trainers.networks.regularizers import Regularization, trace_norm


@one_torch_thread()
def train_privately(
    client: Client,
    model: Model,
    parameters: Array,
    training: LocalTraining,
    regularization: Regularization | None = None,
    drawn: Array | None = None,
) -> Array:
    """What a round of DP-SGD adds to the parameters; booked before the first noise is drawn.

    Args:
        client: with a ledger.
        model: the network's specification.
        parameters: of the global model, flat.
        training: with a promise; `batch_size` is expected, `epochs` are of 1 / sampling rate steps.
        regularization: FedAvgR's terms; None for FedAvg and FedProx.
        drawn: samples of the released global feature distribution, shape (m, D).

    Raises:
        BudgetError: the ledger's budget would be exceeded; nothing was drawn.
        PrivacyError: no ledger, more rounds than planned, or a layer that mixes records.
    """
    books = Books(client, model, training)
    plan = make_plan(len(client), training, features=drawn is not None)
    network = private_network_of(client, model, training.device)
    at_once = group_size(client, model, training.device)
    X, y = records_of(client, training.device)
    parts = (repr(regularization), np.zeros(0) if drawn is None else drawn)
    request = books.request("steps", np.asarray(parameters, np.float32), *parts)
    books.book("steps", plan, request)
    values, gradients = as_vectors(network, parameters)
    start, velocity = values.clone(), torch.zeros_like(values)
    assert training.privacy is not None
    grid, shifts = Grid(training.privacy.clip, 1 << GRID_BITS), training.privacy.shifts
    expected = plan.steps.sample_rate * len(client)
    loss = _loss(client, network, regularization, drawn, expected)
    empty = 0
    for step in range(plan.steps.steps):
        chosen = poisson_sample(
            len(client), plan.steps.sample_rate, books.stream(request, b"sample %d" % step)
        )
        empty += len(chosen) == 0
        copies = None
        if shifts is not None:
            source = books.stream(request, b"shifts %d" % step)
            copies = Copies(shifts, shifts.moves(len(client), source))
        codes = clipped_sum(network, X, y, chosen, loss, grid, at_once=at_once, copies=copies)
        noise = books.stream(request, b"noise %d" % step, digest(codes.tobytes()))
        noised = grid.values(codes + drawn_noise(plan.steps.noise_multiplier, codes, noise))
        gradients.copy_(torch.from_numpy(noised / expected))
        if regularization is not None and regularization.trace:
            _add_trace(network, regularization.trace)
        if training.proximal:
            gradients.add_(values - start, alpha=training.proximal)
        velocity.mul_(training.momentum).add_(gradients)
        values.sub_(velocity, alpha=training.learning_rate)
    # How many batches were empty says who was not sampled: it stays here.
    counted = np.array([plan.steps.steps, empty], dtype=np.int64)
    client.state["dpsgd.steps"] = client.state.get("dpsgd.steps", np.zeros(2, np.int64)) + counted
    change: Array = (values - start).cpu().numpy()
    return change


@client_step
def room_in_the_books(
    client: Client, model: Model, training: LocalTraining, features: bool
) -> Tree:
    """Checks the whole plan against the client's budget; spends and tells nothing."""
    Books(client, model, training).check(make_plan(len(client), training, features=features))
    return np.zeros(())


@client_step
@one_torch_thread()
def private_feature_sums(
    client: Client, model: Model, parameters: Array, training: LocalTraining
) -> Tree:
    """Number of records, and the noised sum of their features clipped to `feature_norm`.

    The client keeps the mean that it released; FedAvgR's MMD term is written with it.
    """
    books = Books(client, model, training)
    plan = make_plan(len(client), training, features=True)
    assert training.privacy is not None
    request = books.request("features", np.asarray(parameters, np.float32))
    books.book("features", plan, request)
    at_once = group_size(client, model, training.device)
    network = network_of(client, model, training.device)
    load(network, parameters)
    X, _ = records_of(client, training.device)
    grid = Grid(training.privacy.feature_norm, 1 << GRID_BITS)
    codes = _feature_sum(network, X, grid, at_once)
    noise = books.stream(request, b"noise", digest(codes.tobytes()))
    total = grid.values(codes + drawn_noise(plan.event("features").noise_multiplier, codes, noise))
    client.state["dpsgd.features"] = total / len(client)
    return {"count": float(len(client)), "sum": total}


def _feature_sum(network: Network, X: Tensor, grid: Grid, at_once: int) -> Codes:
    """Sum of all records' clipped features, in groups of one shape as gradients are."""
    with torch.no_grad():
        total: Codes = sum(
            (
                _placed_sum(network.features(X[filled(part, at_once)]), len(part), grid)
                for part in torch.split(torch.arange(len(X), device=X.device), at_once)
            ),
            start=np.zeros((), np.int64),
        )
    return total


def poisson_sample(records: int, rate: float, source: RandomSource) -> Array:
    """Indices of a Poisson sample: every record by itself, with probability at most `rate`.

    It is `rate` rounded down to 64 bits, never above what is booked.
    """
    if rate >= 1:
        return np.arange(records)
    words = np.frombuffer(source(8 * records), dtype="<u8")
    return np.flatnonzero(words < np.uint64(int(Fraction(rate) * 2**64)))


def clipped_sum(
    network: Network,
    X: Tensor,
    y: Tensor,
    chosen: Array,
    loss: Loss,
    grid: Grid,
    *,
    at_once: int = AT_ONCE,
    copies: Copies | None = None,
) -> Codes:
    """Sum of the chosen records' gradients, each of L2 norm at most the clip, in grid steps.

    A gradient that is not finite counts as zero: one record must not decide whether the client's
    update is refused.

    Args:
        network: from `private_network_of`.
        X: features of all records, shape (n, d).
        y: their classes, shape (n,).
        chosen: indices of a batch; may be empty.
        loss: sum of the records' losses.
        grid: of clip and steps.
        at_once: rows of every group; see `group_size`.
        copies: whose mean gradient is a record's; None for the record itself.
    """
    own = list(network.parameters())
    total: Codes = np.zeros(sum(p.numel() for p in own), dtype=np.int64)
    for part in torch.split(torch.from_numpy(chosen).to(X.device), at_once):
        if len(part):
            rows = filled(part, at_once)
            views = [X[rows]] if copies is None else copies.of(X, rows)
            found = mean_gradients(network, views, y[rows], loss)
            total += _placed_sum(found, len(part), grid)
    return total


@lru_cache(maxsize=64)
def _noise(multiplier: float) -> RoundedGaussian:
    return RoundedGaussian(Fraction(multiplier) * (1 << GRID_BITS))


def drawn_noise(multiplier: float, codes: Codes, source: RandomSource) -> Codes:
    """Rounded Gaussian noise of that multiplier of the clip, in grid steps, one for each code."""
    return _noise(multiplier).draw(len(codes), source)


def _placed_sum(rows: Tensor, count: int, grid: Grid) -> Codes:
    """Of the first `count` rows; the others are there for the shape."""
    # Sums of whole numbers below 2^53 are exact in double precision.
    total: Codes = placed(rows, grid)[:count].sum(dim=0).cpu().numpy().astype(np.int64)
    return total


def _loss(
    client: Client,
    network: Network,
    regularization: Regularization | None,
    drawn: Array | None,
    expected: float,
) -> Loss:
    """Cross-entropy and FedAvgR's terms as sums over records.

    - Frobenius norm of a batch of B rows: sqrt(B) times the mean length of a row, which it equals
      where all rows are equally long, and exceeds elsewhere. B is the expected batch size.
    - Squared MMD: its first-order part 2 <phi_i - mu, mu - m> around the mean mu that the client
      released at the start of the round, up to a constant; m is the mean of `drawn`.
    """
    features = 0.0 if regularization is None else regularization.features * expected**0.5
    push = None
    if regularization is not None and regularization.mmd and drawn is not None:
        device = network.head.weight.device
        own = to_tensor(client.state["dpsgd.features"], device)
        push = 2 * regularization.mmd * (own - to_tensor(drawn, device).mean(0))

    def loss(phi: Tensor, y: Tensor) -> Tensor:
        total = cross_entropy(network.head(phi), y, reduction="sum")
        if features:
            total = total + features * torch.linalg.vector_norm(phi, dim=1).sum()
        if push is not None:
            total = total + (phi @ push).sum()
        return total

    return loss


def _add_trace(network: Network, alpha: float) -> None:
    weight = network.head.weight
    (subgradient,) = torch.autograd.grad(trace_norm(weight), weight)
    assert weight.grad is not None
    weight.grad.add_(subgradient, alpha=alpha)


def check_handle(
    fed: Federation, model: Model, training: LocalTraining, rounds: int, *, features: bool
) -> None:
    """Refuses a private run before its first step where it could not be finished.

    Asks this round's clients whether their books have room for all planned rounds; who takes part
    later is asked by its own ledger then.

    Args:
        fed: without client-level privacy.
        model: that is trained.
        training: with a promise.
        rounds: of the run.
        features: whether features' means are released.

    Raises:
        PrivacyError: more rounds than promised, or client-level privacy too.
        StepError: a client's budget has no room, or it has no ledger.
    """
    assert training.privacy is not None
    if rounds > training.privacy.rounds:
        raise PrivacyError(
            f"rounds: {rounds} asked for, {training.privacy.rounds} promised; set DPSGD.rounds"
        )
    if fed.clip is not None:
        raise PrivacyError(
            "privacy: client-level noise hides a client with all its records; leave out one of"
            " ClientPrivacy and LocalTraining.privacy"
        )
    fed.sum(room_in_the_books, model, training, features)

"""FedRCO (fedrco.txt, section 4): K-FAC steps at the clients, watched and rolled back.

`personal=False` is the paper's FedRCO-ori (plain averaging). LocalNewton is that with
`monitor=None` and `Curvature(persistent=False)`.
"""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, Federation, PrivacyError, Tree, broadcastable, client_step
from secure_fl.trainers.networks.fedavg import NetworkState
from secure_fl.trainers.networks.kfac import Curvature, Preconditioner, Recorder, apply
from secure_fl.trainers.networks.local import LocalTraining, batches, network_of, records_of
from secure_fl.trainers.networks.models import (
    Array,
    Model,
    Network,
    correct,
    flatten,
    load,
    predictions,
)
from secure_fl.trainers.networks.monitor import Monitor, Thresholds, Verdict
from secure_fl.trainers.networks.trajectory import Recording

log = logging.getLogger(__name__)

OWN_MODEL = "rco.model"
"""Of a client's state: the parameters that stay with it."""


@broadcastable
@dataclass(frozen=True)
class SecondOrder:
    """The client's part of FedRCO.

    Attributes:
        training: learning rate, mini-batches a round and their size (E.3); momentum and the
            proximal term must be 0: they are first-order; no record-level privacy.
        curvature: factors, damping, lazy inverse.
        monitor: thresholds; None applies every step as it is.
        personal: keep a personal model by (12, 13); otherwise start from the global one.
        judged: records of the client, drawn anew every round, on which (12) compares the
            accuracies; all where it has fewer. The paper does not say on which.
        held_out: share of its records that a client never trains on and judges by, in [0, 1); 0
            judges by training records, on which the own model looks better than it is.
    """

    training: LocalTraining
    curvature: Curvature = field(default_factory=Curvature)
    monitor: Thresholds | None = field(default_factory=Thresholds)
    personal: bool = True
    judged: int = 500
    held_out: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise ValueError(f"FedRCO: found {self.held_out} held out, expected it in [0, 1)")
        if self.judged < 1:
            raise ValueError(f"FedRCO: found {self.judged} judged records, expected at least 1")
        if self.training.momentum or self.training.proximal:
            raise ValueError("FedRCO: momentum and proximal must be 0; its steps are second-order")
        if self.training.privacy is not None:
            raise PrivacyError(
                "FedRCO: no record-level privacy; factors, monitor and personal models are made of"
                " single records' inputs and gradients, and noise on matrices of that size would"
                " drown them. Take client-level privacy (Federation.privacy), or FedAvgR"
            )


@client_step
def second_order_change(
    client: Client, model: Model, parameters: Array, options: SecondOrder
) -> Tree:
    """What K-FAC steps from the client's starting point add to the global parameters."""
    began = time.perf_counter()
    device = options.training.device
    network = network_of(client, model, device)
    recorder = Recorder(network)
    try:
        load(network, _starting_point(client, network, parameters, options))
        preconditioner = Preconditioner(options.curvature)
        if options.curvature.persistent:
            preconditioner.load(client.state, len(recorder.layers), device)
        monitor = _restored_monitor(client, options)
        _descend(client, network, recorder, preconditioner, monitor, parameters, options)
        trained = flatten(network)
        _remember(client, preconditioner, monitor, trained, options)
    finally:
        recorder.close()
    spend(client, preconditioner.inverting, time.perf_counter() - began)
    return trained - np.asarray(parameters, dtype=np.float32)


@client_step
def events(client: Client) -> Tree:
    """Rollbacks and resets of the client so far, and its inversions."""
    found = client.state.get("rco.events", np.zeros(3))
    return {"rollbacks": found[0], "resets": found[1], "inversions": found[2]}


def personal_model(client: Client) -> Array | None:
    """The client's own parameters, shape (P,); None where it keeps none. They stay with it."""
    found: Array | None = client.state.get(OWN_MODEL)
    return found


def spend(client: Client, inverting: float, training: float) -> None:
    """Adds a round's seconds to the client's; they are no part of its state."""
    before = client.cache.get("seconds", np.zeros(2))
    client.cache["seconds"] = before + np.array([inverting, training])


@client_step
def seconds(client: Client) -> Tree:
    """Seconds that the client spent in inversions, and in its training in all, in this process."""
    inverting, training = client.cache.get("seconds", np.zeros(2))
    return {"inverting": inverting, "training": training}


@client_step
def personal_accuracy(client: Client, model: Model, parameters: Array, X: Array, y: Array) -> Tree:
    """Test accuracies of the client's own model, and of the global one, in [0, 1].

    The own model is the global one before the client's first round, and where none is kept.

    Args:
        client: whose model is tested.
        model: the network.
        parameters: of the global model.
        X: test features, shape (n, d).
        y: test class codes, shape (n,).

    Returns:
        "personal" on all test records; "personal_mix" and "global_mix" on test records weighted
        to the client's own mix of classes.
    """
    network = network_of(client, model, "cpu")
    share = np.bincount(client.targets.astype(np.int64), minlength=model.classes) / len(client)
    weights = (share / np.maximum(np.bincount(y, minlength=model.classes), 1))[y]
    load(network, parameters)
    shared = own = predictions(network, X) == y
    kept = personal_model(client)
    if kept is not None:
        load(network, kept)
        own = predictions(network, X) == y
    total = max(float(weights.sum()), 1e-12)
    return {
        "personal": float(own.mean()),
        "personal_mix": float(weights @ own) / total,
        "global_mix": float(weights @ shared) / total,
    }


def fedrco(
    fed: Federation,
    model: Model,
    *,
    start: NetworkState,
    rounds: int,
    options: SecondOrder,
) -> Iterator[NetworkState]:
    """Runs FedRCO and yields the state after every round; one mean a round.

    Factors, history and personal models stay with the clients, in their state. `fed.sum(events)`
    counts rollbacks and resets, `personal_accuracy` measures the personal models.

    Args:
        fed: the participating clients; the server sees only means over them.
        model: layers must be Linear or Conv2d with a bias.
        start: initial parameters or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        options: the client's part.

    Raises:
        QuorumError: fewer clients survived a round than the threshold.
    """
    state = start
    while state.round < rounds:
        change = fed.mean(second_order_change, model, state.parameters, options)
        state = NetworkState(state.parameters + change, state.round + 1)
        yield state


def interpolated(own: Array, shared: Array, own_accuracy: float, shared_accuracy: float) -> Array:
    """Curvature-preserving aggregation (12) with the weight of (13)."""
    if own_accuracy <= shared_accuracy:
        return shared
    gamma = shared_accuracy / (shared_accuracy + own_accuracy)
    mixed: Array = (gamma * shared + (1 - gamma) * own).astype(np.float32)
    return mixed


def _starting_point(
    client: Client, network: Network, parameters: Array, options: SecondOrder
) -> Array:
    own = personal_model(client)
    if not options.personal or own is None:
        return parameters
    _, judges = _divided(client, options.held_out)
    rows = client.rng.permutation(judges)[: options.judged]
    rates = []
    for each in (own, parameters):
        load(network, each)
        rates.append(correct(network, client.features[rows], client.targets[rows]) / len(rows))
    return interpolated(own, parameters, rates[0], rates[1])


def _divided(client: Client, held_out: float) -> tuple[Array, Array]:
    """Rows that the client trains on, and those that it judges by; the same in every round."""
    everything = np.arange(len(client))
    if held_out == 0 or len(client) < 2:
        return everything, everything
    held = client.state.get("rco.held")
    if held is None:
        count = min(max(round(held_out * len(client)), 1), len(client) - 1)
        held = client.state["rco.held"] = np.sort(client.rng.permutation(len(client))[:count])
    return np.setdiff1d(everything, held), held


def _descend(
    client: Client,
    network: Network,
    recorder: Recorder,
    preconditioner: Preconditioner,
    monitor: Monitor | None,
    parameters: Array,
    options: SecondOrder,
) -> None:
    """The mini-batches of a round (5), each step judged before it is applied (11)."""
    device = options.training.device
    X, targets = records_of(client, device)
    if options.held_out:
        kept = torch.from_numpy(_divided(client, options.held_out)[0]).to(X.device)
        X, targets = X[kept], targets[kept]
    recording = Recording(client)
    for x, y in batches(X, targets, options.training, client.rng):
        network.zero_grad()
        cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
        preconditioner.update(recorder.statistics())
        steps = preconditioner.natural_gradient(recorder.layers)
        # Not a number where a factor is singular or a record is not finite. Without a monitor the
        # update is not a number either, and the handle refuses it.
        norm, bound, norms = math.nan, 1.0, list[float]()
        verdict: Verdict = "step"
        if monitor is not None or recording.rows is not None:
            norms = [float(torch.linalg.vector_norm(s)) for s in steps]
            norm = math.fsum(norms) if monitor is None else monitor.norm(norms)
        if monitor is not None:
            verdict = monitor.judge(norm)
        if verdict == "rollback" and monitor is not None:
            bound = min(1.0, monitor.thresholds.stable / norm)
            steps = [bound * s for s in steps]
        if verdict != "reset":
            apply(recorder.layers, steps, options.training.learning_rate)
            finite = all(bool(p.isfinite().all()) for p in network.parameters())
            if not finite and monitor is not None:
                monitor.reset()
                verdict = "reset"
        if verdict == "reset":
            preconditioner.reset()
            load(network, parameters)
        applied = 0.0 if verdict == "reset" else bound * norm
        recording.add(recorder.layers, norms, norm, applied, verdict)
        if verdict != "step":
            log.warning(
                'client "%s": %s at a preconditioned norm of %g', client.name, verdict, norm
            )
    recording.keep()


def _restored_monitor(client: Client, options: SecondOrder) -> Monitor | None:
    if options.monitor is None:
        return None
    monitor = Monitor(options.monitor, client.state.get("rco.history", np.zeros(0)).tolist())
    monitor.in_a_row = int(client.state.get("rco.in_a_row", np.zeros(1))[0])
    return monitor


def _remember(
    client: Client,
    preconditioner: Preconditioner,
    monitor: Monitor | None,
    trained: Array,
    options: SecondOrder,
) -> None:
    for key in [k for k in client.state if k.startswith("kfac.")]:
        del client.state[key]
    if options.curvature.persistent:
        client.state.update(preconditioner.save())
    counted = np.array([0.0, 0.0, float(preconditioner.inversions)])
    if monitor is not None:
        client.state["rco.history"] = np.array(monitor.history)
        client.state["rco.in_a_row"] = np.array([monitor.in_a_row])
        counted[:2] = monitor.rollbacks, monitor.resets
    client.state["rco.events"] = client.state.get("rco.events", np.zeros(3)) + counted
    if options.personal and np.isfinite(trained).all():
        client.state[OWN_MODEL] = trained

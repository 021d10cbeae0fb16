"""FedPM (Ishii et al. 2025, arXiv 2511.09100): second-order steps, mixed with preconditioners.

The global second-order step (sum_i P_i)^-1 sum_i g_i, with client i's preconditioner P_i and
gradient g_i, is split: a client descends by P_i^-1, and the server mixes what comes back by

    W = W_0 + (sum_i P_i)^-1 sum_i P_i (W_i - W_0).

A sum of Kronecker products is not one, so P_i keeps the input factor Omega_i + damping I of every
layer alone, as FOOF does (Benzing 2022). It is computed once a round, at the global model, on as
many records as the round trains on. Both sums are sums over the clients: the server sees no more.
"""

import math
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, Federation, PrivacyError, Tree, client_step
from secure_fl.trainers.networks.fedavg import NetworkState
from secure_fl.trainers.networks.fedrco import spend
from secure_fl.trainers.networks.kfac import Recorder, apply, gradient_of, inverse, matrix_of
from secure_fl.trainers.networks.local import LocalTraining, batches, network_of, records_of
from secure_fl.trainers.networks.models import Array, Model, load


@client_step
def preconditioned_change(
    client: Client, model: Model, parameters: Array, training: LocalTraining, damping: float
) -> Tree:
    """P_i of every layer, and the layer's change times it, shape (out, in + 1).

    Not a number where a factor is singular or a record is not finite; the handle refuses that.
    """
    began = time.perf_counter()
    network = network_of(client, model, training.device)
    recorder = Recorder(network)
    try:
        load(network, parameters)
        drawn = list(batches(*records_of(client, training.device), training, client.rng))
        network(torch.cat([x for x, _ in drawn]))
        factors = recorder.input_moments()
        inverting = time.perf_counter()
        inverses = [inverse(factor, damping) for factor in factors]
        inverting = time.perf_counter() - inverting
        before = [matrix_of(layer) for layer in recorder.layers]
        for x, y in drawn:
            network.zero_grad()
            cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]  # torch leaves backward untyped
            steps = [
                gradient_of(layer) @ each
                for layer, each in zip(recorder.layers, inverses, strict=True)
            ]
            apply(recorder.layers, steps, training.learning_rate)
        changes = [
            matrix_of(layer) - old for layer, old in zip(recorder.layers, before, strict=True)
        ]
    finally:
        recorder.close()
    spend(client, inverting, time.perf_counter() - began)
    damped = [factor + damping * torch.eye(len(factor), device=factor.device) for factor in factors]
    return {
        "preconditioners": tuple(each.cpu().numpy() for each in damped),
        "changes": tuple((c @ p).cpu().numpy() for c, p in zip(changes, damped, strict=True)),
    }


def fedpm(
    fed: Federation,
    model: Model,
    *,
    start: NetworkState,
    rounds: int,
    training: LocalTraining,
    damping: float = 0.03,
) -> Iterator[NetworkState]:
    """Runs FedPM and yields the state after every round; one mean a round.

    Args:
        fed: the participating clients; the server sees only means over them.
        model: layers must be Linear or Conv2d with a bias.
        start: initial parameters or a state to resume from; not yielded.
        rounds: rounds in all, those of `start` included, >= 0.
        training: learning rate, mini-batches a round and their size; without momentum and
            proximal term, which are first-order.
        damping: added to the diagonal of every factor, above 0; 0.03 as in fedrco.txt, E.3.

    Raises:
        ValueError: damping, momentum or proximal weight out of range.
        PrivacyError: record-level or client-level privacy.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if not (math.isfinite(damping) and damping > 0):
        raise ValueError(f"FedPM: damping is {damping}; give a number above 0")
    if training.momentum or training.proximal:
        raise ValueError("FedPM: momentum and proximal must be 0; its steps are second-order")
    if training.privacy is not None:
        raise PrivacyError(
            "FedPM: no record-level privacy; factors are moments of single records' inputs. Take"
            " FedAvgR"
        )
    if fed.clip is not None:
        raise PrivacyError(
            "FedPM: no client-level privacy; noise on the summed factors would leave them not"
            " positive definite. Take FedRCO, or FedAvg"
        )
    state = start
    while state.round < rounds:
        mean = fed.mean(preconditioned_change, model, state.parameters, training, damping)
        parts = []
        for factor, change in zip(mean["preconditioners"], mean["changes"], strict=True):
            mixed = np.linalg.solve(factor.astype(np.float64), change.astype(np.float64).T).T
            parts += [mixed[:, :-1].ravel(), mixed[:, -1]]
        step = np.concatenate(parts).astype(np.float32)
        state = NetworkState(state.parameters + step, state.round + 1)
        yield state

"""One run of a method of the FedRCO benchmarks. Imports torch: import this module late."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks._fedrco import (
    ABLATIONS,
    ALONE,
    EVERY,
    INTERVAL,
    STEPS,
    TESTED,
    WARM_UP,
    Task,
    parts_of,
    split_of,
)
from benchmarks._fedrco_curves import Curve, Triple, finite, triple
from benchmarks._fedrco_kept import Keep
from benchmarks._kept import Described
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, FixedProbability, QuorumError, checkpoint
from secure_fl.trainers.linear.server import Adam, Momentum
from secure_fl.trainers.networks import (
    ConvNet,
    LocalTraining,
    Model,
    NetworkState,
    Perceptron,
    SecondOrder,
    Thresholds,
    accuracy,
    events,
    fedavg,
    fedpm,
    fedrco,
    fine_tuned,
    keep_trajectory,
    local_only,
    personal_accuracy,
    seconds,
    trajectory,
)
from secure_fl.trainers.networks.kfac import Curvature

MODELS: dict[str, Model] = {
    "mnist": ConvNet(10, (1, 28, 28)),
    "cifar10": Perceptron(10, 1280, (64,)),
    "digits": Perceptron(10, 64, (32,)),
}
"""The paper's network for images, a small perceptron for features, by data."""


@dataclass
class Course:
    """What a run found so far; it is kept with the federation's checkpoint.

    Attributes:
        shared: see `Curve`.
        seconds: see `Curve`.
        own: see `Curve`; the round is text.
        down: bytes to the clients.
        up: bytes from them.
        turns: see `Curve`.
        refused: see `Curve`.
    """

    shared: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    own: dict[str, Triple] = field(default_factory=dict)
    down: int = 0
    up: int = 0
    turns: int = 0
    refused: bool = False

    def add(self, fed: Federation, percent: float, spent: float) -> None:
        """Takes in a round, before anything is measured in it and before it is closed."""
        traffic = fed.meter.of_round()
        self.shared.append(percent)
        self.seconds.append((self.seconds[-1] if self.seconds else 0.0) + spent)
        self.down += traffic.bytes_down
        self.up += traffic.bytes_up
        self.turns += len(fed.participants)


def run(task: Task, keep: Keep | None) -> Curve:
    """See `measured` of `benchmarks._fedrco`."""
    torch.set_num_threads(1)
    with _quiet():
        return _run(task, keep)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a line a rollback and a refused update: a rate too large has thousands of them.

    The tables count rollbacks, and say where a run ended because all updates were refused.
    """
    logger = logging.getLogger("secure_fl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _run(task: Task, keep: Keep | None) -> Curve:
    described = {"task": _named(task), "settings": _settings(task)}
    found = None if keep is None else keep.curve(described)
    if found is not None:
        return found
    members = [
        Client(each.name, each.features, each.targets)
        for each in parts_of(task.data, task.partition, task.clients, task.seed)
    ]
    for client in members if task.traced else ():
        keep_trajectory(client)
    fed = Federation(members, seed=task.seed, participation=FixedProbability(task.participation))
    state, course, path = _begun(task, fed, members, described, keep)
    state = _rounds(task, fed, members, state, course, keep, path)
    finished = len(course.shared) == task.rounds
    tuned = None
    if task.method == "FedAvg" and not task.trial and finished:
        model = MODELS[task.data]
        fine_tuned(fed, model, state.parameters, _local(task))
        tuned = _own(fed.gather(personal_accuracy, model, state.parameters, *_judges(task)))
    curve = _curve(course, members, tuned)
    if keep is not None and (finished or course.refused):
        keep.finish(described, curve)
        if task.trial:
            keep.checkpoint(described).unlink(missing_ok=True)
    return curve


def _begun(
    task: Task, fed: Federation, members: list[Client], described: Described, keep: Keep | None
) -> tuple[NetworkState, Course, Path | None]:
    """Where a run begins or goes on, and its checkpoint; None where it is to have none."""
    start = NetworkState(MODELS[task.data].initial(np.random.default_rng(task.seed)))
    if keep is None:
        return start, Course(), None
    path = keep.checkpoint(described)
    if path.exists():
        course, spent = _kept_course(path)
        done = len(course.shared)
        # At the very end the own models must have been measured, which needs that round's clients.
        if done > task.rounds or (done == task.rounds and str(done) not in course.own):
            return start, Course(), None
        for client in members:
            client.cache["seconds"] = np.array(spent[client.name])
    found = fed.resume(path, method=task.method, settings=described["settings"])
    return (start, Course(), path) if found is None else (found["state"], course, path)


def _kept_course(path: Path) -> tuple[Course, dict[str, list[float]]]:
    """What a run had found at its checkpoint, and every client's seconds.

    Raises:
        InputError, FederationError, fhe.errors.FormatError: it is no checkpoint of a benchmark.
    """
    try:
        kept = json.loads(checkpoint.load(path).state["course"])
        return Course(**kept["course"]), kept["spent"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{path}: not a checkpoint of a benchmark ({type(error).__name__}); delete it, and the"
            " run begins anew"
        ) from error


def _rounds(
    task: Task,
    fed: Federation,
    members: list[Client],
    state: NetworkState,
    course: Course,
    keep: Keep | None,
    path: Path | None,
) -> NetworkState:
    """Trains to the task's last round, or as far as the updates and the time go."""
    model, test = MODELS[task.data], _judges(task)
    states = _trainer(task, model, state)(fed)
    clock = time.process_time if task.device == "cpu" else time.perf_counter
    kept, unsaved = time.monotonic(), False
    while state.round < task.rounds and not (keep is not None and keep.late):
        while not fed.participants:  # a round in which nobody takes part is none
            fed.close_round()
        began = clock()
        try:
            state = next(states)
        except QuorumError:
            course.refused = True
            break
        spent = clock() - began
        course.add(fed, 100 * accuracy(model, state.parameters, *test), spent)
        last = state.round == task.rounds
        if (last and task.method == ALONE) or (
            not task.trial and (last or not state.round % EVERY)
        ):
            found = fed.gather(personal_accuracy, model, state.parameters, *test)
            course.own[str(state.round)] = _own(found)
        fed.close_round()
        unsaved = path is not None
        if keep is not None and path is not None and time.monotonic() - kept >= keep.every:
            _save(path, fed, members, state, course)
            kept, unsaved = time.monotonic(), False
    if path is not None and unsaved and not course.refused:
        _save(path, fed, members, state, course)
    return state


def _save(
    path: Path, fed: Federation, members: list[Client], state: NetworkState, course: Course
) -> None:
    """Checkpoint and course in one file: neither is ahead of the other."""
    spent = {each.name: each.cache.get("seconds", np.zeros(2)).tolist() for each in members}
    content = {"state": state, "course": json.dumps({"course": asdict(course), "spent": spent})}
    checkpoint.save(path, fed.snapshot(content))


def _curve(course: Course, members: list[Client], tuned: Triple | None) -> Curve:
    everyone = Federation(members)
    counted, times = everyone.sum(events), everyone.sum(seconds)
    rollbacks, resets, inversions = (
        int(counted[key]) for key in ("rollbacks", "resets", "inversions")
    )
    turns = max(course.turns, 1)
    return Curve(
        course.shared,
        course.seconds,
        {int(number): triple(found) for number, found in course.own.items()},
        (rollbacks, resets, inversions),
        100 * float(times["inverting"]) / max(float(times["training"]), 1e-9),
        tuned,
        (course.down / turns, course.up / turns),
        course.turns,
        course.refused,
        {c.name: finite(trajectory(c).tolist()) for c in members if len(trajectory(c))},
    )


def _judges(task: Task) -> tuple[Any, Any]:
    data = split_of(task.data)
    X, y = (data.X_train, data.y_train) if task.trial else (data.X_test, data.y_test)
    return X[:TESTED], y[:TESTED]


def _own(found: list[Any]) -> Triple:
    personal, mix, shared = (
        100 * float(np.mean([each[key] for each in found]))
        for key in ("personal", "personal_mix", "global_mix")
    )
    return personal, mix, shared


# --------------------------------------------------------------------------------------- methods

Trainer: TypeAlias = Callable[[Federation], Iterator[NetworkState]]

CURVED: dict[str, dict[str, Any]] = {
    "LocalNewton": {"monitor": False, "personal": False, "persistent": False},
    "FedRCO-ori": {"personal": False},
    "FedRCO": {},
    **ABLATIONS,
}
"""What is FedRCO's but for these options."""


def _named(task: Task) -> dict[str, Any]:
    """The task without what is its default: a choice that is new leaves names as they are."""
    told = {"data": task.data}
    return told | {
        each.name: value
        for each in fields(task)
        if (value := getattr(task, each.name)) != each.default
    }


def _settings(task: Task) -> dict[str, str]:
    """What else decides about a run's figures, beside its task and its records."""
    parts: dict[str, Any] = {"model": MODELS[task.data], "training": _local(task)}
    if task.method in CURVED:
        parts |= _curved(task).__dict__ | {"training": _local(task)}
    flat = {"network": type(parts["model"]).__name__, "tested": str(TESTED), "every": str(EVERY)}
    for name, part in parts.items():
        values = asdict(part) if is_dataclass(part) and not isinstance(part, type) else {"": part}
        flat |= {f"{name}.{key}".rstrip("."): repr(value) for key, value in values.items()}
    return flat


def _local(task: Task) -> LocalTraining:
    """A client's part of a round."""
    rate = 0.1 if task.method == "FedAdam" else task.rate
    return LocalTraining(rate, steps=STEPS, batch_size=32, device=task.device)


def _curved(task: Task) -> SecondOrder:
    own = CURVED[task.method]
    curvature = Curvature(
        interval=own.get("interval", INTERVAL),
        persistent=own.get("persistent", True),
        warm_up=WARM_UP if task.warm_up else (),
    )
    return SecondOrder(
        _local(task),
        curvature,
        Thresholds(joint=own.get("joint", False)) if own.get("monitor", True) else None,
        own.get("personal", True),
        held_out=own.get("held_out", 0.0),
    )


def _trainer(task: Task, model: Model, start: NetworkState) -> Trainer:
    common: dict[str, Any] = {"start": start, "rounds": task.rounds}
    local = _local(task)

    def averaging(training: LocalTraining = local, server: Any = None) -> Trainer:
        return lambda fed: fedavg(fed, model, training=training, server=server, **common)

    if task.method in CURVED:
        return lambda fed: fedrco(fed, model, options=_curved(task), **common)
    trainers: dict[str, Callable[[], Trainer]] = {
        "FedAvg": averaging,
        "FedAvgM": lambda: averaging(server=Momentum(0.9)),
        "FedAdam": lambda: averaging(server=Adam(task.rate)),
        "FedProx": lambda: averaging(replace(local, proximal=0.01)),
        ALONE: lambda: lambda fed: local_only(fed, model, training=local, **common),
        "FedPM": lambda: lambda fed: fedpm(fed, model, training=local, **common),
    }
    return trainers[task.method]()

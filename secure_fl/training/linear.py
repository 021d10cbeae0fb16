"""Clients' data sets in, a linear model out: what a method of linear models leaves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Checkpoints and nodes name records and steps of these: all are registered before one is read.
import secure_fl.trainers.fednl.one_against_rest
import secure_fl.trainers.linear  # noqa: F401  # as above
from secure_fl.data import Dataset, Scale, TargetSet, scaled_features
from secure_fl.errors import InputError
from secure_fl.federation import Client, ClientPrivacy, Federation
from secure_fl.federation.divergence import Excess
from secure_fl.objectives import Objective, RandomFourierFeatures, with_constant
from secure_fl.objectives.regression import RegressionLoss, r_squared, rmse
from secure_fl.privacy.promises import RecordPrivacy
from secure_fl.trainers.linear._client import local_value
from secure_fl.trainers.linear_settings import LinearRun, LinearSettings
from secure_fl.training.fitted import FittedModel, FittedRegression
from secure_fl.training.linear_model import LinearModel, RegressionModel, mapped
from secure_fl.training.loop import LARGEST_RATIO, federation_of, files_room, last_state, traffic_of
from secure_fl.training.model_files import schema_of_clients
from secure_fl.training.settling import settled


def train_linear_model(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    settings: LinearSettings,
    *,
    secure: bool = False,
    seed: int = 0,
    scale: Scale = 1.0,
    test: Dataset | TargetSet | None = None,
    privacy: ClientPrivacy | RecordPrivacy | None = None,
    checkpoint: Path | None = None,
    metrics: Path | None = None,
    progress: Callable[[str], None] | None = None,
    settle: bool = False,
    target_norm: float | None = None,
) -> FittedModel:
    """Runs a method over the clients.

    Args:
        clients: with the same classes, or targets, and features.
        settings: the method.
        secure: whether sums are masked.
        seed: of the experiment's randomness.
        scale: constant factor on all features, or a scaling.
        test: records that the accuracy, or of targets the error, is measured on after every round,
            if any.
        privacy: client-level noise, planned for `settings.sums` sums; for methods that hide
            records, which need it, record-level noise.
        checkpoint: replaced after every round; where it exists the run goes on from it.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.
        settle: whether to end before the last round, when the objective stops falling.
        target_norm: public L2 norm that a record's targets are clipped to, where a method hides
            every record and predicts numbers.

    Raises:
        InputError: settings that do not fit the clients.
        QuorumError: fewer clients survived a round than the threshold.
        DivergedError: the weights, or every client's update, are not finite, or the weights are
            outside the bound of `ridge_excess`.
    """
    check_promise(settings, hides_records=isinstance(privacy, RecordPrivacy), secure=secure)
    names, width = clients[0].outputs, clients[0].n_features
    numbers = isinstance(clients[0], TargetSet)
    check_target_norm(settings, numbers=numbers, norm=target_norm)
    random = random_features(settings, width, seed)
    members = [
        Client(client.name, model_inputs(client.X, settings, scale, random, client.where), client.y)
        for client in clients
    ]
    probe = None
    if test is not None:
        probe = model_inputs(test.X, settings, scale, random, test.where), test.y
    objective = (settings.regression if numbers else settings.objective)(len(names))
    # What the objective of zero weights is, the targets say, and they are private.
    bound = None if numbers else ridge_excess(objective)
    figures: dict[str, float] = {}

    def measure(state: Any) -> Mapping[str, float]:
        figures.clear()
        figures.update(_figures(objective, state, probe))
        return figures

    noise = privacy if isinstance(privacy, ClientPrivacy) else None
    with federation_of(
        members,
        participants=settings.drawn,
        secure=secure,
        privacy=noise,
        seed=seed,
    ) as fed:
        promise = privacy if isinstance(privacy, RecordPrivacy) else None
        run = LinearRun(fed, objective, members[0].features.shape[1], seed, promise, target_norm)

        def states(start: Any) -> Iterator[Any]:
            found = settings.states(run, start)
            return settled_weights(found, fed, objective, settings.drawn) if settle else found

        state = last_state(
            fed,
            states,
            measure,
            settings=settings,
            # Noise may carry weights anywhere; what was paid for is delivered, with a remark.
            excess=None if privacy is not None else bound,
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
        )
        traffic = traffic_of(fed)
        spent = None if noise is None else fed.privacy_statement()
    if promise is not None:
        spent = promise.text()
    origin = origin_of(settings, secure, seed, len(clients), spent)
    origin |= schema_of_clients(clients)
    weights = model_weights(state.weights, settings)
    large = None if privacy is None or bound is None else bound(state.weights)
    remarks = () if large is None else (_noisy(large),)
    facts: Any = (weights, names, width, clients[0].features, scale, random, origin)
    left: Any = (state.round, dict(figures), traffic, {}, remarks)
    if numbers:
        return FittedRegression(RegressionModel(*facts), *left)
    return FittedModel(LinearModel(*facts), *left)


def settled_weights(
    states: Iterator[Any], fed: Federation, objective: Objective, drawn: int | None
) -> Iterator[Any]:
    """See `secure_fl.training.settling.settled`."""
    return settled(states, fed, local_value, objective, weights=lambda at: at.weights, drawn=drawn)


def check_target_norm(settings: LinearSettings, *, numbers: bool, norm: float | None) -> None:
    """Refuses a norm of targets where none is of use, and its lack where it is needed.

    Args:
        settings: the method.
        numbers: whether it predicts numbers.
        norm: of targets, or None.

    Raises:
        InputError: so.
    """
    needed = numbers and settings.hides_records
    if needed and norm is None:
        raise InputError(
            f"{settings.method}: needs a public norm of a record's targets (--target-norm), since"
            " noise must hide the largest"
        )
    if not needed and norm is not None:
        raise InputError(
            f"{settings.method}: a norm of targets has no meaning where no record is hidden; leave"
            " out --target-norm"
        )


def _noisy(large: str) -> str:
    return (
        f"remark: {large}; noise outweighs what was learned, or steps are too long: the model is"
        " hardly of use. Take fewer rounds, shorter steps, more clients or a larger ridge, or"
        " promise less"
    )


def check_promise(settings: LinearSettings, *, hides_records: bool, secure: bool) -> None:
    """Refuses a promise that the method cannot keep, or that it needs and does not have.

    Args:
        settings: the method.
        hides_records: whether every record is promised something.
        secure: whether sums are masked.

    Raises:
        InputError: so.
    """
    if settings.sees_clients and secure:
        raise InputError(
            f"{settings.method}: its server must see single clients' values; leave out --aggregate"
            " secure, or take fednl, which asks for sums alone"
        )
    if settings.hides_records != hides_records:
        raise InputError(
            f"{settings.method}: needs a promise for every record"
            if settings.hides_records
            else f"{settings.method}: cannot hide single records; take private-ridge or"
            " private-gradient"
        )
    if hides_records and not secure:
        raise InputError(
            f"{settings.method}: needs masked sums (--aggregate secure), the server must see sums"
            " alone"
        )


def origin_of(
    settings: LinearSettings, secure: bool, seed: int, clients: int, privacy: str | None
) -> dict[str, Any]:
    """How a model was trained, for its file."""
    return settings.to_json() | {
        "secure": secure,
        "seed": seed,
        "clients": clients,
        "privacy": privacy,
    }


def linear_room(
    settings: LinearSettings, clients: Sequence[Dataset] | Sequence[TargetSet]
) -> list[int]:
    """Bytes that the files of a run have at most; see `files_room`."""
    numbers = model_numbers(settings, clients[0].n_features, len(clients[0].outputs))
    return files_room(numbers, rounds=rounds_of(settings), clients=len(clients))


def rounds_of(settings: LinearSettings) -> int:
    """Rounds of a method; one of methods that are done after one sum."""
    return int(getattr(settings, "rounds", 1))


def model_numbers(settings: LinearSettings, width: int, classes: int) -> int:
    """Numbers that a model of d features and C classes has, at most."""
    features = settings.random_features
    return features * (width + 1 + classes) if features else (width + 1) * classes


def model_inputs(
    X: Any,
    settings: LinearSettings,
    scale: Scale,
    random: RandomFourierFeatures | None,
    where: str,
) -> Any:
    """What a client's trainer sees of its features: scaled, mapped or with a constant.

    Args:
        X: of the client's file, shape (n, d), dense or sparse.
        settings: the method.
        scale: constant factor, or a scaling.
        random: of the method; see `random_features`.
        where: whose features they are, for messages.

    Raises:
        FeatureError: the scale is not finite and above 0, or scaled features overflow or vanish.
    """
    scaled = scaled_features(X, scale, np.float64, where=where)
    return scaled if settings.bare else mapped(scaled, random)


def model_weights(weights: Any, settings: LinearSettings) -> Any:
    """A trainer's weights as the model's, which has a constant where there is no mapping."""
    without = settings.bare and not settings.own_constant
    return np.pad(weights, ((0, 1), (0, 0))) if without else weights


def random_features(
    settings: LinearSettings, width: int, seed: int
) -> RandomFourierFeatures | None:
    """The random features of a method; None where it has none.

    Args:
        settings: the method.
        width: columns of the clients' files.
        seed: that they are drawn from.
    """
    if settings.random_features == 0:
        return None
    rng = np.random.default_rng([seed, 1])
    variance = settings.kernel_deviation**2
    return RandomFourierFeatures.draw(width, settings.random_features, variance, rng)


def ridge_excess(objective: Objective) -> Excess:
    """The bound on a linear model's weights that the server can state without any record.

    The objective is at least its ridge term. Where that alone is LARGEST_RATIO times the objective
    of zero weights, training has made the model that much worse than none, whatever the records.
    """
    none = np.zeros(objective.shape(1))
    at_zero = objective.value(none, np.zeros((1, 1)), np.zeros(1, np.int64))

    def excess(weights: Any) -> str | None:
        term = 0.5 * objective.ridge * float(np.vdot(weights, weights))
        if term <= LARGEST_RATIO * at_zero:
            return None
        return (
            f"the objective is above {term:.3g} by its ridge term alone, that of zero weights is"
            f" {at_zero:.3g}"
        )

    return excess


def _figures(objective: Objective, state: Any, probe: tuple[Any, Any] | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if probe is not None and isinstance(objective, RegressionLoss):
        X, y = probe
        values = X @ state.weights
        found["rmse"], found["r2"] = rmse(values, y), r_squared(values, y)
    elif probe is not None:
        X, y = probe
        if X.shape[1] < len(state.weights):
            X = with_constant(X)
        found["accuracy"] = float(np.mean(objective.predict(state.weights, X) == y))
    for name in ("contraction", "step"):
        value = getattr(state, name, None)
        if value is not None and np.isfinite(value):
            found[name] = float(value)
    return found

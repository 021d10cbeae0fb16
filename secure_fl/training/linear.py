"""Clients' data sets in, a linear model out: what `securefl train --method` runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp import Ledger, Membership, Record
from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.federation import Client, ClientPrivacy, Federation
from secure_fl.training.fednl import fednl_states
from secure_fl.training.linear_model import LinearModel, mapped
from secure_fl.objectives import Objective, RandomFourierFeatures, SoftmaxLoss, SquaredLoss
from secure_fl.objectives.base import Array
from secure_fl.training.recipe import AT_ONCE, FEDNL, RECORD_PRIVATE, SQUARED, Recipe
from secure_fl.trainers.linear import (
    LBFGS,
    Adam,
    Averaging,
    AveragingState,
    ConjugateGradient,
    Diagonal,
    Exact,
    LocalTraining,
    LowRank,
    Momentum,
    NewtonState,
    ServerOptimizer,
    Solver,
    dkrr,
    fedavg,
    fednewton,
    fednewton_head,
    fedprox,
    krr,
    localnewton,
    noisy_gradient,
    oneshot,
    private_ridge,
)
from secure_fl.trainers.linear._record_noise import Neighbours, record_unit
from secure_fl.training.loop import States, federation_of, last_state, traffic_of

if TYPE_CHECKING:
    from secure_fl.training.network_model import TrainedNetwork


@dataclass(frozen=True, eq=False)
class RecordPrivacy:
    """What the methods private-ridge and private-gradient promise; see `secure_fl.trainers.linear`.

    Attributes:
        epsilon: > 0, per record, its label included.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to, > 0, after scaling and random features.
        ledger: the books.
        adjacency: whether a record is replaced, or added or removed.
        prior: public directions of the classes, shape (d, C), or None.
        texts: digest of the public texts behind the prior, or None.
    """

    epsilon: float
    delta: float
    norm: float
    ledger: Ledger
    adjacency: Neighbours = "replace"
    prior: Array | None = None
    texts: str | None = None

    @property
    def unit(self) -> Record | Membership:
        """What epsilon protects."""
        return record_unit(self.norm, self.adjacency)

    def text(self) -> str:
        """What the books say, in one line with the unit."""
        unit = self.unit
        total = self.ledger.get_epsilon(self.delta, unit)
        return f"epsilon {total.epsilon:.4g} at delta {self.delta:g} per {unit.unit} ({total.rule})"


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run leaves.

    Attributes:
        model: the global model.
        rounds: that were run in all, before a resumption too.
        figures: of the last round: test accuracy, contraction factor and step, where there are.
        traffic: bytes that each client sent and received, by name.
        privacy: one line with epsilon, delta and unit; None without noise.
        personal: clients' own models, by name; each is its client's and goes to nobody else.
    """

    model: "LinearModel | TrainedNetwork"
    rounds: int
    figures: Mapping[str, float]
    traffic: Mapping[str, tuple[int, int]]
    privacy: str | None
    personal: Mapping[str, "TrainedNetwork"] = field(default_factory=dict)


def train_linear_model(
    clients: Sequence[Dataset],
    recipe: Recipe,
    *,
    scale: float = 1.0,
    test: Dataset | None = None,
    privacy: ClientPrivacy | RecordPrivacy | None = None,
    checkpoint: Path | None = None,
    metrics: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trained:
    """Runs a recipe over the clients.

    Args:
        clients: with the same classes and features.
        recipe: what to run.
        scale: constant factor on all features.
        test: records that the accuracy is measured on after every round, if any.
        privacy: client-level noise, planned for `recipe.sums` sums; for the methods in
            RECORD_PRIVATE, which need it, record-level noise.
        checkpoint: replaced after every round; where it exists the run goes on from it.
        metrics: a file of JSON lines, one a round.
        progress: receives one line a round.

    Raises:
        InputError: settings that do not fit the clients.
        QuorumError: fewer clients survived a round than the threshold.
    """
    if (recipe.method in RECORD_PRIVATE) != isinstance(privacy, RecordPrivacy):
        raise InputError(
            f"{recipe.method}: record-level privacy goes with {' and '.join(RECORD_PRIVATE)} alone"
        )
    names, width = clients[0].classes, clients[0].n_features
    random = random_features(recipe, width)
    members = [
        Client(client.name, model_inputs(client.X, recipe, scale, random), client.y)
        for client in clients
    ]
    probe = None if test is None else (model_inputs(test.X, recipe, scale, random), test.y)
    objective = objective_of(recipe, len(names))
    figures: dict[str, float] = {}

    def measure(state: Any) -> Mapping[str, float]:
        figures.clear()
        figures.update(_figures(objective, state, probe))
        return figures

    noise = privacy if isinstance(privacy, ClientPrivacy) else None
    with federation_of(
        members,
        participants=recipe.drawn,
        secure=recipe.secure,
        privacy=noise,
        seed=recipe.seed,
    ) as fed:
        promise = privacy if isinstance(privacy, RecordPrivacy) else None
        inputs = members[0].features.shape[1]
        state = last_state(
            fed,
            lambda start: trainer_states(fed, objective, inputs, recipe, start, promise),
            measure,
            checkpoint=checkpoint,
            metrics=metrics,
            progress=progress,
        )
        traffic = traffic_of(fed)
        spent = None if noise is None else fed.privacy_statement()
    if promise is not None:
        spent = promise.text()
    origin = asdict(recipe) | {"clients": len(clients), "privacy": spent}
    weights = model_weights(state.weights, recipe)
    model = LinearModel(weights, names, width, clients[0].features, float(scale), random, origin)
    return Trained(model, state.round, dict(figures), traffic, spent)


def model_inputs(X: Any, recipe: Recipe, scale: float, random: RandomFourierFeatures | None) -> Any:
    """What a client's trainer sees of its features: scaled, mapped or with a constant.

    Args:
        X: of the client's file, shape (n, d), dense or sparse.
        recipe: what to run.
        scale: constant factor.
        random: of the recipe; see `random_features`.
    """
    scaled = X.astype(np.float64) * scale
    return scaled if _bare(recipe) else mapped(scaled, random)


def model_weights(weights: Any, recipe: Recipe) -> Any:
    """A trainer's weights as the model's, which has a constant where there is no mapping."""
    return np.pad(weights, ((0, 1), (0, 0))) if _bare(recipe) else weights


def _bare(recipe: Recipe) -> bool:
    # A constant would spend part of the clipped norm on what every record has.
    return recipe.method in RECORD_PRIVATE and recipe.random_features == 0


def random_features(recipe: Recipe, width: int) -> RandomFourierFeatures | None:
    """The random features of a recipe, drawn from its seed; None where it has none.

    Args:
        recipe: what to run.
        width: columns of the clients' files.

    Raises:
        InputError: a deviation that is not above 0.
    """
    if recipe.random_features == 0:
        return None
    deviation = recipe.kernel_deviation
    if not (np.isfinite(deviation) and deviation > 0):
        raise InputError(f"kernel deviation: found {deviation}, expected a number above 0")
    rng = np.random.default_rng([recipe.seed, 1])
    return RandomFourierFeatures.draw(width, recipe.random_features, deviation**2, rng)


def objective_of(recipe: Recipe, classes: int) -> Objective:
    """What the recipe's method minimises; the FEDNL methods the logistic loss of every class."""
    kind = SquaredLoss if recipe.method in SQUARED else SoftmaxLoss
    return kind(recipe.ridge, classes)


def _figures(objective: Objective, state: Any, probe: tuple[Any, Any] | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if probe is not None:
        X, y = probe
        found["accuracy"] = float(np.mean(objective.predict(state.weights, X) == y))
    for name in ("contraction", "step"):
        value = getattr(state, name, None)
        if value is not None and np.isfinite(value):
            found[name] = float(value)
    return found


def trainer_states(
    fed: Federation,
    objective: Objective,
    width: int,
    recipe: Recipe,
    start: Any,
    promise: RecordPrivacy | None = None,
) -> States:
    """The trainer of the recipe, from the start or from zero weights.

    Args:
        fed: the clients.
        objective: see `objective_of`.
        width: columns of the clients' features.
        recipe: what to run.
        start: a state to go on from, or None.
        promise: of the methods in RECORD_PRIVATE.
    """
    method, rounds = recipe.method, recipe.rounds
    if promise is not None:
        return _record_private(fed, recipe, width, objective.classes, promise, start)
    if method in AT_ONCE:
        return _at_once(fed, objective, recipe, start)
    if method in FEDNL:
        return fednl_states(fed, recipe, width, objective.classes, start)
    if method in ("fedavg", "fedavgm", "fedadam", "fedprox"):
        return _first_order(fed, objective, recipe, start or AveragingState(objective.zeros(width)))
    if method == "fednewton":
        return fednewton(
            fed,
            objective,
            rounds=rounds,
            solver=_client_solver(recipe),
            safeguard=recipe.safeguard,
            memory=recipe.memory,
            start=start,
        )
    state = start or NewtonState(objective.zeros(width))
    if method == "localnewton":
        return localnewton(
            fed,
            objective,
            start=state,
            rounds=rounds,
            solver=_client_solver(recipe),
            local_steps=recipe.local_epochs,
            safeguard=recipe.safeguard,
        )
    lbfgs = LBFGS(recipe.memory or 10) if recipe.solver == "lbfgs" else None
    return fednewton_head(
        fed,
        objective,
        start=state,
        rounds=rounds,
        solver=lbfgs or _client_solver(recipe),
        safeguard=recipe.safeguard,
        memory=0 if lbfgs else recipe.memory,
    )


def _record_private(
    fed: Federation,
    recipe: Recipe,
    width: int,
    outputs: int,
    privacy: RecordPrivacy,
    start: Any,
) -> States:
    if not recipe.secure:
        raise InputError(f"{recipe.method}: needs masked sums (--aggregate secure)")
    if start is not None:
        return iter(())
    common: dict[str, Any] = {
        "features": width,
        "outputs": outputs,
        "norm": privacy.norm,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "ledger": privacy.ledger,
        "adjacency": privacy.adjacency,
    }
    if recipe.method == "private-ridge":
        if privacy.prior is not None:
            raise InputError("private-ridge: has no use for class texts; take private-gradient")
        return private_ridge(fed, **common)
    return noisy_gradient(fed, **common, rounds=recipe.rounds, prior=privacy.prior)


def _at_once(fed: Federation, objective: Objective, recipe: Recipe, start: Any) -> States:
    if start is not None:
        return iter(())
    if isinstance(objective, SquaredLoss):
        return krr(fed, objective) if recipe.method == "krr" else dkrr(fed, objective)
    return oneshot(fed, objective)


def _first_order(
    fed: Federation, objective: Objective, recipe: Recipe, start: AveragingState
) -> States:
    training = LocalTraining(
        recipe.learning_rate, recipe.local_epochs, recipe.local_batch, recipe.local_momentum
    )
    if recipe.method == "fedprox":
        return fedprox(
            fed,
            objective,
            start=start,
            rounds=recipe.rounds,
            proximal=recipe.proximal,
            training=training,
        )
    servers: dict[str, ServerOptimizer] = {
        "fedavg": Averaging(),
        "fedavgm": Momentum(),
        "fedadam": Adam(),
    }
    server = servers[recipe.method]
    if recipe.server_rate is not None:
        server = replace(server, learning_rate=recipe.server_rate)
    return fedavg(
        fed, objective, start=start, rounds=recipe.rounds, training=training, server=server
    )


def _client_solver(recipe: Recipe) -> Solver:
    default = "cg" if recipe.method == "fednewton-head" else "exact"
    kinds: dict[str, type[Solver]] = {
        "exact": Exact,
        "cg": ConjugateGradient,
        "diagonal": Diagonal,
        "low-rank": LowRank,
    }
    return kinds[recipe.solver or default](recipe.damping)

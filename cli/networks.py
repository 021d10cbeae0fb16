"""Networks of `securefl train --model`: options, and how they become a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from secure_fl.data import Dataset
    from secure_fl.training.linear import Trained
    from secure_fl.federation import ClientPrivacy
    from secure_fl.trainers.networks.recipe import NetworkRecipe
    from secure_fl.trainers.linear._record_noise import Neighbours

# Repeated here because importing the networks takes seconds; a test compares.
NETWORK_METHODS = (
    *("fedavg", "fedavgm", "fedadam", "fedprox", "fedavgr"),
    *("localnewton", "fedpm", "fedrco-ori", "fedrco"),
)
"""Methods that train networks."""
NOTHING_ELSE = ("fedavgr", "fedpm", "fedrco-ori", "fedrco")
"""Those of them that train nothing else."""
SECOND_ORDER = frozenset({"localnewton", "fedpm", "fedrco-ori", "fedrco"})
ARCHITECTURES = ("mlp", "cnn", "fourier")
FIRST_ORDER_ONLY = frozenset({"server_rate", "proximal", "trace", "feature_penalty", "mmd"})
UNMONITORED = frozenset({"factor_average", "inversion_interval"})
MONITOR = frozenset({"monitor", "rollback_above", "reset_above"})
NETWORKS_ONLY = frozenset(
    {"hidden", "image", "trace", "feature_penalty", "mmd", "local_steps", *UNMONITORED, *MONITOR}
)
LINEAR_ONLY = frozenset(
    {"ridge", "solver", "memory", "safeguard", "compressor", "option", "gradient_share"}
)
CURVED: dict[str, Any] = {"learning_rate": 0.02, "local_momentum": 0.0, "damping": 0.03}
"""What SECOND_ORDER methods take where the command line says nothing."""

NETWORK_OPTIONS = (
    click.option(
        "--model",
        "network",
        type=click.Choice(("linear", *ARCHITECTURES)),
        default="linear",
        show_default=True,
        help="fedavg, fedavgm, fedadam, fedprox, fedavgr, localnewton, fedpm, fedrco-ori, fedrco:"
        " a network in place of a linear model; with --epsilon, --delta and --unit record every"
        " record is hidden by DP-SGD (the first five).",
    ),
    click.option("--hidden", default="64", show_default=True, help="mlp: units, by commas."),
    click.option("--image", type=(int, int, int), help="cnn: channels, height, width."),
    click.option("--trace", default=1e-6, show_default=True, help="fedavgr: alpha, trace norm."),
    click.option(
        "--feature-penalty", default=1e-4, show_default=True, help="fedavgr: beta, feature norm."
    ),
    click.option("--mmd", default=1e-2, show_default=True, help="fedavgr: gamma, of the MMD."),
    click.option(
        "--local-steps", default=0, show_default=True, help="Batches of a round; 0: --local-epochs."
    ),
    click.option(
        "--factor-average",
        default=0.95,
        show_default=True,
        help="fedrco*, localnewton: weight of a factor's older statistics.",
    ),
    click.option(
        "--inversion-interval",
        default=200,
        show_default=True,
        help="fedrco*, localnewton: T_inv, steps between inversions of the factors.",
    ),
    click.option(
        "--monitor/--no-monitor",
        default=True,
        show_default=True,
        help="fedrco*: bound steps, or reset a client, whose norm is far above the recent mean.",
    ),
    click.option(
        "--rollback-above",
        default=10.0,
        show_default=True,
        help="fedrco*: times the recent mean beyond which a step is bounded.",
    ),
    click.option(
        "--reset-above",
        default=1000.0,
        show_default=True,
        help="fedrco*: times the recent mean beyond which a client is reset.",
    ),
)


@dataclass(frozen=True)
class RecordPromise:
    """--epsilon, --delta, --norm, --ledgers, --budget, --adjacency and --class-texts of a method
    that hides single records; the encoder is that of the class texts."""

    epsilon: float
    delta: float
    norm: float | None
    ledgers: Path | None
    budget: float | None
    adjacency: "Neighbours" = "replace"
    class_texts: Path | None = None
    encoder: str = "none"

    def more(self, classes: Sequence[str], scale: float) -> dict[str, Any]:
        """What `secure_fl.privacy.promises.record_promise` wants beside epsilon, delta and norm."""
        from secure_fl.privacy.promises import class_prior

        prior = None
        if self.class_texts is not None:
            prior = class_prior(self.class_texts, classes, self.encoder, scale)
        return {"adjacency": self.adjacency, "prior": prior}


def network_recipe(
    method: Any, network: Any, hidden: str, settings: dict[str, Any]
) -> "NetworkRecipe":
    """The recipe of a network run; options of linear models are refused."""
    from secure_fl.trainers.networks.recipe import NetworkRecipe

    if method not in NETWORK_METHODS:
        raise click.UsageError(
            f"--model {network} is for --method {', '.join(NETWORK_METHODS)}, not for {method}"
        )
    refuse_given(LINEAR_ONLY, f"--model {network}")
    refuse_given(_foreign(method), f"--method {method} --model {network}")
    if method in SECOND_ORDER:
        settings = settings | {n: v for n, v in CURVED.items() if not _was_given(n)}
    try:
        layers = tuple(int(units) for units in hidden.split(","))
    except ValueError:
        raise click.UsageError(
            f"--hidden {hidden}: expected whole numbers, such as 64,32"
        ) from None
    unknown = LINEAR_ONLY if method in SECOND_ORDER else LINEAR_ONLY | {"damping"}
    kept = {name: value for name, value in settings.items() if name not in unknown}
    return NetworkRecipe(method, network, hidden=layers, **kept)


def _foreign(method: str) -> frozenset[str]:
    """Options of networks that a method does not have."""
    if method not in SECOND_ORDER:
        return UNMONITORED | MONITOR | {"damping"}
    if method == "fedpm":
        return FIRST_ORDER_ONLY | UNMONITORED | MONITOR
    return FIRST_ORDER_ONLY | (MONITOR if method == "localnewton" else frozenset())


def _was_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.COMMANDLINE


def refuse_given(parameters: frozenset[str], where: str) -> None:
    """An option that has no meaning there could only mislead: refuse it."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in parameters and _was_given(parameter.name):
            raise click.UsageError(f"{parameter.opts[0]} has no meaning for {where}")


def train_network(
    clients: Sequence["Dataset"],
    recipe: Any,
    record: RecordPromise | None,
    noise: "ClientPrivacy | None",
    ledgers: Path,
    clip: float | None,
    options: dict[str, Any],
) -> "Trained":
    """Runs the recipe, with what every record is promised, if anything."""
    from secure_fl.errors import InputError
    from secure_fl.trainers.networks import DPSGD, training

    promise = None
    if record is not None:
        gradient = 1.0 if clip is None else clip
        try:
            promise = DPSGD(record.epsilon, record.delta, recipe.rounds, clip=gradient)
        except ValueError as error:
            raise InputError(str(error)) from None
        options = options | {"ledgers": ledgers, "budget": record.budget}
    return training.train_network(
        clients, recipe, client_level=noise, record_level=promise, **options
    )

"""Networks of `securefl train --model`: options, and how they become a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from secure_fl.data import Dataset
    from secure_fl.federated_training import Trained
    from secure_fl.federation import ClientPrivacy
    from secure_fl.networks.training import NetworkRecipe

# Repeated here because importing the networks takes seconds; a test compares.
NETWORK_METHODS = ("fedavg", "fedavgm", "fedadam", "fedprox", "fedavgr")
"""Methods that train networks too; fedavgr trains nothing else."""
ARCHITECTURES = ("mlp", "cnn", "fourier")
NETWORKS_ONLY = frozenset({"hidden", "image", "trace", "feature_penalty", "mmd"})
LINEAR_ONLY = frozenset(
    {
        *("ridge", "solver", "damping", "memory", "safeguard"),
        *("compressor", "option", "gradient_share"),
    }
)

NETWORK_OPTIONS = (
    click.option(
        "--model",
        "network",
        type=click.Choice(("linear", *ARCHITECTURES)),
        default="linear",
        show_default=True,
        help="fedavg, fedavgm, fedadam, fedprox, fedavgr: a network in place of a linear model;"
        " with --epsilon, --delta and --unit record every record is hidden by DP-SGD.",
    ),
    click.option("--hidden", default="64", show_default=True, help="mlp: units, by commas."),
    click.option("--image", type=(int, int, int), help="cnn: channels, height, width."),
    click.option("--trace", default=1e-6, show_default=True, help="fedavgr: alpha, trace norm."),
    click.option(
        "--feature-penalty", default=1e-4, show_default=True, help="fedavgr: beta, feature norm."
    ),
    click.option("--mmd", default=1e-2, show_default=True, help="fedavgr: gamma, of the MMD."),
)


@dataclass(frozen=True)
class RecordPromise:
    """--epsilon, --delta, --norm, --ledgers and --budget of a method that hides single records."""

    epsilon: float
    delta: float
    norm: float | None
    ledgers: Path | None
    budget: float | None


def network_recipe(
    method: Any, network: Any, hidden: str, settings: dict[str, Any]
) -> "NetworkRecipe":
    """The recipe of a network run; options of linear models are refused."""
    from secure_fl.networks.training import NetworkRecipe

    if method not in NETWORK_METHODS:
        raise click.UsageError(
            f"--model {network} is for --method {', '.join(NETWORK_METHODS)}, not for {method}"
        )
    refuse_given(LINEAR_ONLY, f"--model {network}")
    try:
        layers = tuple(int(units) for units in hidden.split(","))
    except ValueError:
        raise click.UsageError(
            f"--hidden {hidden}: expected whole numbers, such as 64,32"
        ) from None
    kept = {name: value for name, value in settings.items() if name not in LINEAR_ONLY}
    return NetworkRecipe(method, network, hidden=layers, **kept)


def refuse_given(parameters: frozenset[str], where: str) -> None:
    """An option that has no meaning there could only mislead: refuse it."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in parameters:
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
    from secure_fl.networks import DPSGD, training

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

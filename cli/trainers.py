"""Iterative trainers of `securefl train --method`, and `securefl predict`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.networks import (
    ARCHITECTURES,
    NETWORK_OPTIONS,
    NETWORKS_ONLY,
    NOTHING_ELSE,
    RecordPromise,
    network_recipe,
    refuse_given,
    train_network,
)
from cli.output import Output, human_bytes, output_options, show_classes

if TYPE_CHECKING:
    from secure_fl.data import Dataset, ReadOptions
    from secure_fl.training.linear import RecordPrivacy, Trained
    from secure_fl.federation import ClientPrivacy
    from secure_fl.trainers.networks.recipe import NetworkRecipe
    from secure_fl.training.recipe import Recipe

# Repeated here because importing the trainers takes a second; a test compares.
METHODS = (
    "kahm",
    "kahm-record-private",
    "fedavg",
    "fedavgm",
    "fedadam",
    "fedprox",
    "oneshot",
    "dkrr",
    "krr",
    "localnewton",
    "fednewton",
    "fednewton-head",
    "private-ridge",
    "private-gradient",
    "fednl",
    "fednl-ls",
    "fednl-cr",
    "fednl-pp",
    "fednl-bc",
    *NOTHING_ELSE,
)
COMPRESSORS = ("auto", "top-k", "rand-k", "shared-rand-k", "rank-1", "identity")
SOLVERS = ("exact", "cg", "diagonal", "low-rank", "lbfgs")

_OPTIONS = (
    click.option(
        "--method",
        type=click.Choice(METHODS),
        default="kahm",
        show_default=True,
        help="kahm: one pass, heads stay with their clients. kahm-record-private: one public head"
        " from masked sums that hide every record. Others: one model for all; private-ridge"
        " and private-gradient hide every record too (all: --epsilon, --delta, --unit record,"
        " --norm).",
    ),
    *NETWORK_OPTIONS,
    click.option("--rounds", default=10, show_default=True, help="method: of training."),
    click.option(
        "--aggregate",
        type=click.Choice(["plain", "secure"]),
        default="plain",
        help="method: secure masks every update, so that the server learns sums alone.",
    ),
    click.option("--ridge", default=1e-4, show_default=True, help="method: above 0."),
    click.option("--random-features", default=0, help="method: random Fourier features; 0: none."),
    click.option(
        "--kernel-deviation", default=1.0, show_default=True, help="Of their frequencies."
    ),
    click.option(
        "--learning-rate",
        default=0.1,
        show_default=True,
        help="fed*: of local steps; *rco*, fedpm, localnewton with --model: 0.02.",
    ),
    click.option("--local-epochs", default=1, show_default=True, help="fed*, localnewton."),
    click.option("--local-batch", default=64, show_default=True, help="fed*: records of a step."),
    click.option("--local-momentum", default=0.9, show_default=True, help="fed*: in [0, 1)."),
    click.option("--server-rate", type=float, help="fedavg*, fedadam; default 1, fedadam 0.01."),
    click.option("--proximal", default=0.01, show_default=True, help="fedprox: mu."),
    click.option(
        "--solver", type=click.Choice(SOLVERS), help="*newton*; default: exact, head: cg."
    ),
    click.option(
        "--damping",
        default=0.0,
        show_default=True,
        help="*newton*: of the solver; *rco*, fedpm, localnewton with --model: of factors, 0.03.",
    ),
    click.option("--memory", default=0, show_default=True, help="fednewton*: of earlier rounds."),
    click.option(
        "--safeguard/--no-safeguard",
        default=True,
        show_default=True,
        help="*newton*: no round may increase the objective.",
    ),
    click.option("--participants", type=click.IntRange(1), help="method: clients of a round."),
    click.option(
        "--compressor",
        type=click.Choice(COMPRESSORS),
        default="auto",
        show_default=True,
        help="fednl*: of Hessians; auto: top-k, behind masks or noise shared-rand-k.",
    ),
    click.option(
        "--option", type=click.IntRange(1, 2), default=2, show_default=True, help="fednl, fednl-bc."
    ),
    click.option(
        "--gradient-share", default=1.0, show_default=True, help="fednl-bc: p of a round."
    ),
    click.option(
        "--test",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="method: measure the accuracy on this labelled file after every round.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
        help="method: kept after every round; where it exists, the run goes on from it.",
    ),
    click.option("--client-epsilon", type=float, help="method: noise that hides a whole client."),
    click.option("--client-delta", default=1e-5, show_default=True, help="Of --client-epsilon."),
    click.option(
        "--clip",
        type=float,
        help="--client-epsilon: L2 norm of an update; needed. Networks with --unit record: of one"
        " record's gradient; default 1.",
    ),
    click.option(
        "--client-noise",
        type=click.Choice(["gaussian", "skellam"]),
        default="gaussian",
        show_default=True,
        help="--client-epsilon: discrete Gaussian parts, or Skellam ones, which add up exactly.",
    ),
    click.option(
        "--ledger",
        type=click.Path(dir_okay=False, path_type=Path),
        help="--client-epsilon: the federation's books; default: SOURCE.ledger.",
    ),
)


TRAINERS_ONLY = frozenset(
    {
        *("rounds", "aggregate", "ridge", "random_features", "kernel_deviation", "participants"),
        *("learning_rate", "local_epochs", "local_batch", "local_momentum", "server_rate"),
        *("proximal", "solver", "damping", "memory", "safeguard", "test", "checkpoint"),
        *("compressor", "option", "gradient_share"),
        *("client_epsilon", "client_delta", "clip", "client_noise", "ledger"),
        *("network", *NETWORKS_ONLY),
    }
)
"""Parameters of the options above that the kahm method does not have."""


def trainer_options(function: Any) -> Any:
    """Options of the iterative trainers."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def train_rounds(
    output: Output,
    source: Path,
    out: Path,
    *,
    classes: str | None,
    scale: float,
    seed: int,
    reading: "ReadOptions",
    method: Any,
    aggregate: str,
    test: Path | None,
    checkpoint: Path | None,
    client_epsilon: float | None,
    client_delta: float,
    clip: float | None,
    client_noise: Any,
    ledger: Path | None,
    network: str,
    hidden: str,
    record: RecordPromise | None = None,
    **settings: Any,
) -> None:
    """Runs an iterative trainer on the client files in SOURCE and writes the run folder OUT.

    `record` is what private-* and networks promise of a record.
    """
    import shutil

    from fhe.envelope import PRIVATE
    from secure_fl.files import new_folder, refuse_existing
    from secure_fl.data import ClassList, read_clients
    from secure_fl.errors import InputError
    from secure_fl.training.model_files import FILE, PERSONAL
    from secure_fl.privacy.promises import client_privacy

    refuse_existing(out)
    if record is not None and client_epsilon is not None:
        raise InputError("--client-epsilon: --epsilon has noise of its own; leave out one")
    if client_epsilon is None and client_noise != "gaussian":
        raise InputError(f"--client-noise {client_noise}: needs --client-epsilon")
    recipe: Recipe | NetworkRecipe
    settings |= {"seed": seed, "secure": aggregate == "secure"}
    if network == "linear":
        recipe = _linear_recipe(method, settings)
    else:
        recipe = network_recipe(method, network, hidden, settings)
        recipe.refuse_privacy(record=record is not None, client=client_epsilon is not None)
    known = ClassList(tuple(classes.split(","))) if classes else None
    with output.progress() as progress:
        clients = read_clients(
            source,
            reading,
            classes=known,
            progress=lambda i, n: progress("reading", i, n),
        )
    probe = None if test is None else _test_records(test, reading, clients[0])
    books = ledger or source.with_name(source.name + ".ledger")
    noise = None
    if client_epsilon is not None:
        promise = client_epsilon, client_delta, clip
        noise = client_privacy(recipe, len(clients[0].classes), *promise, books, client_noise)
    with new_folder(out) as aside:
        metrics = aside / "metrics.jsonl"
        lines = metrics if checkpoint is None else Path(f"{checkpoint}.jsonl")
        options: dict[str, Any] = {
            "scale": scale,
            "test": probe,
            "checkpoint": checkpoint,
            "metrics": lines,
            "progress": output.note,
        }
        if network == "linear":
            trained = _train_linear(clients, recipe, record, noise, books, options)
        else:
            own = (record and record.ledgers) or source.with_name(source.name + ".ledgers")
            trained = train_network(clients, recipe, record, noise, own, clip, options)
        if checkpoint is not None:
            shutil.copyfile(lines, metrics)
        size = trained.model.save(aside / FILE)
        for name, its_own in trained.personal.items():
            (aside / PERSONAL / name).mkdir(parents=True)
            its_own.save(aside / PERSONAL / name / FILE, mode=PRIVATE)
    _show(output, out, recipe, trained, size)


def _linear_recipe(method: Any, settings: dict[str, Any]) -> "Recipe":
    from secure_fl.training.recipe import Recipe

    if method in NOTHING_ELSE:
        raise click.UsageError(
            f"--method {method} trains networks; name one with --model {'|'.join(ARCHITECTURES)}"
        )
    refuse_given(NETWORKS_ONLY, "--model linear")
    kept = {name: value for name, value in settings.items() if name not in NETWORKS_ONLY}
    return Recipe(method, **kept)


def _train_linear(
    clients: Sequence["Dataset"],
    recipe: Any,
    record: RecordPromise | None,
    noise: "ClientPrivacy | None",
    books: Path,
    options: dict[str, Any],
) -> "Trained":
    from secure_fl.training.linear import train_linear_model
    from secure_fl.privacy.promises import record_privacy

    privacy: ClientPrivacy | RecordPrivacy | None = noise
    if record is not None:
        if record.norm is None:
            raise click.UsageError(f"--method {recipe.method} needs --norm")
        more = record.more(clients[0].classes, options["scale"])
        privacy = record_privacy(recipe, record.epsilon, record.delta, record.norm, books, **more)
    return train_linear_model(clients, recipe, privacy=privacy, **options)


def _test_records(path: Path, reading: "ReadOptions", like: "Dataset") -> "Dataset":
    from secure_fl.data import ClassList, assemble, read_client

    (records,) = assemble(
        [read_client(path, reading)],
        classes=ClassList(like.classes),
        n_features=like.n_features,
        features=like.features,
        manifest="the clients",
    )
    return records


def _show(output: Output, out: Path, recipe: Any, trained: "Trained", size: int) -> None:
    from secure_fl.training.model_files import PERSONAL

    up, down = (sum(each[i] for each in trained.traffic.values()) for i in (0, 1))
    data = {
        "run": str(out),
        "method": recipe.method,
        "rounds": trained.rounds,
        "aggregate": "secure" if recipe.secure else "plain",
        "figures": dict(trained.figures),
        "model_bytes": size,
        "personal": sorted(trained.personal),
        "clients": {
            name: {"bytes_up": sent, "bytes_down": got}
            for name, (sent, got) in trained.traffic.items()
        },
        "privacy": trained.privacy,
    }
    figures = "".join(f", {name} {value:.4g}" for name, value in trained.figures.items())
    lines = [
        f"{out}: {recipe.method}, {trained.rounds} rounds, {len(trained.traffic)} clients{figures}",
        f"traffic: {human_bytes(up)} from the clients, {human_bytes(down)} to them;"
        f" model {human_bytes(size)}",
        f"privacy: {trained.privacy or 'no guarantee; the model shows what it was trained on'}",
    ]
    if trained.personal:
        lines.append(f"{out / PERSONAL}: each client's own model, for that client alone")
    output.result(data, "\n".join(lines))


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rows", help="Records to take, start:stop from 0; default: all.")
@read_options
@output_options
def predict(output: Output, model: Path, queries: Path, rows: str | None, **reading: Any) -> None:
    """Classify QUERIES with a model of `train --method`: a class a line. MODEL: its run folder."""
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.training.model_files import load_model

    trained = load_model(model)
    reader = make_read_options(**reading)
    features, labels = read_queries(queries, trained, reader, parse_rows(rows))
    found = trained.predict(features)
    show_classes(output, [trained.classes[code] for code in found], labels)

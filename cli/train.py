"""`securefl train`: clients' files in, a run folder out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli.data import make_read_options, read_options
from cli.dp import default_mechanism, make_adjacency, needed_bounds, promise_options
from cli.networks import RecordPromise
from cli.output import Output, output_options
from cli.trainers import TRAINERS_ONLY, train_rounds, trainer_options


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run folder.")
@click.option("--classes", help="Class names, separated by commas; default: those in the files.")
@click.option("--scale", default=1.0, show_default=True, help="Constant factor on the features.")
@click.option("--encoder", default="none", show_default=True, help="What made the features.")
@click.option("--batch-size", default=100, show_default=True, help="Records one machine models.")
@click.option("--batching", type=click.Choice(["order", "clusters"]), default="order")
@click.option(
    "--measure",
    type=click.Choice(["folding", "product", "minimum", "maximum", "cosine", "euclidean"]),
    default="folding",
    show_default=True,
)
@click.option("--bits", default=8, show_default=True, help="Of the integer codes, 4 to 16.")
@click.option(
    "--range",
    "code_range",
    type=(float, float),
    default=(0.0, 1.0),
    show_default=True,
    help="Measures that the codes span; public, never taken from private records.",
)
@click.option("--rule", type=click.Choice(["tournament", "paper"]), default="tournament")
@click.option("--seed", default=0, show_default=True, help="Of all draws but noise and masks.")
@promise_options(required=False)
@click.option(
    "--adjacency",
    type=click.Choice(["replace", "add-remove"]),
    default="replace",
    show_default=True,
    help="private-*, kahm-record-private: what epsilon is about; add-remove is the weaker promise.",
)
@click.option(
    "--class-texts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="private-gradient, kahm-record-private: JSON of public texts of each class, for --encoder;"
    " whoever writes them must not look at records.",
)
@click.option("--smoothing", type=click.Choice(["sure", "none"]), default="sure")
@click.option("--ledgers", type=click.Path(path_type=Path), help="Books; default: SOURCE.ledgers.")
@click.option("--budget", type=float, help="Epsilon that a new ledger may spend, at --delta.")
@click.option(
    "--runtime",
    type=click.Choice(["local", "flower"]),
    default="local",
    show_default=True,
    help="flower: SOURCE is an app folder of `securefl flower app`, clients are other machines.",
)
@click.option("--superlink", help="--runtime flower: its name in Flower's config.toml.")
@click.option(
    "--federation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A federation.json made elsewhere: SOURCE is one party's data (a client's file, or a"
    " folder of them) and only its heads are trained.",
)
@trainer_options
@read_options
@output_options
def train(
    output: Output,
    source: Path,
    out: Path,
    classes: str | None,
    scale: float,
    encoder: str,
    batch_size: int,
    batching: str,
    measure: str,
    bits: int,
    code_range: tuple[float, float],
    rule: str,
    seed: int,
    epsilon: float | None,
    delta: float | None,
    unit: str | None,
    distance: float,
    norm: float | None,
    bounds: tuple[float, float] | None,
    grid: float,
    mechanism: str | None,
    smoothing: Any,
    ledgers: Path | None,
    budget: float | None,
    method: str,
    network: str,
    adjacency: Any,
    class_texts: Path | None,
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
    runtime: str,
    superlink: str | None,
    federation: Path | None,
    **settings: Any,
) -> None:
    """Train a head for every client file in the folder SOURCE and write the run folder.

    One pass, no rounds. A head stays with its client: it holds the client's records. With
    --epsilon, --delta and --unit every batch is released once with that privacy and the head holds
    the release alone. With --federation one party trains its own heads alone, the same as a joint
    run would give it.

    With --method kahm-record-private all clients make one public head together, of masked sums
    that hide every record; it lies in the run folder under every client's name. With the other
    methods they train one model together, in rounds of sums; `securefl predict` classifies with
    it. Noise is then --client-epsilon's, or for networks (--model) and private-* that of
    --epsilon, --delta and --unit record.
    """
    if runtime == "flower":
        _refuse_options_of_an_app()
        from cli.flower import run_app

        run_app(output, source, out, superlink)
        return
    _refuse_options_of_others(method, network)
    reading = make_read_options(label_column, ignore_column, features)
    record = None
    if method in RECORD_LEVEL or (network != "linear" and epsilon is not None):
        record = _record_promise(method, epsilon, delta, unit, norm, ledgers, budget)
        if method in RECORD_LEVEL:
            record = replace(record, adjacency=adjacency, class_texts=class_texts, encoder=encoder)
    if method not in ("kahm", RELEASED):
        train_rounds(
            output,
            source,
            out,
            classes=classes,
            scale=scale,
            seed=seed,
            reading=reading,
            method=method,
            network=network,
            record=record,
            **settings,
        )
        return
    given = [value is not None for value in (epsilon, delta, unit)]
    if any(given) and not all(given):
        raise click.UsageError("privacy needs all of --epsilon, --delta and --unit")
    if federation is not None:
        _refuse_options_of_a_federation()
    plan = None
    if record is None and epsilon is not None and delta is not None and unit is not None:
        from dp import Budget
        from secure_fl.heads.released import PrivacyPlan

        adjacency = make_adjacency(unit, distance, norm)
        plan = PrivacyPlan(
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            bounds=needed_bounds(bounds),
            grid=grid,
            mechanism=default_mechanism(unit, mechanism),
            smoothing=smoothing,
            budget=None if budget is None else Budget(budget, delta, adjacency),
        )
    facts = {
        "scale": scale,
        "encoder": encoder,
        "batch_size": batch_size,
        "batching": batching,
        "measure": measure,
        "bits": bits,
        "low": code_range[0],
        "high": code_range[1],
        "rule": rule,
        "unit": unit or "none",
    }
    known = tuple(classes.split(",")) if classes else None
    if record is not None:
        _train_released(output, source, out, reading, known, facts, record, seed, settings)
        return
    books = ledgers or source.with_name(source.name + ".ledgers")
    from cli.heads import train_heads

    train_heads(output, source, out, reading, federation, known, facts, plan, books, seed)


def _train_released(
    output: Output,
    source: Path,
    out: Path,
    reading: Any,
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    record: RecordPromise,
    seed: int,
    settings: dict[str, Any],
) -> None:
    from cli.heads import train_released_heads
    from secure_fl.errors import InputError

    if settings["aggregate"] != "secure":
        raise InputError(
            f"{RELEASED}: needs masked sums (--aggregate secure), the server must see sums alone"
        )
    given = click.get_current_context().get_parameter_source("code_range")
    assert record.norm is not None
    train_released_heads(
        output,
        source,
        out,
        reading,
        classes,
        facts,
        record,
        settings["ledger"] or source.with_name(source.name + ".ledger"),
        seed,
        fit_range=given is not ParameterSource.COMMANDLINE,
    )


def _refuse_options_of_a_federation() -> None:
    """What the federation agreed on cannot be changed by one party: refuse it."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in _AGREED:
            raise click.UsageError(
                f"{parameter.opts[0]} has no meaning beside --federation, whose file says it"
            )


_AGREED = frozenset(
    {
        *("classes", "scale", "encoder", "batch_size", "batching", "measure", "bits"),
        *("code_range", "rule"),
    }
)


_KAHM_ONLY = frozenset(
    {
        *("encoder", "batch_size", "batching", "measure", "bits", "code_range", "rule"),
        *("epsilon", "delta", "unit", "distance", "norm", "bounds", "grid", "mechanism"),
        *("smoothing", "ledgers", "budget", "federation", "adjacency", "class_texts"),
    }
)


RELEASED = "kahm-record-private"
RECORD_LEVEL = {"private-ridge", "private-gradient", RELEASED}


def _refuse_options_of_an_app() -> None:
    """The app folder says how to train; an option beside it could only mislead: refuse it."""
    context = click.get_current_context()
    fine = {"source", "out", "runtime", "superlink", "as_json", "quiet", "verbose"}
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name not in fine:
            raise click.UsageError(
                f"{parameter.opts[0]} has no meaning for --runtime flower; the app folder says how"
                " to train (securefl flower app)"
            )


def _record_promise(
    method: str,
    epsilon: float | None,
    delta: float | None,
    unit: str | None,
    norm: float | None,
    ledgers: Path | None,
    budget: float | None,
) -> RecordPromise:
    missing = method in RECORD_LEVEL and norm is None
    if epsilon is None or delta is None or unit != "record" or missing:
        more = ", --unit record and --norm" if method in RECORD_LEVEL else " and --unit record"
        raise click.UsageError(f"--method {method} needs all of --epsilon, --delta{more}")
    return RecordPromise(epsilon, delta, norm, ledgers, budget)


def _refuse_options_of_others(method: str, network: str) -> None:
    """An option that the method does not know could only mislead: refuse it."""
    context = click.get_current_context()
    wrong = _KAHM_ONLY if method != "kahm" else TRAINERS_ONLY | {"adjacency", "class_texts"}
    if method == RELEASED:
        of_a_head = {"encoder", "measure", "bits", "code_range", "rule"}
        wrong = (wrong | TRAINERS_ONLY) - of_a_head - {"aggregate", "ledger"}
    if method in RECORD_LEVEL:
        wrong -= {"epsilon", "delta", "unit", "norm", "adjacency"}
        if method != "private-ridge":
            wrong -= {"class_texts", "encoder"}
    elif method != "kahm" and network != "linear":
        wrong -= {"epsilon", "delta", "unit", "ledgers", "budget"}
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in wrong:
            instead = "; noise is --client-epsilon's" if parameter.name == "epsilon" else ""
            raise click.UsageError(
                f"{parameter.opts[0]} has no meaning for --method {method}{instead}"
            )

"""`securefl train`: clients' files in, a run folder out."""

from pathlib import Path
from typing import Any

import click

from cli.data import make_read_options, read_options
from cli.dp import default_mechanism, make_adjacency, needed_bounds, promise_options
from cli.methods import chosen_method, method_options, refuse_given, was_given
from cli.networks import RecordPromise
from cli.output import Output, output_options
from cli.trainers import TRAINERS_ONLY, train_rounds, trainer_options
from secure_fl.trainers.methods.kahm import CodedHeads
from secure_fl.trainers.registry import find
from secure_fl.trainers.settings import Settings


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run folder.")
@click.option("--classes", help="Class names, separated by commas; default: those in the files.")
@click.option("--scale", default=1.0, show_default=True, help="Constant factor on the features.")
@click.option("--encoder", default="none", show_default=True, help="What made the features.")
@click.option("--seed", default=0, show_default=True, help="Of all draws but noise and masks.")
@promise_options(required=False)
@click.option("--smoothing", type=click.Choice(["sure", "none"]), default="sure")
@click.option(
    "--ledgers",
    type=click.Path(path_type=Path),
    help="Folder of the clients' books; default: CLIENTS.ledgers beside their folder.",
)
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
@method_options
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
    model: str,
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
    it. Noise is then --client-epsilon's, or for networks (--model) and private-ridge that of
    --epsilon, --delta and --unit record.
    """
    if runtime == "flower":
        _refuse_options_of_an_app()
        from cli.flower import run_app

        run_app(output, source, out, superlink)
        return
    chosen = chosen_method(method, model, settings)
    _refuse_options_of_others(chosen)
    reading = make_read_options(label_column, ignore_column, features)
    record = None
    if method in RECORD_LEVEL or (chosen.family == "network" and epsilon is not None):
        record = _record_promise(method, epsilon, delta, unit, norm, ledgers, budget)
    if method not in ("kahm", RELEASED):
        train_rounds(
            output,
            source,
            out,
            classes=classes,
            scale=scale,
            seed=seed,
            reading=reading,
            settings=chosen,
            record=record,
            **settings,
        )
        return
    assert isinstance(chosen, CodedHeads)
    given = [value is not None for value in (epsilon, delta, unit)]
    if not any(given):
        refuse_given(_OF_A_RELEASE, "without --epsilon, --delta and --unit")
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
        **chosen.facts(),
        "unit": unit or "none",
    }
    known = tuple(classes.split(",")) if classes else None
    if record is not None:
        fit_range = chosen.spanned is None
        _train_released(
            output, source, out, reading, known, facts, record, seed, settings, fit_range
        )
        return
    from cli.heads import train_heads

    train_heads(output, source, out, reading, federation, known, facts, plan, ledgers, seed)


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
    fit_range: bool,
) -> None:
    from cli.heads import train_released_heads
    from secure_fl.errors import InputError

    if settings["aggregate"] != "secure":
        raise InputError(
            f"{RELEASED}: needs masked sums (--aggregate secure), the server must see sums alone"
        )
    assert record.norm is not None
    train_released_heads(
        output,
        source,
        out,
        reading,
        classes,
        facts,
        (record.epsilon, record.delta, record.norm),
        settings["ledger"],
        seed,
        fit_range=fit_range,
    )


def _refuse_options_of_a_federation() -> None:
    """What the federation agreed on cannot be changed by one party: refuse it."""
    refuse_given(_AGREED, "beside --federation, whose file says it")


_AGREED = frozenset({"classes", "scale", "encoder"}) | {
    declared.name for declared in find("kahm").declared()
}
_OF_A_RELEASE = frozenset(
    {"distance", "norm", "bounds", "grid", "mechanism", "smoothing", "ledgers", "budget"}
)
_OF_HEADS = _OF_A_RELEASE | {"encoder", "epsilon", "delta", "unit", "federation"}


PRIVATE, RELEASED = "private-ridge", "kahm-record-private"
RECORD_LEVEL = {PRIVATE, RELEASED}


def _refuse_options_of_an_app() -> None:
    """The app folder says how to train; an option beside it could only mislead: refuse it."""
    context = click.get_current_context()
    fine = {"source", "out", "runtime", "superlink", "as_json", "quiet"}
    every = {parameter.name for parameter in context.command.params if parameter.name}
    refuse_given(
        every - fine, "for --runtime flower; the app folder says how to train (securefl flower app)"
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


def _refuse_options_of_others(settings: Settings) -> None:
    """An option that the method does not know could only mislead: refuse it."""
    wrong = TRAINERS_ONLY if settings.family == "heads" else _OF_HEADS
    if settings.method == RELEASED:
        wrong = (_OF_HEADS | TRAINERS_ONLY) - {"encoder", "aggregate", "ledger"}
    if settings.method in RECORD_LEVEL:
        wrong -= {"epsilon", "delta", "unit", "norm"}
    elif settings.family == "network":
        wrong -= {"epsilon", "delta", "unit", "ledgers", "budget"}
        if not was_given("epsilon"):
            refuse_given({"ledgers", "budget"}, "without --epsilon, --delta and --unit")
    refuse_given(
        wrong & {"epsilon"}, f"for --method {settings.method}; noise is --client-epsilon's"
    )
    refuse_given(wrong, f"for --method {settings.method}")

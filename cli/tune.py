"""`securefl tune`: settings by cross-validation, one masked sum each."""

import itertools
from pathlib import Path
from typing import Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING
from cli.scaling import chosen_scaling, scaling_options


def _listed(kind: Any) -> Any:
    """A callback that reads values with commas."""

    def convert(_: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        if text is None:
            return None
        try:
            found = [kind(part) for part in text.split(",")]
        except ValueError:
            raise click.BadParameter(f"{text!r}: expected values with commas") from None
        return tuple(found)

    return convert


def _kernel(text: str) -> tuple[str, float]:
    kind, colon, factor = text.partition(":")
    return kind, float(factor) if colon else 1.0


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    return float(low), float(high)


@click.command()
@click.argument("source", type=EXISTING)
@click.option(
    "--out",
    type=ANY_PATH,
    help="Heads: a file with what was tried, for `train --tuned`.",
)
@click.option("--batch-sizes", callback=_listed(int), help="Heads: e.g. 2,5,20,100.")
@click.option(
    "--lambdas",
    callback=_listed(_kernel),
    help="Heads: e.g. absolute,relative-floor:0.04,relative:1, with the factor on lambda.",
)
@click.option("--measures", callback=_listed(str), help="Heads: e.g. folding,product.")
@click.option("--bits", callback=_listed(int), help="Heads: of the codes; default: no rounding.")
@click.option("--ranges", callback=_listed(_range), help="Heads, with --bits: e.g. 0:1,0:0.5.")
@click.option("--methods", callback=_listed(str), help="Methods by rounds or sums, not heads.")
@click.option("--rates", callback=_listed(float), help="--methods: learning rates, e.g. 0.01,0.1.")
@click.option("--seed", default=0, show_default=True, help="--methods: of all draws but masks.")
@scaling_options
@click.option("--classes", help="Class names, separated by commas; default: those in the files.")
@read_options
@output_options
def tune(
    output: Output,
    source: Path,
    out: Path | None,
    batch_sizes: tuple[int, ...] | None,
    lambdas: tuple[tuple[str, float], ...] | None,
    measures: tuple[str, ...] | None,
    bits: tuple[int, ...] | None,
    ranges: tuple[tuple[float, float], ...] | None,
    methods: tuple[str, ...] | None,
    rates: tuple[float, ...] | None,
    seed: int,
    scale: float,
    scaling: str | None,
    public: Path | None,
    classes: str | None,
    **reading: Any,
) -> None:
    """Choose settings for the clients in SOURCE, or for one file of public records.

    Records are left out in turn, and the clients' right answers and losses are summed, masked, once
    a setting; nobody learns more. Heads are chosen by the least loss, models by the most right
    answers. The sums are not private in the sense of differential privacy: where that is promised,
    tune on public records.
    """
    from secure_fl.data import ClassList, read_clients

    known = ClassList(tuple(classes.split(","))) if classes else None
    options = make_read_options(**reading)
    with output.progress() as progress:
        clients = read_clients(
            source, options, classes=known, progress=lambda i, n: progress("reading", i, n)
        )
        mapped = chosen_scaling(scaling, public, options, clients, False, output)
        if methods is None:
            refuse_given({"rates", "seed"}, "without --methods")
            choices = _choices(batch_sizes, lambdas, measures, bits, ranges)
            rows = _tune_heads(clients, mapped, scale, choices, out, progress)
        else:
            refuse_given(_OF_HEADS, "beside --methods")
            rows = _tune_models(clients, mapped, scale, seed, methods, rates, progress)
    best = min(rows, key=lambda row: row.get("loss", -row["right"]))
    data = {"tried": rows, "best": best["settings"], "out": None if out is None else str(out)}
    columns = ["settings", "right", "records", *(["loss"] if methods is None else [])]
    shown = [[row[column] for column in columns] for row in rows]
    heading = ["of" if column == "records" else column for column in columns]
    output.table(data, f"{source}: settings tried", heading, shown)
    output.note(f"best: securefl train ... {best['settings']}")


_OF_HEADS = frozenset({"out", "batch_sizes", "lambdas", "measures", "bits", "ranges"})


def _choices(
    batch_sizes: Any, lambdas: Any, measures: Any, bits: Any, ranges: Any
) -> tuple[Any, ...]:
    """The settings of heads to try: the default ones, or all combinations of what was given."""
    import attrs

    from kahm import MEASURES, REGULARISATIONS
    from secure_fl.trainers.head_tuning import CANDIDATES, HeadChoice

    _known("lambdas", [kind for kind, _ in lambdas or ()], REGULARISATIONS)
    _known("measures", measures or (), MEASURES)
    for size in bits or ():
        if not 4 <= size <= 16:
            raise click.UsageError(f"--bits: {size}, expected 4 to 16")
    for low, high in ranges or ():
        if not 0 <= low < high <= 1:
            raise click.UsageError(f"--ranges: {low:g}:{high:g}, expected LOW:HIGH within 0:1")
    if ranges and not bits:
        raise click.UsageError("--ranges needs --bits")
    if batch_sizes is None and lambdas is None:
        kernels: Any = CANDIDATES
    else:
        kernels = [
            HeadChoice(batch_size=size, regularisation=kind, regularisation_factor=factor)
            for size in batch_sizes or (2, 5, 20, 100)
            for kind, factor in lambdas or (("relative-floor", 0.04), ("relative-floor", 1.0))
        ]
    codes = itertools.product(measures or ("folding",), bits or (None,), ranges or ((0.0, 1.0),))
    return tuple(
        attrs.evolve(kernel, measure=measure, bits=size, low=low, high=high)
        for measure, size, (low, high) in codes
        for kernel in kernels
    )


def _known(option: str, given: Any, words: Any) -> None:
    for word in given:
        if word not in words:
            raise click.UsageError(f"--{option}: {word!r}, expected of {', '.join(words)}")


def _tune_heads(
    clients: Any, scaling: Any, scale: float, choices: Any, out: Path | None, progress: Any
) -> list[dict[str, Any]]:
    from secure_fl.files import refuse_existing
    from secure_fl.trainers.head_tuning import tune_head
    from secure_fl.trainers.methods.kahm import KAHMHeads
    from secure_fl.training.preparing import scalings_for
    from secure_fl.training.tuning import save_tuned

    if out is not None:
        refuse_existing(out)
    scalings = scalings_for(clients, scaling, scale, KAHMHeads())
    tried = tune_head(clients, scalings, choices, progress)
    if out is not None:
        save_tuned(out, tried)
    return [
        {
            "settings": each.text(),
            "right": each.right,
            "records": each.records,
            "loss": each.loss,
        }
        for each in tried
    ]


def _tune_models(
    clients: Any,
    scaling: Any,
    scale: float,
    seed: int,
    methods: Any,
    rates: Any,
    progress: Any,
) -> list[dict[str, Any]]:
    from secure_fl.trainers.registry import hiding_records, make, names
    from secure_fl.training.tuning import tune_models

    runnable = [name for name in names("linear") if name not in hiding_records()]
    _known("methods", methods, runnable)
    candidates = []
    for name in methods:
        declared = {each.name for each in type(make(name, "linear", {})).declared()}
        if rates is not None and "learning_rate" in declared:
            candidates += [make(name, "linear", {"learning_rate": rate}) for rate in rates]
        else:
            candidates.append(make(name, "linear", {}))
    found = tune_models(
        clients,
        candidates,
        secure=len(clients) > 1,
        scaling=scaling,
        scale=scale,
        seed=seed,
        progress=progress,
    )
    return [
        {
            "settings": _model_text(each.method, rates),
            "right": each.right,
            "records": each.records,
            "diverged": each.diverged,
        }
        for each in found
    ]


def _model_text(method: Any, rates: Any) -> str:
    rate = getattr(method, "learning_rate", None)
    shown = "" if rates is None or rate is None else f" --learning-rate {rate:g}"
    return f"--method {method.method}{shown}"

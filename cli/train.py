"""`securefl train`: clients' files in, a run folder out."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli.data import make_read_options, read_options
from cli.dp import default_mechanism, make_adjacency, needed_bounds, promise_options
from cli.output import Output, human_bytes, output_options
from cli.trainers import TRAINERS_ONLY, train_rounds, trainer_options

if TYPE_CHECKING:
    from dp import Statement
    from secure_fl.manifest import Manifest

BOUND_DELTA = 0.05
"""The bounds that are printed hold with probability 1 minus this."""


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
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
    runtime: str,
    superlink: str | None,
    **settings: Any,
) -> None:
    """Train a head for every client file in the folder SOURCE and write the run folder.

    One pass, no rounds. A head stays with its client: it holds the client's records. With
    --epsilon, --delta and --unit every batch is released once with that privacy and the head holds
    the release alone.

    With another --method than kahm, the clients train one linear model together, in rounds of
    sums; `securefl predict` classifies with it. Noise is then --client-epsilon's.
    """
    if runtime == "flower":
        _refuse_options_of_an_app()
        from cli.flower import run_app

        run_app(output, source, out, superlink)
        return
    _refuse_options_of_others(method)
    reading = make_read_options(label_column, ignore_column, features)
    if method != "kahm":
        train_rounds(
            output,
            source,
            out,
            classes=classes,
            scale=scale,
            seed=seed,
            reading=reading,
            method=method,
            record=_record_promise(epsilon, delta, unit, norm) if method == PRIVATE else None,
            **settings,
        )
        return
    from secure_fl._files import refuse_existing

    given = [value is not None for value in (epsilon, delta, unit)]
    if any(given) and not all(given):
        raise click.UsageError("privacy needs all of --epsilon, --delta and --unit")
    refuse_existing(out)
    plan = None
    if epsilon is not None and delta is not None and unit is not None:
        from dp import Budget
        from secure_fl.private_training import PrivacyPlan

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
    from secure_fl.data import ClassList, read_clients
    from secure_fl.encoders import SentenceEncoder
    from secure_fl.manifest import make_manifest
    from secure_fl.run import create_run
    from secure_fl.training import train_heads

    known = ClassList(tuple(classes.split(","))) if classes else None
    with output.progress() as progress:
        clients = read_clients(
            source,
            reading,
            classes=known,
            progress=lambda i, n: progress("reading", i, n),
        )
        manifest = make_manifest(
            classes=clients[0].classes,
            clients=tuple(client.name for client in clients),
            n_features=clients[0].n_features,
            features=clients[0].features,
            scale=scale,
            encoder=encoder,
            encoder_fingerprint="" if encoder == "none" else SentenceEncoder(encoder).fingerprint,
            batch_size=batch_size,
            batching=batching,
            measure=measure,
            bits=bits,
            low=code_range[0],
            high=code_range[1],
            rule=rule,
            unit=unit or "none",
        )
        scaled = [(each.name, each.X * each.X.dtype.type(scale), each.y) for each in clients]
        statements: list[tuple[str, Statement]] = []
        if plan is None:
            heads = train_heads(scaled, manifest, seed=seed, progress=progress)
        else:
            from secure_fl.private_training import train_private_heads

            books = ledgers or source.with_name(source.name + ".ledgers")
            heads, statements = train_private_heads(scaled, manifest, plan, books, progress)
        sizes = create_run(out, heads, manifest, statements)
    machines = {head.client: head.bank.n_machines for head in heads}
    counts: Counter[str] = Counter()
    for client in clients:
        counts.update(dict(zip(client.classes, client.counts().tolist(), strict=True)))
    _show(output, out, manifest, machines, sizes, counts, statements)


_KAHM_ONLY = frozenset(
    {
        *("encoder", "batch_size", "batching", "measure", "bits", "code_range", "rule"),
        *("epsilon", "delta", "unit", "distance", "norm", "bounds", "grid", "mechanism"),
        *("smoothing", "ledgers", "budget"),
    }
)


PRIVATE = "private-ridge"


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
    epsilon: float | None, delta: float | None, unit: str | None, norm: float | None
) -> tuple[float, float, float]:
    if epsilon is None or delta is None or unit != "record" or norm is None:
        raise click.UsageError(
            f"--method {PRIVATE} needs all of --epsilon, --delta, --unit record and --norm"
        )
    return epsilon, delta, norm


def _refuse_options_of_others(method: str) -> None:
    """An option that the method does not know could only mislead: refuse it."""
    context = click.get_current_context()
    wrong = _KAHM_ONLY if method != "kahm" else TRAINERS_ONLY
    if method == PRIVATE:
        wrong -= {"epsilon", "delta", "unit", "norm"}
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in wrong:
            instead = "; noise is --client-epsilon's" if parameter.name == "epsilon" else ""
            raise click.UsageError(
                f"{parameter.opts[0]} has no meaning for --method {method}{instead}"
            )


def _show(
    output: Output,
    out: Path,
    manifest: "Manifest",
    machines: dict[str, int],
    sizes: dict[str, int],
    counts: dict[str, int],
    statements: "list[tuple[str, Statement]]",
) -> None:
    import attrs

    from secure_fl.federation_bounds import class_bounds

    bounds = class_bounds(counts, BOUND_DELTA)
    data = {
        "run": str(out),
        "federation": manifest.fingerprint,
        "clients": {
            name: {"machines": machines[name], "head_bytes": sizes[name]} for name in machines
        },
        "bounds_delta": BOUND_DELTA,
        "bounds": [
            {
                **{field: getattr(bound, field) for field in ("label", "records")},
                # A class without records has an infinite bound, which JSON cannot hold.
                **{
                    field: min(getattr(bound, field), 1e308)
                    for field in ("prediction", "hypothesis", "approximation")
                },
                "verdict": bound.verdict,
            }
            for bound in bounds
        ],
        "privacy": {name: statement.to_json() for name, statement in statements} or None,
        "manifest": attrs.asdict(manifest),
    }
    rows = [[name, machines[name], human_bytes(sizes[name])] for name in machines]
    output.table(data, f"{out}: {len(machines)} heads", ["client", "machines", "head"], rows)
    if output.as_json or output.quiet:
        return
    total = sum(counts.values())
    click.echo(
        f"Error bounds for N = {total:,} records, with probability {1 - BOUND_DELTA:g}"
        " (theorems 3, 6, 7; if labels follow from features and the rule is right on every record):"
    )
    for bound in bounds[:10]:
        click.echo(
            f"  class {bound.label}, N_c = {bound.records:,}: {bound.prediction:.3g},"
            f" {bound.hypothesis:.3g}, {bound.approximation:.3g} ({bound.verdict})"
        )
    if len(bounds) > 10:
        click.echo(f"  ... {len(bounds) - 10} more classes, --json shows them all")
    if not statements:
        click.echo("Privacy: no guarantee; a head holds its client's records and must stay there.")
        return
    click.echo(f"Privacy, statement of client {statements[0][0]} (the others' differ in sizes):")
    click.echo(statements[0][1].text())

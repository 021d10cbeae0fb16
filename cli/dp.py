"""`securefl dp`: plan, release a matrix, look at the books, attack the promise."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.output import Output, output_options, with_options
from cli.paths import ANY_PATH, EXISTING_FILE

if TYPE_CHECKING:
    from dp import Audit
    from secure_fl.privacy.promises import ReleasePromise

Command: TypeAlias = Callable[..., None]

UNITS = ("element", "record")
MECHANISMS = ("optimal", "geometric", "staircase", "gaussian")


def promise_options(*, required: bool) -> Callable[[Command], Command]:
    """Options of a differentially private release."""

    def decorate(function: Command) -> Command:
        options = (
            click.option("--epsilon", type=float, required=required, help="Above 0, per unit."),
            click.option("--delta", type=float, required=required, help="In [0, 1)."),
            click.option(
                "--unit",
                type=click.Choice(UNITS),
                required=required,
                help="What epsilon protects: one matrix element, or one whole record.",
            ),
            click.option("--distance", default=1.0, show_default=True, help="element: its change."),
            click.option("--norm", type=float, help="record: rows are clipped to this L2 norm."),
            click.option(
                "--bounds", type=(float, float), help="Public bounds of (scaled) features; needed."
            ),
            click.option("--grid", default=2.0**-10, show_default=True, help="Public step."),
            click.option("--mechanism", type=click.Choice(MECHANISMS), help="Default: by unit."),
        )
        added: Command = with_options(function, options)
        return added

    return decorate


def release_promise(
    epsilon: float,
    delta: float,
    unit: str,
    *,
    distance: float,
    norm: float | None,
    bounds: tuple[float, float] | None,
    grid: float,
    mechanism: str | None,
    smoothing: Any = "sure",
    budget: float | None = None,
) -> "ReleasePromise":
    """The options of `promise_options` as one promise.

    Raises:
        dp.InputError: a distance or norm out of range, a record without a norm, or no bounds.
    """
    from dp import Budget, Element, InputError, Record
    from secure_fl.privacy.promises import ReleasePromise

    refuse_given({"norm"} if unit == "element" else {"distance"}, f"for --unit {unit}")
    if unit == "record" and norm is None:
        raise InputError("unit record: norm missing; give --norm, a public L2 norm of a record")
    if bounds is None:
        raise InputError(
            "bounds: missing; give --bounds LOW HIGH, public limits of the features (taken from"
            " the data they would leak)"
        )
    adjacency = Element(distance) if norm is None or unit == "element" else Record(norm)
    return ReleasePromise(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        bounds=bounds,
        grid=grid,
        mechanism=mechanism,
        smoothing=smoothing,
        budget=None if budget is None else Budget(budget, delta, adjacency),
    )


@click.group()
def dp() -> None:
    """Differentially private release: plan, release, account, audit."""


@dp.command()
@click.argument("public", required=False, type=EXISTING_FILE)
@promise_options(required=True)
@click.option("--smoothing", type=click.Choice(["sure", "none"]), default="sure")
@click.option("--columns", type=click.IntRange(1), help="Features of a record, without PUBLIC.")
@click.option("--clients", type=click.IntRange(1), default=3, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=100, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Releases.")
@click.option("--scale", default=1.0, show_default=True, help="Constant factor on the features.")
@click.option(
    "--scaling",
    type=click.Choice(["range", "none", "moments", "floored", "common"]),
    default="none",
    show_default=True,
    help="range: every feature to [0, 1] by the ranges of PUBLIC, before --scale. The last three:"
    " by means and deviations that are released before, of records clipped to those ranges.",
)
@click.option("--seed", default=0, show_default=True, help="Of the split, not of the noise.")
@read_options
@output_options
def plan(
    output: Output,
    public: Path | None,
    columns: int | None,
    smoothing: Any,
    clients: int,
    batch_size: int,
    runs: int,
    scale: float,
    scaling: str,
    seed: int,
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
    **promise: Any,
) -> None:
    """Say what a release will be like, and spend nothing.

    Noise against range, and what the promise implies for a whole record. With PUBLIC, a file of
    labelled public records of the same shape, and best as many, also the accuracy of heads trained
    on releases of them. The private records are not read.
    """
    from secure_fl.training.planning import expected_accuracy, outlook
    from secure_fl.training.released_scaling import refuse_released

    moments = scaling not in ("range", "none")
    made = release_promise(**promise, smoothing=smoothing)
    if moments:
        # Their clip are the ranges of PUBLIC, or what will be given when it is trained.
        refuse_released(made, 1.0, sums=False)
    if public is None:
        needs = _OF_PUBLIC_RECORDS | (frozenset() if moments else frozenset({"scaling"}))
        refuse_given(needs, "without PUBLIC, a file of public records")
        if columns is None:
            raise click.UsageError("give PUBLIC, a file of public records, or --columns")
        found = outlook(made, columns, moments=moments)
    else:
        refuse_given({"columns"}, "beside PUBLIC, which says it")
        from secure_fl.data import Scaling, read_clients
        from secure_fl.data.scaling import ranges_of
        from secure_fl.trainers.registry import make

        reading = make_read_options(label_column, ignore_column, features)
        (data,) = read_clients(public, reading)
        ranges = ranges_of(data.X, scale)
        asked: Any = {"range": ranges, "none": Scaling(factor=scale)}.get(scaling, scaling)
        with output.progress() as progress:
            expected = expected_accuracy(
                data,
                made,
                make("kahm", "heads", {"batch_size": batch_size}),
                clients=clients,
                runs=runs,
                scaling=asked,
                scale=scale,
                moments_clip=ranges if moments else None,
                seed=seed,
                progress=progress,
            )
        largest = len(data) // clients
        found = outlook(made, data.n_features, expected, largest, moments=moments)
    output.result(found.to_json(), found.text())
    for remark in found.remarks:
        output.note(f"remark: {remark}")


_OF_PUBLIC_RECORDS = frozenset({"clients", "batch_size", "runs", "scale", "seed"}) | {
    *("label_column", "ignore_column", "features"),
}


@dp.command()
@click.argument("source", type=EXISTING_FILE)
@click.argument("out", type=ANY_PATH)
@promise_options(required=True)
@click.option("--smoothing", type=click.Choice(["sure", "none", "oracle"]), default="sure")
@click.option(
    "--no-guarantee", is_flag=True, help="Allow --smoothing oracle, whose release has no guarantee."
)
@click.option("--ledger", type=ANY_PATH, help="The data set's books; needed.")
@output_options
def release(
    output: Output,
    source: Path,
    out: Path,
    smoothing: Any,
    no_guarantee: bool,
    ledger: Path | None,
    **promise: Any,
) -> None:
    """Release the matrix in SOURCE (.npy) once, into the new folder OUT, with its statement."""
    import json

    import numpy as np

    from dp import InputError, prepare_batches
    from secure_fl.files import new_folder, reserve
    from secure_fl.heads.queries import read_matrix
    from secure_fl.privacy.ledgers import books_of_matrix
    from secure_fl.privacy.remarks import release_remarks

    if smoothing == "oracle" and not no_guarantee:
        raise InputError(
            "smoothing oracle: looks at the private matrix, so its release has no guarantee; use"
            " sure, or say --no-guarantee for research"
        )
    if ledger is None and smoothing != "oracle":
        raise InputError("ledger: missing; give --ledger FILE, where all releases are kept")
    with new_folder(out) as aside:
        matrix = read_matrix(source)
        # Before anything is booked: what was spent must not be lost for want of room.
        free = reserve(aside, [8 * matrix.size + (1 << 16), *[1 << 20] * 2])
        made_promise = release_promise(**promise, smoothing=smoothing)
        for remark in release_remarks(made_promise, matrix.shape[1], len(matrix)):
            output.note(f"remark: {remark}")
        prepared = prepare_batches(
            [matrix],
            **made_promise.terms(),
            batching="order",
            purpose=f"release of {source.name}"[:200],
        )
        books = None
        if ledger is not None:
            books = books_of_matrix(source, matrix, ledger)
            for other in books.others:
                output.note(f"{other.path}: another book of the same records, which adds up")
        digest = None if books is None else books.spend(prepared.event)
        made = prepared.release(books, digest)
        free()
        np.save(aside / "released.npy", made.matrices[0])
        (aside / "statement.json").write_text(json.dumps(made.statement.to_json(), indent=2))
        (aside / "statement.txt").write_text(made.statement.text() + "\n")
    output.result(made.statement.to_json(), made.statement.text())


@dp.command()
@click.argument("ledger", type=EXISTING_FILE)
@click.option("--delta", type=float, required=True, help="At which to state epsilon.")
@output_options
def account(output: Output, ledger: Path, delta: float) -> None:
    """State what the data set's events have cost together, for every unit."""
    from dp import Ledger
    from dp.events import finite

    books = Ledger.open(ledger)
    totals, lines = [], [f"data set {books.data_set}: {len(books.events)} events"]
    for adjacency in books.units:
        total = books.get_epsilon(delta, adjacency)
        least = books.finite_epsilon(delta, adjacency)
        totals.append(
            {
                "unit": adjacency.unit,
                "epsilon": finite(total.epsilon),
                "rule": total.rule,
                "finite": {"epsilon": finite(least.epsilon), "delta": least.delta},
            }
        )
        if total == least:
            lines.append(
                f"epsilon {total.epsilon:.4g} at delta {delta:g} per {adjacency.unit}"
                f" ({total.rule})"
            )
        else:
            lines.append(
                f"no finite epsilon at delta {delta:g} per {adjacency.unit} ({total.rule}); the"
                f" least delta that has one is {least.delta:.3g}: epsilon {least.epsilon:.4g}"
                f" ({least.rule})"
            )
    data = {
        "data_set": books.data_set,
        "events": len(books.events),
        "delta": delta,
        "totals": totals,
    }
    output.result(data, "\n".join(lines))


@dp.command()
@promise_options(required=True)
@click.option("--runs", default=200_000, show_default=True, help="Releases of each neighbour.")
@click.option("--confidence", default=0.99, show_default=True)
@click.option(
    "--noise-epsilon", type=float, help="Draw the noise of this epsilon instead, to see it fail."
)
@click.option(
    "--method",
    type=click.Choice(["release", "kahm-record-private", "private-gradient"]),
    default="release",
    show_default=True,
    help="What is attacked: the release of matrices, or the noisy sums of a record-level head.",
)
@click.option(
    "--adjacency",
    type=click.Choice(["replace", "add-remove"]),
    default="replace",
    show_default=True,
    help="Of a record-level head: a record replaced, or added or removed.",
)
@click.option(
    "--noise-share", default=1.0, show_default=True, help="Of a head's noise, to see it fail."
)
@output_options
def audit(
    output: Output,
    runs: int,
    confidence: float,
    noise_epsilon: float | None,
    method: Any,
    adjacency: Any,
    noise_share: float,
    **promise: Any,
) -> None:
    """Attack two neighbouring data sets through the real code and bound epsilon from below."""
    from dp import audit as attack

    if method != "release":
        refuse_given({"distance", "bounds", "grid", "mechanism"}, f"for --method {method}")
        _audit_head(
            output,
            promise["unit"],
            noise_epsilon,
            method=method,
            epsilon=promise["epsilon"],
            delta=promise["delta"],
            adjacency=adjacency,
            norm=1.0 if promise["norm"] is None else promise["norm"],
            runs=runs,
            confidence=confidence,
            noise_share=noise_share,
        )
        return
    refuse_given({"adjacency", "noise_share"}, "for --method release")
    terms = release_promise(**promise).terms()
    # The attack is on the noise; smoothing comes after it.
    del terms["smoothing"]
    found = attack(
        **terms,
        runs=runs,
        confidence=confidence,
        noise_epsilon=noise_epsilon,
    )
    _show_audit(output, found)


def _audit_head(output: Output, unit: str, noise_epsilon: float | None, **promise: Any) -> None:
    from secure_fl.training.record_audit import audit_records

    if unit != "record" or noise_epsilon is not None:
        raise click.UsageError(
            f"--method {promise['method']}: needs --unit record, and --noise-share in place of"
            " --noise-epsilon"
        )
    _show_audit(output, audit_records(**promise))


def _show_audit(output: Output, found: "Audit") -> None:
    output.result(found.to_json(), found.text())
    if not found.passed:
        raise click.exceptions.Exit(1)

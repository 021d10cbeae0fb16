"""`securefl data calibrate`: a threshold for "none of these", from public labelled records."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import Output, output_options
from cli.paths import EXISTING, EXISTING_FILE

if TYPE_CHECKING:
    from secure_fl.heads.confidence import Point


@click.command()
@click.argument("public", type=EXISTING_FILE)
@click.option("--run", required=True, type=EXISTING)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Of records of known classes that get a class; default: 0.95.",
)
@click.option(
    "--accuracy", type=click.FloatRange(0, 1, min_open=True), help="That the answers should have."
)
@click.option("--unknown-above", type=float, help="A threshold of your own.")
@click.option("--set", "write", is_flag=True, help="Write it into the run's federation.json.")
@click.option("--seed", default=0, show_default=True, help="Of the division of the records.")
@click.option("--label-column", default="label", show_default=True, help="csv: the label.")
@click.option("--ignore-column", multiple=True, help="csv: a column to leave out.")
@click.option("--features", type=click.IntRange(1), help="LIBSVM: number of features.")
@output_options
def calibrate(
    output: Output,
    public: Path,
    run: Path,
    share: float | None,
    accuracy: float | None,
    unknown_above: float | None,
    write: bool,
    seed: int,
    **reading: Any,
) -> None:
    """Find a threshold above which a query is "unknown", on the PUBLIC labelled records.

    They are divided into folds, measured under heads of the other folds with the federation's
    options. No head and no record of a client is read: what comes out is public. --set writes
    threshold and temperature into federation.json; heads stay valid, keys are made anew.
    """
    import attrs
    import numpy as np

    from cli.data import make_read_options
    from secure_fl.data import ClassList
    from secure_fl.errors import InputError
    from secure_fl.heads.confidence import coded_share, fitted_temperature, held_out, set_threshold
    from secure_fl.heads.manifest import load_manifest, save_manifest
    from secure_fl.heads.queries import read_queries

    if sum(each is not None for each in (share, accuracy, unknown_above)) > 1:
        raise click.UsageError("give one of --share, --accuracy and --unknown-above")
    manifest = load_manifest(run)
    options = make_read_options(**reading)
    X, labels = read_queries(public, manifest, options, slice(None))
    if labels is None:
        raise InputError(f"{public}: holds no labels; give public records with their classes")
    known = ClassList(manifest.classes)
    y = known.codes(labels, client="", where=lambda i: f"record {i} of {public}")
    with output.progress() as progress:
        held = held_out(X, y, manifest, np.random.default_rng(seed), progress=progress)
    if accuracy is not None:
        threshold = held.threshold_for_accuracy(accuracy)
    elif unknown_above is not None:
        threshold = unknown_above
    else:
        threshold = held.threshold_for_share(0.95 if share is None else share)
    temperature = fitted_temperature(held.smallest, y)
    changed = set_threshold(manifest, threshold, temperature)
    chosen = held.at(threshold)
    data = {
        "unknown_above": threshold,
        "temperature": temperature,
        "records": len(y),
        **{name: value for name, value in attrs.asdict(chosen).items() if name != "threshold"},
        "codes_agree": coded_share(held, changed),
        "curve": [attrs.asdict(point) for point in held.curve()],
        "federation": changed.fingerprint if write else None,
    }
    if write:
        save_manifest(run, changed)
    _show(output, data, held.curve(), chosen)
    if manifest.unit != "none":
        output.note(
            "the federation's heads hold releases with noise, these of public records none: the"
            " threshold may call more unknown than is shown"
        )
    if write:
        output.note(
            f"federation {changed.fingerprint}; give federation.json to all parties, and make new"
            " keys for encrypted answers (securefl keys new)"
        )


def _show(output: Output, data: dict[str, Any], curve: "list[Point]", chosen: "Point") -> None:
    points = [*(point for point in curve if point.threshold != chosen.threshold), chosen]
    rows = [
        [
            f"{point.threshold:.4g}" + (" <" if point is chosen else ""),
            *(f"{100 * x:.1f} %" for x in (point.answered, point.accuracy, point.strangers)),
        ]
        for point in sorted(points, key=lambda point: point.threshold)
    ]
    title = (
        f"unknown above {chosen.threshold:.6g}, by {data['records']:,} public records"
        f" (integer codes agree on {100 * data['codes_agree']:.1f} %)"
    )
    columns = ["unknown above", "answered", "right of these", "unknown if its class were not known"]
    output.table(data, title, columns, rows)

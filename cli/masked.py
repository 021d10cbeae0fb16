"""How answers under the rule masked are shown: classes, distances, and what a distance is worth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.output import Output, show_classes

if TYPE_CHECKING:
    from secure_fl.heads.judging import Band
    from secure_fl.heads.manifest import Manifest

NO_CLASS = "no known class"

distance_option = click.option(
    "--distance", is_flag=True, help="masked: print the smallest distance too."
)
unknown_option = click.option(
    "--unknown-from",
    type=click.FloatRange(0, 1),
    help=f'masked: answer "{NO_CLASS}" from this distance on.',
)


def show_masked(
    output: Output,
    manifest: "Manifest",
    answer: Any,
    present: Sequence[str],
    labels: list[str] | None,
    facts: dict[str, Any],
    *,
    distance: bool,
    unknown_from: float | None,
) -> None:
    """A class a line, with its distance where that is wanted.

    Args:
        output: where to.
        manifest: of the federation.
        answer: with `classes` and `codes`, shape (queries,) each.
        present: contributors that it rests on.
        labels: of the queries, where they have some.
        facts: more for machines to read.
        distance: whether distances are shown.
        unknown_from: distance from which on no class is known, or None.
    """
    from secure_fl.heads.masked import distances

    missing = [name for name in manifest.clients if name not in present]
    if missing:
        output.note(f"answered without {', '.join(missing)}")
    classes = [manifest.classes[c] for c in answer.classes]
    near = [float(each) for each in distances(answer.codes, manifest)]
    if unknown_from is not None:
        pairs = zip(classes, near, strict=True)
        classes = [NO_CLASS if d >= unknown_from else name for name, d in pairs]
        output.note(f"{classes.count(NO_CLASS)} of {len(classes)} queries: {NO_CLASS}")
    facts = {**facts, "present": list(present)}
    if distance:
        facts["distances"] = near
    beside = [f"{d:.4f}" for d in near] if distance else None
    show_classes(output, classes, labels, facts, beside)


def bands_of(answer: Any, labels: Sequence[str], manifest: "Manifest") -> "list[Band]":
    """Accuracy by distance, of answers to labelled queries."""
    from secure_fl.heads.judging import calibrate, label_indices
    from secure_fl.heads.masked import distances

    right = answer.classes == label_indices(labels, manifest.classes)
    return calibrate(distances(answer.codes, manifest), right)


def show_bands(output: Output, bands: "Sequence[Band]") -> list[dict[str, Any]]:
    """Notes a calibration for people, and gives it for machines."""
    output.note("calibration, by distance:")
    for band in bands:
        output.note(
            f"  {band.least:.4f} to {band.most:.4f}: {band.right} of {band.queries} right"
            f" ({band.accuracy:.1%})"
        )
    return [
        {
            "least": band.least,
            "most": band.most,
            "queries": band.queries,
            "accuracy": band.accuracy,
        }
        for band in bands
    ]

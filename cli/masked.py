"""How answers under the rule masked are shown: classes, distances, and what a distance is worth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cli.output import Output, show_classes

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.heads.judging import Band
    from secure_fl.heads.manifest import Manifest
    from secure_fl.service.desk import Desk

NO_CLASS = "no known class"
OF_DISTANCES = frozenset({"distance", "unknown_from", "calibrate"})
"""Options that need a distance, which votes do not show."""

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
    if answer.opened.votes is not None:
        facts = {**facts, "present": list(present), "votes": answer.opened.votes.tolist()}
        show_classes(output, classes, labels, facts)
        return
    near = [float(each) for each in distances(answer.codes, manifest)]
    if unknown_from is not None:
        pairs = zip(classes, near, strict=True)
        classes = [NO_CLASS if d >= unknown_from else name for name, d in pairs]
        output.note(f"{classes.count(NO_CLASS)} of {len(classes)} queries: {NO_CLASS}")
    facts = {**facts, "present": list(present)}
    if distance:
        facts["distances"] = near
    lines = [f"{name}\t{d:.4f}" for name, d in zip(classes, near, strict=True)]
    show_classes(output, classes, labels, facts, lines=lines if distance else None)


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


def telling(output: Output, progress: Any, asks: Any, batch: str) -> Any:
    """What shows how far a batch of the service is, and who declined it."""
    heard: set[str] = set()

    def on_status(status: Any) -> None:
        for name, reason in asks.refusals(status, batch).items():
            if name not in heard:
                output.note(f"{name} declined: {reason}")
                heard.add(name)
        sent = sum(state == "sent" for state in status["clients"].values())
        progress("contributions", sent, len(status["clients"]))
        if status["total"]:
            progress("evaluating", status["done"], status["total"])

    return on_status


def ask_masked(
    output: Output,
    asked: tuple[Any, "Desk", Any, list[str] | None],
    batch: str,
    known: "Audit | None",
    terms: Any,
    *,
    distance: bool,
    unknown_from: float | None,
) -> None:
    """Asks a batch over the network; the sum is opened here.

    Args:
        output: where to.
        asked: the querier, its memory, the scaled queries, and their labels where they have some.
        batch: its name.
        known: known answers to mix in, or None.
        terms: of the batch; None for one that was opened before.
        distance: whether distances are shown.
        unknown_from: distance from which on no class is known, or None.
    """
    from secure_fl.service import masked_querier

    asks, desk, features, labels = asked
    manifest = asks.manifest
    with output.progress() as progress:
        output.note(f"batch {batch}: {len(features)} queries for {len(manifest.clients)} clients")
        found = masked_querier.ask_masked(
            asks,
            desk,
            features,
            batch=batch,
            known=known,
            terms=terms,
            on_status=telling(output, progress, asks, batch),
        )
    if known is not None:
        output.note(f"all {known.known} known answers are right")
    facts: dict[str, Any] = {"batch": batch}
    if distance and labels is not None:
        facts["calibration"] = show_bands(output, bands_of(found, labels, manifest))
    show_masked(
        output,
        manifest,
        found,
        found.present,
        labels,
        facts,
        distance=distance,
        unknown_from=unknown_from,
    )

"""`securefl infer --mode plain | simulate`: the rule without keys, where all heads are here."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from cli.output import Output, show_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from secure_fl.data import ReadOptions
    from secure_fl.heads.manifest import Manifest


@dataclass(frozen=True)
class Clear:
    """What is asked.

    Attributes:
        queries: a file.
        run: the run folder.
        options: how the file is read.
        rows: which queries to take, as text.
        unknown_above: the threshold; None for the run's own.
    """

    queries: Path
    run: Path
    options: "ReadOptions"
    rows: str | None
    unknown_above: float | None


def infer_in_the_clear(output: Output, asked: Clear, mode: str, top: int | None) -> None:
    """Shows the classes of queries.

    Args:
        output: where to.
        asked: the queries, and whom.
        mode: "plain" takes exact measures, "simulate" the encrypted rule's integer codes.
        top: classes to show of each query, best first; plain alone.
    """
    import fhe
    from secure_fl.heads.codes import all_codes, rule_parameters
    from secure_fl.heads.confidence import decide
    from secure_fl.heads.manifest import UNKNOWN, make_manifest
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.heads.run_folder import all_measures, load_run

    if top is not None and mode != "plain":
        raise click.UsageError("--top is of --mode plain: integer codes give one class")
    manifest, heads = load_run(asked.run)
    if asked.unknown_above is not None:
        facts = {**attrs.asdict(manifest), "unknown_above": asked.unknown_above, "members": ()}
        manifest = make_manifest(**facts)
    features, labels = read_queries(asked.queries, manifest, asked.options, parse_rows(asked.rows))
    facts, lines = {}, None
    found: NDArray[Any]
    if mode == "plain":
        measures = all_measures(heads, features, manifest)
        found = decide(measures, manifest)
        if top is not None:
            facts, lines = _best(output, measures.min(axis=1), found, manifest, top)
    else:
        codes = all_codes(heads, features, manifest)
        if manifest.summed:
            # It has no circuit: its integers in the clear are the codes themselves.
            found = decide(codes, manifest)
        else:
            found = fhe.simulate(codes, rule_parameters(manifest, failure_exponent=128, block=4))
    classes = [manifest.answers[c] for c in found]
    unknown = None if manifest.unknown_above is None else UNKNOWN
    show_classes(output, classes, labels, facts, lines=lines, unknown=unknown)


def _best(
    output: Output,
    smallest: "NDArray[Any]",
    found: "NDArray[Any]",
    manifest: "Manifest",
    top: int,
) -> tuple[dict[str, Any], list[str]]:
    """The best classes of every query, for machines and for people."""
    import numpy as np

    from secure_fl.heads.confidence import probabilities

    calibrated = manifest.temperature is not None
    shown = probabilities(smallest, manifest.temperature) if manifest.temperature else smallest
    kind = "probability" if calibrated else "measure"
    order = np.argsort(smallest, axis=1, kind="stable")[:, :top]
    best = [
        [{"class": manifest.classes[c], kind: float(shown[i, c])} for c in row]
        for i, row in enumerate(order.tolist())
    ]
    lines = [
        "\t".join([manifest.answers[answer], *(f"{e['class']} {e[kind]:.3f}" for e in row)])
        for answer, row in zip(found.tolist(), best, strict=True)
    ]
    output.note(
        "probabilities are calibrated on public data (securefl data calibrate)"
        if calibrated
        else "measures: smaller is nearer; for probabilities calibrate (securefl data calibrate)"
    )
    return {"top": best}, lines

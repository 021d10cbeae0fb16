"""What FedRCO's monitor did in a run: bounded steps and reset clients, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from secure_fl.pages import html
from secure_fl.report.rounds import Round

COUNTS = ("rollbacks", "resets", "inversions")
"""Figures of a round's log: of all clients, since the start of the run."""


def monitor_chapter(origin: Mapping[str, Any], rounds: Sequence[Round]) -> list[Markup]:
    """Totals, and the rounds in which a step was bounded or a client reset; empty without monitor.

    Args:
        origin: of the model, how it was trained.
        rounds: of its log, oldest first.
    """
    if origin.get("method") not in ("fedrco", "fedrco-ori"):
        return []
    if origin.get("monitor") is False:
        text = "The monitor was off (--no-monitor): every step was taken as it was."
        return [html.paragraph(text, kind="warn")]
    totals = [tuple(int(each.figures.get(name, -1)) for name in COUNTS) for each in rounds]
    if not totals or min(totals[-1]) < 0:
        text = (
            "What the monitor did is not counted: sums carry noise, and these would need noise of"
            " their own. Every client has its own count in its log."
        )
        return [html.paragraph(text)]
    rollbacks, resets, inversions = totals[-1]
    pairs: list[tuple[str, html.Cell]] = [
        ("steps bounded by the monitor (rollbacks)", rollbacks),
        ("clients reset by the monitor", resets),
        ("inversions of curvature factors", inversions),
    ]
    before = [(0, 0, 0), *totals]
    rows = [
        (each.round, now[0] - then[0], now[1] - then[1])
        for each, now, then in zip(rounds, totals, before, strict=False)
        if now[:2] != then[:2]
    ]
    if not rows:
        return [html.facts(pairs)]
    columns = ("round", "steps bounded", "clients reset")
    return [html.facts(pairs), html.table("Rounds in which the monitor acted", columns, rows)]

"""Chapters that the pages of several kinds of runs share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from secure_fl.pages import html
from secure_fl.report import figures
from secure_fl.report.privacy import LedgerTotal
from secure_fl.report.rounds import Round, columns_of

LARGEST_CONFUSION = 25
"""Classes up to which the confusion table is shown whole."""
WORST = 20
"""Confusions that are listed where the table is too large."""

Row = tuple[html.Cell, ...]


def merged(rows: Sequence[Row]) -> list[Row]:
    """Rows that differ in their first cell, the client, alone as one row."""
    clients: dict[Row, list[str]] = {}
    for name, *rest in rows:
        clients.setdefault(tuple(rest), []).append(str(name))
    return [(_names(names), *rest) for rest, names in clients.items()]


def _names(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} clients)"


def ledger_table(totals: Sequence[tuple[str, LedgerTotal]]) -> list[Markup]:
    """What data sets spent, by name and unit."""
    rows: list[Row] = [
        (name, t.unit, t.events, t.epsilon, f"{t.delta:.3g}", t.rule, t.limit) for name, t in totals
    ]
    columns = ("data set", "unit", "events", "epsilon in all", "delta", "composition", "budget")
    return [
        html.table("Ledgers: all that each data set spent, by unit", columns, merged(rows)),
        html.paragraph("Units are never added up. Each ledger's chain of digests was verified."),
    ]


def confusion(counts: NDArray[np.int64], classes: Sequence[str]) -> list[Markup]:
    """Records by true class (rows) and answer (columns); the most frequent where they are many."""
    truth = counts.sum(axis=1)
    recall = np.diag(counts) / np.maximum(truth, 1)
    if len(classes) <= LARGEST_CONFUSION:
        shares = counts / np.maximum(truth, 1)[:, None]
        rows: list[list[html.Cell]] = []
        shades = []
        for c, label in enumerate(classes):
            rows.append([label, *counts[c].tolist(), f"{recall[c]:.1%}"])
            shades.append([0.0, *shares[c].tolist(), 0.0])
        columns = ["true class", *classes, "right"]
        caption = "Confusion: records by true class and answer"
        return [html.table(caption, columns, rows, shades=shades)]
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    worst = np.argsort(wrong, axis=None)[::-1][:WORST]
    pairs = [divmod(int(i), len(classes)) for i in worst]
    listed = [(classes[a], classes[b], int(wrong[a, b])) for a, b in pairs if wrong[a, b]]
    return [
        html.table(
            f"The {WORST} most frequent confusions", ("true class", "answer", "records"), listed
        )
    ]


def rounds_chapter(rounds: Sequence[Round]) -> list[Markup]:
    """Bytes of all rounds, the accuracy by round where it was logged, and every round."""
    names = columns_of(rounds)
    columns = ("round", "asked", "in the sums", "kB down", "kB up", *names)
    rows = [
        (
            each.round,
            each.participants,
            each.survivors,
            each.bytes_down / 1e3,
            each.bytes_up / 1e3,
            *(each.figures.get(name) for name in names),
        )
        for each in rounds
    ]
    up, down = sum(each.bytes_up for each in rounds), sum(each.bytes_down for each in rounds)
    pairs: list[tuple[str, html.Cell]] = [
        ("rounds", len(rounds)),
        ("MB from clients", up / 1e6),
        ("MB to clients", down / 1e6),
    ]
    return [
        html.facts(pairs),
        *_accuracy_by_round(rounds),
        html.folded("round by round", html.table("Rounds", columns, rows)),
    ]


def _accuracy_by_round(rounds: Sequence[Round]) -> list[Markup]:
    found = [(each.round, each.figures.get("accuracy")) for each in rounds]
    if len([value for _, value in found if value is not None]) < 2:
        return []

    def draw(axes: Any) -> None:
        heights = [None if value is None else 100 * value for _, value in found]
        numbers = [float(number) for number, _ in found]
        figures.draw_lines(
            axes, numbers, {"test accuracy": heights}, xlabel="round", ylabel="% of test records"
        )

    return [figures.shown(draw, "rounds", "Accuracy by round, as the trainer logged it.")]


def signature(digests: Sequence[tuple[str, html.Cell]]) -> list[Markup]:
    """Fingerprints of what is signed, and lines for names."""
    return [
        html.paragraph(
            "What was signed is named by these fingerprints. Compare them by another way"
            " than the one by which this file came."
        ),
        html.facts(digests),
        html.boxed(
            "sign",
            html.table(
                "",
                ("role", "name", "date", "signature"),
                [("privacy officer", "", "", ""), ("responsible for the data", "", "", "")],
            ),
        ),
    ]

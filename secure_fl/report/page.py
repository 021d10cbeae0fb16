"""The page of one run, in the order in which a privacy officer reads it.

What is protected and who could learn what come first; then how good the answers are; then the
figures of the encrypted part. Nothing of a record is on it: only public facts of the federation,
promises, totals over a test file, sizes, and, where they were asked for, label counts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from markupsafe import Markup

import dp
from dp.statement import RELEASED_ONCE
from fhe.envelope import PRIVATE, write_atomic
from secure_fl.pages import html
from secure_fl.report import figures
from secure_fl.report.facts import Facts
from secure_fl.report.parties import COLUMNS, Circumstances, access, remarks
from secure_fl.report.pieces import confusion, ledger_table, merged, rounds_chapter, signature
from secure_fl.report.privacy import ClientPrivacy
from secure_fl.report.rule import bytes_chapter, codes_chapter, rule_chapter


def write_report(path: Path, facts: Facts) -> int:
    """Writes the page, whole or not at all and readable by its owner only; returns its bytes."""
    text = render(facts).encode()
    write_atomic(path, text, mode=PRIVATE)
    return len(text)


def render(facts: Facts) -> str:
    """The page as HTML."""
    parts = [
        ("protected", "What is protected, by unit", _protected(facts)),
        ("parties", "Who could learn what", _parties(facts)),
        ("accuracy", "How good the answers are", _accuracy(facts)),
        ("clients", "What each client holds", _clients(facts)),
        ("rounds", "Rounds of training", _rounds(facts)),
        ("bytes", "What crosses between the parties", bytes_chapter(facts)),
        ("encryption", "Parameters of the rule", rule_chapter(facts)),
        ("codes", "Whether the code range fits", codes_chapter(facts)),
        ("federation", "What the parties agreed on", _federation(facts)),
        ("sign", "Signed", _sign(facts)),
    ]
    return html.page(
        f"securefl: report on run “{facts.run}”",
        html.paragraph(
            f"Federation {facts.manifest.fingerprint}, {facts.made:%Y-%m-%d %H:%M} UTC",
            kind="lead",
        ),
        _short(facts),
        html.contents([(anchor, title) for anchor, title, _ in parts]),
        *(html.section(title, *body, anchor=anchor) for anchor, title, body in parts),
    )


# ---------------------------------------------------------------------------------------- privacy


def _statements(facts: Facts) -> list[tuple[str, dp.Statement]]:
    return [(each.client, each.statement) for each in facts.privacy if each.statement is not None]


def _promised(facts: Facts) -> bool:
    found = _statements(facts)
    return bool(found) and all(statement.guarantee for _, statement in found)


def _short(facts: Facts) -> Markup:
    statements = _statements(facts)
    m = facts.manifest
    lines = [f"{len(m.clients)} clients, {len(m.classes)} classes, {m.n_features} features."]
    if not statements:
        lines.append(
            "No differential privacy: what anybody may learn is limited by who gets which message"
            " alone, and a head contains its client's records."
            if m.unit == "none"
            else f"The federation promises privacy per {m.unit}; no client's statement is here."
        )
        return html.paragraph(" ".join(lines), kind="warn")
    promises = sorted({statement.promise for _, statement in statements})
    lines.append(
        f"Statements of {len(statements)} of {len(m.clients)} clients are here. Promised:"
        f" {'; '.join(promises)}."
    )
    implied = _implied(facts)
    if implied:
        lines.append(f"For a whole record this implies no more than {implied}.")
    if any(each.booked is False for each in facts.privacy):
        lines.append("A statement is not in its ledger: do not sign.")
    fine = _promised(facts) and not any(each.booked is False for each in facts.privacy)
    return html.paragraph(" ".join(lines), kind="good" if fine and not implied else "warn")


def _implied(facts: Facts) -> str:
    """What element-level promises are worth for a record; the worst client's, strongest reading."""
    levels = [
        statement.record_level[-1]
        for _, statement in _statements(facts)
        if statement.guarantee and statement.record_level
    ]
    if not levels:
        return ""
    worst = max(levels, key=lambda each: np.inf if each.epsilon is None else each.epsilon)
    return worst.text


def _protected(facts: Facts) -> list[Markup]:
    statements = _statements(facts)
    body = []
    if not statements:
        body.append(
            html.paragraph(
                "There is no promise about records in this run. Heads are not releases and hold the"
                " clients' records.",
                kind="warn",
            )
        )
    else:
        columns = ("client", "promise", "noise, sd", "for a whole record", "booked")
        rows = merged([_promise_row(each) for each in facts.privacy])
        body += [
            html.table("Promises; an epsilon holds for its unit and no other", columns, rows),
            html.paragraph(
                "Booked: the event of the statement is in the client's verified ledger. A dash"
                " means that no ledger was given for it."
            ),
            *_assumed(facts, statements),
            html.folded(
                "every statement in full",
                *(
                    piece
                    for client, statement in statements
                    for piece in (html.heading(client), html.preformatted(statement.text()))
                ),
            ),
        ]
    return [*body, *_ledgers(facts)]


def _promise_row(each: ClientPrivacy) -> tuple[html.Cell, ...]:
    s = each.statement
    if s is None:
        why = "none: its head holds its records" if each.here else "unknown: its folder is not here"
        return (each.client, why, None, None, None)
    levels = "; ".join(level.text for level in s.record_level) if s.guarantee else ""
    return (each.client, s.promise, s.noise_scale, levels or "-", each.booked)


def _assumed(facts: Facts, statements: Sequence[tuple[str, dp.Statement]]) -> list[Markup]:
    # Statements of earlier versions assume one release; the books may know better.
    more = {
        each.client: "; ".join(
            f"{t.events} event(s) per {t.unit}, epsilon {t.epsilon:.4g} at delta {t.delta:.3g}"
            for t in each.totals
        )
        for each in facts.privacy
        if sum(total.events for total in each.totals) > 1
    }
    assumed = dict.fromkeys(
        f"the ledger of client {client} holds {more[client]}: that is what its data set spent"
        if line == RELEASED_ONCE and client in more
        else line
        for client, s in statements
        for line in s.assumptions
    )
    open_ = dict.fromkeys(line for _, s in statements for line in s.not_protected)
    return [
        html.heading("The promises assume"),
        html.bullets(list(assumed)),
        html.heading("Not protected"),
        html.bullets(list(open_)),
    ]


def _ledgers(facts: Facts) -> list[Markup]:
    totals = [(each.client, total) for each in facts.privacy for total in each.totals]
    if not totals:
        return [html.paragraph("No ledger was given (--ledgers), so nothing is said of sums.")]
    return ledger_table(totals)


def _parties(facts: Facts) -> list[Markup]:
    case = Circumstances(
        private_heads=_promised(facts),
        record_epsilon=_implied(facts) or "its own promise per record",
        aggregated=bool(facts.rounds),
        rule=facts.manifest.rule,
        queriers=facts.manifest.queriers,
    )
    return [
        html.table("What a party holds by its role, and could read with it", COLUMNS, access(case)),
        html.bullets(remarks(case)),
    ]


# ------------------------------------------------------------------------------------- the answers


def _accuracy(facts: Facts) -> list[Markup]:
    found = facts.measured
    if found is None:
        return [html.paragraph("Not measured: no labelled test file was given (--test).")]
    pairs: list[tuple[str, html.Cell]] = [
        ("test records", found.records),
        ("accuracy, exact measures", f"{found.exact:.2%}"),
        (f"accuracy, {facts.manifest.bits}-bit codes, as answered", f"{found.coded:.2%}"),
    ]
    if facts.manifest.unknown_above is not None:
        pairs += [
            ("below the threshold, the others are unknown", f"{found.answered:.2%}"),
            ("right of these", f"{found.right:.2%}"),
        ]
    return [html.facts(pairs), *confusion(found.confusion, facts.manifest.classes)]


def _clients(facts: Facts) -> list[Markup]:
    if facts.counts is None:
        return [
            html.paragraph(
                "Label counts are left out: nothing protects them. --label-counts shows those of"
                " the clients whose heads lie in the run folder."
            )
        ]
    classes, counts = facts.manifest.classes, facts.counts
    rows = [
        [name, int(row.sum()), *row.tolist()]
        for name, row in zip(facts.counted, counts, strict=True)
    ]

    def draw(axes: Any) -> None:
        figures.draw_partition(axes, facts.counted, classes, counts)

    return [
        html.paragraph(
            "Label counts of the clients whose heads are here. No noise protects them; leave them"
            " out of a page that leaves the client.",
            kind="warn",
        ),
        figures.shown(
            draw, "partition", "Records by class.", height=max(2.0, 0.8 + 0.22 * len(counts))
        ),
        html.folded("the numbers", html.table("Records", ("client", "all", *classes), rows)),
    ]


def _rounds(facts: Facts) -> list[Markup]:
    if facts.rounds:
        return rounds_chapter(facts.rounds)
    return [
        html.paragraph(
            "Heads are trained in one pass, without rounds. No log of a trainer was given"
            " (--rounds)."
        )
    ]


def _federation(facts: Facts) -> list[Markup]:
    values = attrs.asdict(facts.manifest)
    pairs: list[tuple[str, html.Cell]] = []
    for name, value in values.items():
        if isinstance(value, list | tuple):
            text = ", ".join(map(str, value[:20]))
            value = f"{len(value)}: {text}" + (" …" if len(value) > 20 else "")
        pairs.append((name.replace("_", " "), str(value) if value is not None else "-"))
    return [html.facts(pairs)]


def _sign(facts: Facts) -> list[Markup]:
    digests: list[tuple[str, html.Cell]] = [
        ("federation", facts.manifest.fingerprint),
        ("keys", facts.encryption.key or "none given"),
    ]
    for client, statement in _statements(facts):
        digests.append((f"ledger event of {client}", statement.ledger_digest or "none was kept"))
    return signature(digests)

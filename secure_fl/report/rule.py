"""What crosses between the parties, by which rule, and whether its codes fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

import fhe
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.masked import RowCoding, VoteCoding
from secure_fl.pages import html
from secure_fl.report import figures
from secure_fl.report.facts import Facts
from secure_fl.report.measured import BINS


def bytes_chapter(facts: Facts) -> list[Markup]:
    """Files and messages, with their sizes."""
    sent = facts.encryption.sent
    columns = ("what", "for", "files", "bytes in all", "bytes a query")
    rows = [
        (
            each.what,
            each.to,
            each.count,
            each.n_bytes,
            None if each.queries is None else each.n_bytes // max(1, each.queries),
        )
        for each in sent
    ]
    body = [html.table("Files", columns, rows)]
    if not any(each.queries is not None for each in sent):
        body.append(
            html.paragraph(
                "No messages were given (--contributions, --answer), so none is counted."
            )
        )
    return body


def rule_chapter(facts: Facts) -> list[Markup]:
    """Parameters of the rule."""
    found, p = facts.encryption, facts.encryption.parameters
    if isinstance(p, RowCoding):
        return _masked_sums(facts, p)
    if isinstance(p, VoteCoding):
        return _votes(facts, p)
    pairs: list[tuple[str, html.Cell]] = [
        ("rule", p.rule),
        ("contributors", p.contributors),
        ("classes", p.classes),
        ("code", f"{p.bits} bits on [{facts.manifest.low:g}, {facts.manifest.high:g}]"),
        *_engine(p),
        ("keys", found.key or "none given (--keys); the default of securefl keys new is assumed"),
    ]
    return [
        html.facts(pairs),
        html.bullets([*found.lattices, *(_sentence(each) for each in found.security)]),
    ]


def _masked_sums(facts: Facts, coding: RowCoding) -> list[Markup]:
    m = facts.manifest
    pairs: list[tuple[str, html.Cell]] = [
        ("rule", m.rule),
        ("contributors", len(m.clients)),
        ("left at every step, by default", default_threshold(len(m.clients))),
        ("classes", coding.classes),
        ("code", f"{coding.bits} bits on [{m.low:g}, {m.high:g}]"),
        ("words a query", f"{coding.words:,} of {coding.word_bits} bits"),
        ("bytes a query and contributor", f"{coding.bytes_a_query:,}"),
        ("a decision is wrong", f"with probability 2^-{coding.word_bits}"),
        ("keys", "none; nothing opens a contribution"),
    ]
    security = [_sentence(each) for each in facts.encryption.security]
    return [html.facts(pairs), html.bullets(security)]


def _votes(facts: Facts, coding: VoteCoding) -> list[Markup]:
    pairs: list[tuple[str, html.Cell]] = [
        ("rule", coding.rule),
        ("contributors", coding.contributors),
        ("left at every step, by default", coding.left),
        ("classes", coding.classes),
        ("noise that is surely in an answer", f"{coding.noise:g} votes (standard deviation)"),
        ("parts of noise that this takes", coding.parts),
        ("a query is, per record", f"one Gaussian of multiplier {coding.multiplier:.4g}"),
        ("bytes a query and contributor", f"{coding.bytes_a_query:,}"),
        ("keys", "none; nothing opens a contribution"),
    ]
    security = [_sentence(each) for each in facts.encryption.security]
    return [html.facts(pairs), html.bullets(security)]


def _engine(p: fhe.AnyParameters) -> list[tuple[str, html.Cell]]:
    if isinstance(p, fhe.BatchedParameters):
        return [
            ("engine", "bgv"),
            ("ciphertexts of a contributor", p.layout.ciphertexts),
            ("queries in them, at most", p.degree),
            ("a batch is wrong by noise", "with probability at most 2^-40"),
        ]
    return [
        ("engine", "tfhe"),
        ("digits a query", f"{p.columns} in base {p.base}"),
        ("table look-ups a decision", p.lookups),
        ("a decision is wrong by noise", f"with probability at most 2^-{p.failure_exponent}"),
        ("comparisons of one call at most", p.block),
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def codes_chapter(facts: Facts) -> list[Markup]:
    """Whether measures of test records lie in the range that the codes span."""
    found, m = facts.measured, facts.manifest
    if found is None:
        return [html.paragraph("Not measured: no labelled test file was given (--test).")]
    low, first, middle, last, high = found.quantiles
    pairs: list[tuple[str, html.Cell]] = [
        ("range", f"[{m.low:g}, {m.high:g}], {2**m.bits} levels"),
        ("smallest measures", f"{low:.4f} to {high:.4f}, median {middle:.4f}"),
        ("98 % of them lie in", f"{first:.4f} to {last:.4f}"),
        ("below the range", f"{found.clipped_low:.2%} of the records"),
        ("above it, so that no class wins", f"{found.clipped_high:.2%} of the records"),
        ("smallest code shared by several classes", f"{found.ties:.2%}; the lowest class wins"),
        ("same class as exact measures", f"{found.agreement[m.bits]:.2%}"),
    ]
    centres = (np.arange(BINS) + 0.5) / BINS

    def draw_range(axes: Any) -> None:
        figures.draw_code_range(axes, centres, found.winners, found.others, m.low, m.high)

    def draw_bits(axes: Any) -> None:
        lines: dict[str, Sequence[float | None]] = {
            "same class as exact measures": [100 * v for v in found.agreement.values()],
            "accuracy": [100 * v for v in found.accuracy_at.values()],
        }
        figures.draw_lines(
            axes, list(found.agreement), lines, xlabel="bits of a code", ylabel="% of test records"
        )

    return [
        html.facts(pairs),
        html.boxed(
            "beside",
            figures.shown(draw_range, "range", "Where measures lie, and the levels of the codes."),
            figures.shown(draw_bits, "bits", "What fewer or more bits would change."),
        ),
        html.paragraph(
            "The range must come from public data; do not choose it from this figure if"
            " the test records are private."
        ),
    ]

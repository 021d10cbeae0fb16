"""The page of an iterative trainer's run: one model for all, and the log of its rounds."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

import dp
from fhe.envelope import PRIVATE, write_atomic
from secure_fl.data import ReadOptions, scaling_of
from secure_fl.errors import InputError
from secure_fl.heads.queries import read_queries
from secure_fl.pages import html
from secure_fl.report.monitor import monitor_chapter
from secure_fl.report.pieces import confusion, ledger_table, rounds_chapter, signature
from secure_fl.report.privacy import LedgerTotal, ledger_totals
from secure_fl.report.rounds import Round, read_rounds
from secure_fl.training.linear_model import LinearModel, RegressionModel
from secure_fl.training.loading import load_model
from secure_fl.training.model_files import FILE
from secure_fl.training.regression import TargetError, errors_of, read_target_queries

if TYPE_CHECKING:
    from secure_fl.training.network_model import TrainedNetwork

METRICS = "metrics.jsonl"
COLUMNS = ("party", "records", "one client's update", "sum of updates", "model")


@attrs.frozen(kw_only=True)
class TrainedFacts:
    """Everything that the page says.

    Attributes:
        run: name of the run folder.
        model: what was trained.
        size: bytes of its file.
        rounds: of the trainer.
        totals: by keeper of a ledger (the federation, or each client), then by unit; empty without
            a ledger.
        counts: test records by true class and answer, shape (C, C), or None.
        errors: of a regression's targets on test records; empty where none were given.
        made: when.
    """

    run: str
    model: "LinearModel | TrainedNetwork"
    size: int
    rounds: tuple[Round, ...]
    totals: tuple[tuple[str, LedgerTotal], ...]
    counts: NDArray[np.int64] | None
    errors: tuple[TargetError, ...]
    made: datetime


def is_trained(run: Path) -> bool:
    """Whether a run folder holds a trainer's model."""
    return (run / FILE).is_file()


def gather_trained(
    run: Path, *, ledger: Path | None = None, test: Path | None = None, reading: ReadOptions
) -> TrainedFacts:
    """Reads everything.

    Args:
        run: the run folder.
        ledger: the federation's ledger, a file; with record-level privacy of a network the folder
            of the clients' ledgers.
        test: labelled records that no client trained on.
        reading: how `test` is read.

    Raises:
        InputError: a file is missing, damaged, or does not belong to the model.
        dp.LedgerError: the ledger was edited.
    """
    model = load_model(run)
    metrics = run / METRICS
    counts: NDArray[np.int64] | None = None
    errors: tuple[TargetError, ...] = ()
    if test is not None and isinstance(model, RegressionModel):
        errors = _errors(model, test, reading)
    elif test is not None:
        counts = _counts(model, test, reading)
    return TrainedFacts(
        run=run.resolve().name,
        model=model,
        size=(run / FILE).stat().st_size,
        rounds=read_rounds(metrics) if metrics.exists() else (),
        totals=() if ledger is None else _totals(ledger, own=_own_books(model.origin)),
        counts=counts,
        errors=errors,
        made=datetime.now(UTC),
    )


def _totals(ledger: Path, *, own: bool) -> tuple[tuple[str, LedgerTotal], ...]:
    if ledger.is_dir():
        files = sorted(ledger.glob("*.jsonl"))
        if not files:
            raise InputError(f"{ledger}: no client's ledger (NAME.jsonl) is here")
        return tuple((f.stem, each) for f in files for each in ledger_totals(dp.Ledger.open(f)))
    if own:
        raise InputError(f"{ledger}: every client keeps a ledger of its own; name their folder")
    if not ledger.is_file():
        raise InputError(f"{ledger}: no such ledger; name the file, or the folder of the clients'")
    return tuple(("the federation", each) for each in ledger_totals(dp.Ledger.open(ledger)))


def _own_books(origin: dict[str, Any]) -> bool:
    return origin.get("record_level") is True


def _errors(model: RegressionModel, test: Path, reading: ReadOptions) -> tuple[TargetError, ...]:
    named = replace(reading, columns=replace(reading.columns, targets=model.targets))
    features, truth = read_target_queries(test, model, named, slice(None))
    if truth is None:
        raise InputError(
            f"{test}: holds no targets {', '.join(model.targets)[:200]}; give a file with them, or"
            " leave --test out"
        )
    return errors_of(model.targets, model.values(features), truth)


def _counts(
    model: "LinearModel | TrainedNetwork", test: Path, reading: ReadOptions
) -> NDArray[np.int64]:
    features, labels = read_queries(test, model, reading, slice(None))
    if labels is None:
        raise InputError(f"{test}: holds no labels; give a file with labels, or leave --test out")
    codes = {label: c for c, label in enumerate(model.classes)}
    for label in labels:
        if label not in codes:
            raise InputError(f'{test}: label "{label}" is unknown to the model')
    counts = np.zeros((len(codes), len(codes)), np.int64)
    truth = np.array([codes[label] for label in labels])
    np.add.at(counts, (truth, model.predict(features)), 1)
    return counts


def write_trained_report(path: Path, facts: TrainedFacts) -> int:
    """Writes the page, whole or not at all and readable by its owner only; returns its bytes."""
    text = render_trained(facts).encode()
    write_atomic(path, text, mode=PRIVATE)
    return len(text)


def render_trained(facts: TrainedFacts) -> str:
    """The page as HTML."""
    parts = [
        ("protected", "What is protected, by unit", _protected(facts)),
        ("parties", "Who could learn what", _parties(facts)),
        ("accuracy", "How good the answers are", _accuracy(facts)),
        ("rounds", "Rounds of training", _rounds(facts)),
        ("recipe", "How it was trained", _recipe(facts)),
        ("sign", "Signed", signature([("model", _digest(facts))])),
    ]
    return html.page(
        f"securefl: report on run “{facts.run}”",
        html.paragraph(f"{facts.made:%Y-%m-%d %H:%M} UTC", kind="lead"),
        _short(facts),
        html.contents([(anchor, title) for anchor, title, _ in parts]),
        *(html.section(title, *body, anchor=anchor) for anchor, title, body in parts),
    )


def _promise(facts: TrainedFacts) -> str:
    found = facts.model.origin.get("privacy")
    return found if isinstance(found, str) else ""


def _secure(facts: TrainedFacts) -> bool:
    return facts.model.origin.get("secure") is True


def _short(facts: TrainedFacts) -> Markup:
    m = facts.model
    what = "targets" if isinstance(m, RegressionModel) else "classes"
    start = (
        f"{m.origin.get('method', 'a trainer')}: one {m.kind} for"
        f" {m.origin.get('clients', 'unknown')} clients, {len(m.classes)} {what}."
    )
    if _promise(facts):
        return html.paragraph(f"{start} Promised: {_promise(facts)}.", kind="good")
    seen = "The server saw sums alone." if _secure(facts) else "The server saw every update."
    return html.paragraph(
        f"{start} No differential privacy: what was trained on shows in the model. {seen}",
        kind="warn",
    )


def _protected(facts: TrainedFacts) -> list[Markup]:
    said = (
        html.paragraph(f"The model says of itself: {_promise(facts)}.")
        if _promise(facts)
        else html.paragraph("There is no promise about records or clients.", kind="warn")
    )
    if not facts.totals:
        none = "No ledger was given (--ledgers FILE), so the model's own words are not checked."
        return [said, html.paragraph(none)]
    table = ledger_table(facts.totals)
    return [said, *table, *_difference(facts)]


def _difference(facts: TrainedFacts) -> list[Markup]:
    """A warning where the ledger does not say what the model says."""
    said = [f"epsilon {t.epsilon:.4g} at delta {t.delta:g} per {t.unit}" for _, t in facts.totals]
    if not _promise(facts) or any(_promise(facts).startswith(each) for each in said):
        return []
    text = (
        "The ledger's total is not what the model says: it is another run's ledger, or was spent"
        " further since. The ledger's total holds; do not sign for the model's words."
    )
    return [html.paragraph(text, kind="warn")]


def _parties(facts: TrainedFacts) -> list[Markup]:
    private = bool(_promise(facts))
    if _own_books(facts.model.origin):
        noisy = "yes, noisy: each client adds its own noise"
        update, total = "no: masked" if _secure(facts) else noisy, "yes, of noisy updates"
    elif _secure(facts):
        update, total = "no: masked", "the noisy sum" if private else "yes"
    else:
        clipped = "yes, clipped: it is trusted and adds the noise"
        update, total = clipped if private else "yes", "yes"
    seen = "noisy" if private else "yes"
    rows = [
        ("a client, of its own", "yes", "yes", "what the server broadcasts", seen),
        ("another client", "no", "no", "what the server broadcasts", seen),
        ("the server (aggregator)", "no", update, total, seen),
        ("whoever gets the model", "no", "no", "no", seen),
        ("reader of this page", "no", "no", "no", "no: totals over a test file"),
    ]
    remarks = [
        "A sum of few clients says much about each of them.",
        "The server learns who takes part, when, and how large messages are.",
        "A client that sends a false update is not detected.",
    ]
    if facts.model.origin.get("method") == "fedrco":
        remarks.append(
            "Each client keeps a model of its own, made of its records without noise. No promise"
            " covers it, and it must go to nobody else."
        )
    return [
        html.table("What a party holds by its role, and could read with it", COLUMNS, rows),
        html.bullets(remarks),
    ]


def _accuracy(facts: TrainedFacts) -> list[Markup]:
    if facts.errors:
        columns = ("target", "RMSE", "R2", "error of the mean", "test records")
        rows = [
            (
                each.target,
                f"{each.rmse:.4g}",
                "none: no spread" if each.r2 is None else f"{each.r2:.4f}",
                f"{each.deviation:.4g}",
                str(each.records),
            )
            for each in facts.errors
        ]
        return [html.table("How far predictions are from the truth", columns, rows)]
    if facts.counts is None:
        return [html.paragraph("Not measured: no labelled test file was given (--test).")]
    total = int(facts.counts.sum())
    right = int(np.trace(facts.counts))
    pairs: list[tuple[str, html.Cell]] = [
        ("test records", total),
        ("accuracy", f"{right / total:.2%}"),
    ]
    return [html.facts(pairs), *confusion(facts.counts, facts.model.classes)]


def _rounds(facts: TrainedFacts) -> list[Markup]:
    if not facts.rounds:
        return [html.paragraph(f"No log of the rounds is here ({METRICS}).")]
    return [*monitor_chapter(facts.model.origin, facts.rounds), *rounds_chapter(facts.rounds)]


SCALED_BY = {
    "none": "a constant factor alone",
    "range": "public ranges",
    "moments": "means and deviations of all clients' records, without noise",
    "released": "means and deviations that were released before; the books hold both",
}


def _recipe(facts: TrainedFacts) -> list[Markup]:
    shown = [(name.replace("_", " "), str(value)) for name, value in _settings(facts.model.origin)]
    model = facts.model
    learned: list[tuple[str, html.Cell]] = [("parameters", model.weights.size)]
    if isinstance(model, LinearModel):
        learned.append(("random features", 0 if model.random is None else model.random.count))
    return [
        html.facts(
            [
                *shown,
                (
                    "targets" if isinstance(model, RegressionModel) else "classes",
                    ", ".join(facts.model.classes[:20]),
                ),
                ("features", facts.model.n_features),
                ("scaled by", SCALED_BY[scaling_of(facts.model.scale).kind]),
                *learned,
                ("bytes of the model", facts.size),
            ]
        )
    ]


def _settings(origin: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    elsewhere = ("privacy", "random_features")
    return [(name, value) for name, value in origin.items() if name not in elsewhere]


def _digest(facts: TrainedFacts) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(facts.model.weights).tobytes()).hexdigest()

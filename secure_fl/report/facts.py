"""Where the facts of a report come from, and the facts."""

from datetime import UTC, datetime
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from secure_fl.data import ReadOptions
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.heads.run_folder import load_run
from secure_fl.report.encryption import Encryption, read_encryption
from secure_fl.report.measured import Measured, measure_run
from secure_fl.report.privacy import ClientPrivacy, read_privacy
from secure_fl.report.rounds import Round, read_rounds


@attrs.frozen(kw_only=True)
class Sources:
    """Where the facts of a run lie; what is None is left out and the page says so.

    Attributes:
        run: the run folder.
        ledgers: folder with one ledger a client.
        keys: folder with the querier's public key, and the evaluation key where it is to be read.
        contributions: files that clients sent.
        answers: files that the evaluator sent.
        test: labelled records that no client trained on.
        reading: how `test` is read.
        rounds: log of a trainer's rounds.
        label_counts: show how many records of each class every head here was trained on. These
            numbers are protected by nothing.
    """

    run: Path
    ledgers: Path | None = None
    keys: Path | None = None
    contributions: tuple[Path, ...] = ()
    answers: tuple[Path, ...] = ()
    test: Path | None = None
    reading: ReadOptions = attrs.field(factory=ReadOptions)
    rounds: Path | None = None
    label_counts: bool = False


@attrs.frozen(kw_only=True)
class Facts:
    """Everything that the page says.

    Attributes:
        run: name of the run folder.
        manifest: the federation's facts.
        privacy: of every client.
        encryption: of the encrypted rule.
        measured: on the test file, or None.
        rounds: of a trainer; empty without.
        counts: records by client and class, shape (clients here, classes), or None.
        counted: names of the clients in `counts`.
        made: when.
    """

    run: str
    manifest: Manifest
    privacy: tuple[ClientPrivacy, ...]
    encryption: Encryption
    measured: Measured | None
    rounds: tuple[Round, ...]
    counts: NDArray[np.int64] | None
    counted: tuple[str, ...]
    made: datetime


def gather(sources: Sources) -> Facts:
    """Reads everything.

    Raises:
        InputError: a file is missing, damaged, or of another federation.
        dp.LedgerError: a ledger was edited.
    """
    manifest = load_manifest(sources.run)
    counted, counts = _label_counts(sources) if sources.label_counts else ((), None)
    return Facts(
        run=sources.run.resolve().name,
        manifest=manifest,
        privacy=read_privacy(sources.run, manifest, sources.ledgers),
        encryption=read_encryption(
            sources.run, manifest, sources.keys, sources.contributions, sources.answers
        ),
        measured=None
        if sources.test is None
        else measure_run(sources.run, sources.test, sources.reading),
        rounds=() if sources.rounds is None else read_rounds(sources.rounds),
        counts=counts,
        counted=counted,
        made=datetime.now(UTC),
    )


def _label_counts(sources: Sources) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    manifest, heads = load_run(sources.run)
    counts = np.zeros((len(heads), len(manifest.classes)), np.int64)
    for i, head in enumerate(heads):
        np.add.at(counts[i], head.bank.cells, head.bank.sizes)
    return tuple(head.client for head in heads), counts

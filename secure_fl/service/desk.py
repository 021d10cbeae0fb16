"""The querier's memory of batches at work: secrets of known answers, and answers not read yet.

Two files a batch in the folder `batches` beside the keys, for their owner alone. An answer is kept
before the evaluator hears that it was fetched, so nothing that is found in it later, a crash
included, makes the querier ask for it again.
"""

from pathlib import Path

from attrs import frozen

from fhe.audit import Audit, load_audit, save_audit
from fhe.envelope import PRIVATE, read_envelope, write_envelope
from secure_fl.errors import FormatError, InputError
from secure_fl.service.sealed_query import BATCH

FOLDER = "batches"
KIND = "service received answer"
MASKED_KIND = "service masked batch"


@frozen
class MaskedBatch:
    """What the querier remembers of a masked batch, beside its known answers.

    Attributes:
        agreed: digest of what contributors were told.
        quorum: the sum's threshold.
        degree: contributors that each masks with; 0 for all others.
    """

    agreed: bytes
    quorum: int
    degree: int = 0


class Desk:
    """Files of one querier's batches.

    Args:
        keys: its key folder; of the rule masked, which has no keys, the run folder.
    """

    def __init__(self, keys: Path) -> None:
        self._folder = keys / FOLDER

    def keep_audit(self, batch: str, audit: Audit) -> None:
        """Keeps the secret of a batch's known answers."""
        save_audit(self._path(batch, "audit"), audit)

    def audit(self, batch: str) -> Audit | None:
        """The secret; None where none was kept."""
        path = self._path(batch, "audit")
        return load_audit(path) if path.exists() else None

    def keep_answer(self, batch: str, content: bytes, present: tuple[str, ...]) -> None:
        """Keeps an answer as it came; on the disk when this returns."""
        path = self._path(batch, "answer")
        write_envelope(path, KIND, {"present": list(present)}, content, mode=PRIVATE)

    def answer(self, batch: str) -> tuple[bytes, tuple[str, ...]] | None:
        """An answer and the clients that it rests on; None where none was kept.

        Raises:
            FormatError: the file holds something else.
        """
        path = self._path(batch, "answer")
        if not path.exists():
            return None
        envelope = read_envelope(path, KIND)
        present = envelope.header.get("present")
        if not isinstance(present, list) or not all(isinstance(name, str) for name in present):
            raise FormatError(f"{path}: header members are missing or mistyped; remove it")
        return envelope.payload, tuple(present)

    def keep_masked(self, batch: str, opened: MaskedBatch) -> None:
        """Keeps what opens a masked batch's sum, beside the shares that will come."""
        header = {"quorum": opened.quorum, "degree": opened.degree}
        path = self._path(batch, "masked")
        write_envelope(path, MASKED_KIND, header, opened.agreed, mode=PRIVATE)

    def masked(self, batch: str) -> MaskedBatch:
        """What was kept.

        Raises:
            InputError: nothing was, or the file holds something else.
        """
        path = self._path(batch, "masked")
        if not path.exists():
            raise InputError(f"batch {batch}: was not opened here ({path} is absent)")
        envelope = read_envelope(path, MASKED_KIND)
        quorum, degree = envelope.header.get("quorum"), envelope.header.get("degree", 0)
        if type(quorum) is not int or type(degree) is not int or len(envelope.payload) != 32:
            raise FormatError(f"{path}: header members are missing or mistyped; remove it")
        return MaskedBatch(envelope.payload, quorum, degree)

    def forget(self, batch: str) -> None:
        """Removes a batch's files; it is read."""
        for kind in ("audit", "answer", "masked"):
            self._path(batch, kind).unlink(missing_ok=True)

    def _path(self, batch: str, kind: str) -> Path:
        if not BATCH.fullmatch(batch):
            raise InputError(f"batch {batch!r}: use letters, digits, '.', '_' and '-', at most 64")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder / f"{batch}.{kind}"

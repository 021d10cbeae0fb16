"""The evaluator's memory of the batches it answered, so that a replayed one is refused.

One line a batch in the file `answered` beside the evaluation key. The names are digests: the file
says nothing about queries.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from .envelope import write_atomic
from .errors import ContributionError, InputError
from .messages import Message, Sent

FILE = "answered"


def refuse_answered(folder: Path, contributions: Sequence[Sent]) -> None:
    """Refuses contributions to a batch that was answered before.

    Raises:
        ContributionError: so; names the contributor.
        InputError: the memory cannot be read.
    """
    answered = _read(folder)
    for each in contributions:
        if _name(each) in answered:
            raise ContributionError(
                f"contributor {each.name!r}: query batch {each.batch!r:.80} was answered before"
                f" ({folder / FILE}); encrypt again for a new batch"
            )


def record_answered(folder: Path, message: Message) -> None:
    """Adds a batch to the memory, whole or not at all.

    Raises:
        InputError: the folder is not writable.
    """
    lines = sorted(_read(folder) | {_name(message)})
    write_atomic(folder / FILE, "".join(f"{line}\n" for line in lines).encode())


def _name(message: Message) -> str:
    facts = "\0".join((message.key, message.federation, message.batch))
    return hashlib.sha256(facts.encode()).hexdigest()


def _read(folder: Path) -> set[str]:
    path = folder / FILE
    try:
        return set(path.read_text(encoding="ascii").splitlines()) if path.exists() else set()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); restore or remove it") from error

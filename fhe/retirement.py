"""Keys that met a wrong answer are used no more.

A wrong answer is a cheating evaluator's, or a contributor's; a cheating evaluator learns from what
is done after it, answer by answer, about the secret key. So a marker is written beside the keys,
and every function that loads keys of the folder refuses them from then on.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from .envelope import write_atomic
from .errors import AnswerError, RetiredError

FILE = "retired"


def refuse_retired(folder: Path) -> None:
    """Refuses the keys of a folder that holds the marker.

    Raises:
        RetiredError: so; says since when and why.
    """
    path = folder / FILE
    if not path.exists():
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        since = f" on {found['date']}, at the answer to batch {found['batch']}"
    except (OSError, ValueError, KeyError, TypeError):
        # A marker that cannot be read is one all the same.
        since = ""
    raise RetiredError(
        f"{folder}: keys retired{since}, which was wrong; make new ones (securefl keys new), give"
        " public.key and evaluation.key out again, and ask who evaluated"
    )


@contextlib.contextmanager
def retiring(folder: Path, batch: str) -> Iterator[None]:
    """Retires the keys of a folder if the answer that is read in the block is wrong.

    Args:
        folder: of the keys.
        batch: that is answered.

    Raises:
        AnswerError: the block's; says that the keys are retired.
    """
    try:
        yield
    except AnswerError as error:
        marker = {"batch": batch, "date": time.strftime("%Y-%m-%d"), "reason": str(error)}
        try:
            write_atomic(folder / FILE, json.dumps(marker).encode())
        except (OSError, ValueError) as failure:
            raise AnswerError(
                f"{error}; use the keys in {folder} no more: they could not be marked as retired"
                f" ({type(failure).__name__}), so remove them"
            ) from error
        raise AnswerError(
            f"{error}; the keys in {folder} are retired, make new ones (securefl keys new)"
        ) from error

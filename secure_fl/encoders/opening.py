"""Opens models of transformers from a folder of this machine, and from nowhere else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secure_fl.errors import FormatError, MissingExtraError


@contextmanager
def importing_offline(needed: str) -> Iterator[None]:
    """A block that imports what opens a model.

    Args:
        needed: what to say where that is not installed.

    Raises:
        MissingExtraError: it is not installed.
    """
    # Both must stand before the first import, or the libraries look for the model online.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        yield
        from transformers.utils import logging
    except ImportError:
        raise MissingExtraError(needed) from None
    # Its bar would run into the caller's own progress.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """A block that opens the model of a folder.

    Raises:
        FormatError: the model is not usable.
    """
    try:
        yield
    except Exception as error:
        # A damaged model raises whatever the part that met it raises: OSError, ValueError,
        # KeyError, RuntimeError, SafetensorError and others.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise FormatError(f"{folder}: not a usable model: {reason[0]}") from error

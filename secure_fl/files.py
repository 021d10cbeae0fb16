"""Folders that appear whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secure_fl.errors import InputError


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Gives a folder to write into that becomes `path` when the block ends without an error.

    An error or Ctrl-C inside the block removes everything written.

    Args:
        path: must not exist; its parent is created.

    Raises:
        InputError: the path exists already or cannot be created.
    """
    if path.exists():
        raise InputError(f"{path}: exists already; remove it or choose another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise InputError(f"{path}: cannot be created ({error.strerror})") from error
    try:
        yield aside
        aside.chmod(0o755)
        aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)

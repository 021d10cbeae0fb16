"""A state folder belongs to one process at a time.

The lock is the kernel's (flock on a file in the folder): it goes with the process that holds it,
however that ends, so nothing has to be cleaned up after a kill.
"""

import fcntl
import os
from pathlib import Path

from fhe.envelope import PRIVATE
from secure_fl.errors import InputError

FILE = "lock"


class Held:
    """A state folder that this process alone works on, until `release` or its end.

    Args:
        folder: that exists.

    Raises:
        InputError: another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._handle, 20).decode("ascii", errors="replace").strip()
            os.close(self._handle)
            if not isinstance(error, BlockingIOError):
                raise InputError(
                    f"{path}: cannot be locked ({error.strerror}); use a folder of a local disk"
                ) from error
            raise InputError(
                f"{folder}: in use by another process ({holder or 'unknown'}); stop that one, or"
                " name another --state"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the folder free."""
        os.close(self._handle)

"""The one place where SEAL is imported: an optional library."""

import ctypes
import functools
from types import ModuleType

from fhe.errors import InputError

EXTRA = "securefl[batched]"


@functools.cache
def seal() -> ModuleType:
    """The module `seal`.

    Raises:
        InputError: it is not installed; names the extra.
    """
    try:
        import seal as module
    except ImportError as error:
        raise InputError(
            f"engine bgv: the library seal-python is not installed; install {EXTRA}"
        ) from error
    return module


_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of glibc's mallopt."""


def return_freed_blocks() -> None:
    """Lets blocks of a megabyte and more go back to the system when they are freed.

    glibc learns to keep them, and then an evaluation holds several times what it uses. Other C
    libraries have no such switch and are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 20)

"""The one place where SEAL is imported: an optional library."""

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

"""The one place where concrete-python is imported: late, because it takes a second."""

import atexit
import contextlib
import shutil
import signal
import warnings
from collections.abc import Iterator
from typing import Any


def concrete_fhe() -> Any:
    """The module `concrete.fhe`.

    Its namespace package asks for `pkg_resources`, whose deprecation is the library's to mend and
    would be printed at every command.
    """
    with warnings.catch_warnings(), interrupts_wait():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        from concrete import fhe

    return fhe


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Keeps Ctrl-C until the block ends.

    Within the library's import it would come out as an ImportError, and while the library compiles,
    draws keys or runs a function its own handler kills the process, and what is half-written stays.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remove_at_exit(server: Any) -> None:
    """Removes the folder of a server's machine code when the process ends.

    The library makes one in the system's temporary folder at every compilation and every loading,
    and its own `cleanup` does nothing.
    """
    atexit.register(shutil.rmtree, server._library.get_output_dir_path(), ignore_errors=True)

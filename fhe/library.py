"""The one place where concrete-python is imported: late, because it takes a second."""

import atexit
import contextlib
import ctypes
import functools
import importlib
import os
import shutil
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def concrete_fhe() -> Any:
    """The module `concrete.fhe`.

    Its namespace package asks for `pkg_resources`, whose deprecation is the library's to mend and
    would be printed at every command.
    """
    with warnings.catch_warnings(), signals_kept(), _torch_later():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        from concrete import compiler, fhe

    # Registered at the import to end a runtime of several machines, which we never start: after a
    # run on one machine it takes this one for a follower of them and calls `exit(0)`, and the
    # status, the handlers registered before it and what Python still had to write are lost.
    atexit.unregister(compiler._terminate_df_parallelization)
    _let_forked_children_end()
    return fhe


@contextlib.contextmanager
def _torch_later() -> Iterator[None]:
    """Lets the block import the library without torch, which takes three times as long by itself.

    Of torch the library uses convolutions and pooling, in circuits that are not ours.
    """
    if "torch" in sys.modules:
        yield
        return
    later = sys.modules["torch"] = _TorchLater()
    try:
        yield
    finally:
        later.leave()


class _TorchLater(types.ModuleType):
    """Stands where torch will; whoever uses it gets torch's own.

    Only the thread whose import it serves sees promises of functions, and no longer than that
    import lasts: any other thread that finds it in torch's place gets torch.
    """

    def __init__(self) -> None:
        super().__init__("torch")
        self._importer = threading.get_ident()

    def leave(self) -> None:
        if sys.modules.get("torch") is self:
            del sys.modules["torch"]

    def __getattr__(self, name: str) -> Any:
        here = threading.get_ident() == self._importer and sys.modules.get("torch") is self
        if here and not name.startswith("__"):
            return _promise(name)
        self.leave()
        return getattr(importlib.import_module("torch"), name)


def _promise(name: str) -> Callable[..., Any]:
    """torch's function of this name, looked up when it is called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(importlib.import_module("torch"), name)(*arguments, **named)

    return call


@functools.cache
def _let_forked_children_end() -> None:
    """A forked child of a process that ran a circuit ends with its status.

    The library's destructors want the threads of the process that ran, which a forked child does
    not have, and die by a signal. So a child leaves before them: `exit` calls its handlers with the
    status, the last registered first, and `_exit` is one that takes a status. Python has ended by
    then, with its own handlers and buffers; what C code still held in buffers is lost.

    Elsewhere than in glibc there is no such handler, and a child has to end by `os._exit`.
    """
    on_exit = getattr(_libc, "on_exit", None)
    if on_exit is not None:
        on_exit.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        leave = ctypes.cast(_libc._exit, ctypes.c_void_p)
        os.register_at_fork(after_in_child=lambda: on_exit(leave, None))


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Keeps Ctrl-C until the block ends, and the process's signal handlers as they were before it.

    Within the library's import Ctrl-C would come out as an ImportError, and while the library
    compiles, draws keys or runs a function its own handler kills the process, and what is
    half-written stays. The import and the first run leave handlers behind, that of SIGPIPE among
    them: a peer that hangs up would then kill the process, where Python raises BrokenPipeError.

    Blocks of several threads may overlap: what is put back is what stood before the first of them,
    never what another thread's library call had just set.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with _blocks:
        _open_blocks.append(_handlers() if not _open_blocks else _open_blocks[0])
    try:
        yield
    finally:
        with _blocks:
            for number, handler in _open_blocks.pop().items():
                _sigaction(number, handler, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_blocks = threading.Lock()
_open_blocks: list[dict[int, "ctypes.Array[ctypes.c_char]"]] = []


def _handlers() -> dict[int, "ctypes.Array[ctypes.c_char]"]:
    return {number: _handler(number) for number in signal.valid_signals() - _FIXED}


_FIXED = {signal.SIGKILL, signal.SIGSTOP}
# The module `signal` sees only what was set through it, and sets from the main thread alone.
_libc = ctypes.CDLL(None)
_sigaction = _libc.sigaction
_sigaction.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


def _handler(number: int) -> ctypes.Array[ctypes.c_char]:
    """The C library's `struct sigaction` of a signal, in more bytes than any platform's takes."""
    found = ctypes.create_string_buffer(1024)
    _sigaction(number, None, found)
    return found


def remove_at_exit(server: Any) -> None:
    """Removes the folder of a server's machine code when the process ends.

    The library makes one in the system's temporary folder at every compilation and every loading,
    and its own `cleanup` does nothing.
    """
    atexit.register(shutil.rmtree, server._library.get_output_dir_path(), ignore_errors=True)

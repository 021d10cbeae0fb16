"""Where networks are trained, chosen once for a run, and how to repeat it to the bit."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from secure_fl.errors import InputError


def choose_device(wish: str = "auto") -> str:
    """The device of a run, for `LocalTraining(device=...)`.

    Args:
        wish: "auto" takes a CUDA device where there is one, else the processor; "cpu", "cuda" or
            "cuda:1" are checked.

    Returns:
        The device's name.

    Raises:
        InputError: no such device here.
    """
    if wish == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wish)
    except RuntimeError as error:
        raise InputError(f'device: found "{wish}", expected auto, cpu, cuda or cuda:N') from error
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type not in ("cpu", "cuda") or (
        device.type == "cuda" and (device.index or 0) >= cards
    ):
        raise InputError(
            f'device "{wish}": this machine has {cards} CUDA devices; take cpu or auto'
        )
    return wish


@contextmanager
def deterministic() -> Iterator[None]:
    """Within it equal seeds give equal bits on one machine, or torch raises; slower on CUDA.

    On the processor results also depend on the number of threads, which is left alone
    (`one_torch_thread` fixes it). cuBLAS reads its setting once: enter before the first
    computation on a CUDA device.
    """
    before = torch.are_deterministic_algorithms_enabled()
    tuned = torch.backends.cudnn.benchmark
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = tuned
        if workspace is None:
            del os.environ["CUBLAS_WORKSPACE_CONFIG"]


class _OneThread:
    """Torch's number of threads while somebody wants one: the first sets it, the last restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.get_num_threads()
            self._inside += 1
            # By everybody: OpenMP keeps a number for each thread that starts others.
            torch.set_num_threads(1)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.set_num_threads(self._before)


_PROCESS = _OneThread()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within it torch computes in one thread on the processor, so that cores move no bit.

    Sums of several threads are added in an order that depends on their number. Several threads of
    a process may be within at once.
    """
    _PROCESS.enter()
    try:
        yield
    finally:
        _PROCESS.leave()

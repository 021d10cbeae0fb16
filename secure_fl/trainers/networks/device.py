"""Where networks are trained, chosen once for a run, and how to repeat it to the bit."""

import os
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

    On the processor results also depend on the number of threads, which is left alone. cuBLAS
    reads its setting once: enter before the first computation on a CUDA device.
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

"""One thread for linear algebra, where work is parallel by itself or too small to divide.

Libraries of linear algebra start a thread a core, and idle ones spin. Beside threads of our own
they take their cores, and on small matrices they do nothing but wait for one another. Results then
depend on the number of cores too, in the last digits.
"""

import sys
from typing import Any

SMALL = 512
"""Side of a matrix up to which decompositions are not worth dividing."""


class SingleThread:
    """`threadpoolctl` with one controller for as long as no further library is loaded."""

    def __init__(self) -> None:
        self._modules = 0
        self._controller: Any = None

    def limit(self) -> Any:
        """A context in which BLAS and OpenMP libraries use one thread, in the whole process."""
        # Finding the libraries takes milliseconds, and only an import can add one.
        if self._modules != len(sys.modules):
            from threadpoolctl import (  # type: ignore[import-untyped]  # has no types
                ThreadpoolController,
            )

            modules = len(sys.modules)
            # The controller first: another thread that sees the number finds it there.
            self._controller = ThreadpoolController()
            self._modules = modules
        return self._controller.limit(limits=1)


_PROCESS = SingleThread()


def one_thread() -> Any:
    """See `SingleThread.limit`; of the process's own controller."""
    return _PROCESS.limit()

"""Machine code that numba keeps on disk, and what it contains of other modules.

Numba takes the kept code of a function for as long as the function's own file is unchanged; of the
compiled functions that it calls, and whose code it contains, it looks at no file.
"""

import contextlib
from pathlib import Path
from types import ModuleType
from typing import Any


def forget_if_older(function: Any, *called: ModuleType) -> None:
    """Has all compiled functions of a file compiled anew where a module they call was changed.

    To be called at the end of that file, before any of its functions is.

    Args:
        function: one of them, compiled with cache=True.
        called: the other modules of compiled functions, directly or through each other.
    """
    stem = Path(function.py_func.__code__.co_filename).stem
    newest = max(Path(str(module.__file__)).stat().st_mtime for module in called)
    for index in Path(function.stats.cache_path).glob(f"{stem}.*.nbi"):
        with contextlib.suppress(FileNotFoundError):  # another process was here first
            if index.stat().st_mtime <= newest:
                index.unlink()

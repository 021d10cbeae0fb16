"""The one place where concrete-python is imported: late, because it takes a second."""

import warnings
from typing import Any


def concrete_fhe() -> Any:
    """The module `concrete.fhe`.

    Its namespace package asks for `pkg_resources`, whose deprecation is the library's to mend and
    would be printed at every command.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        from concrete import fhe

    return fhe

"""The one way in which long work reports how far it is."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a phase, the steps done and all steps."""


def quiet(phase: str, done: int, total: int) -> None:
    """Reports nothing."""

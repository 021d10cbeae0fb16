"""How long to wait between two looks at a server that cannot call back.

A look costs the server a few milliseconds, and whoever looks harder makes everybody slower. The
next message mostly comes after a time that is like the last ones; before it nobody looks, and
after it in steps that are a fixed part of the time that has passed, so that no message waits much
longer than it took to come.
"""

from collections import deque

LEAST = 0.02
"""Seconds between two looks, at least: a few times what a look costs a SuperLink."""
MOST = 3.0
"""Seconds between two looks, at most; what Flower's own node waits."""
_PART = 0.2
_BEFORE = 0.7
"""Of the shortest of the last gaps: nobody looks earlier."""
_GAPS = 5
"""Of a masked sum: its exchanges take turns in being long."""


class Pace:
    """The pauses of one that looks for messages.

    Args:
        least, most: seconds between two looks.
    """

    def __init__(self, least: float = LEAST, most: float = MOST) -> None:
        self._least, self._most = least, most
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    def came(self, after: float) -> None:
        """A message came so many seconds after this side began to wait."""
        self._gaps.append(after)

    def pause(self, waited: float) -> float:
        """Seconds until the next look, where this side has waited so long already."""
        expected = _BEFORE * min(self._gaps, default=0.0) - waited
        return min(max(expected, _PART * waited, self._least), self._most)

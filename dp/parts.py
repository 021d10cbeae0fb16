"""Events that read disjoint parts of a data set, of which each record is in one alone.

Parallel composition (McSherry 2009, theorem 4): whoever looks at all of them learns of a record
what the events of its own part tell, and nothing from the others, which may be chosen after those
before them were seen. What a record costs is then the largest cost of a part.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import frozen

from dp.errors import InputError

if TYPE_CHECKING:
    from dp.events import Event

LONGEST_NAME = 64


@frozen
class Part:
    """Which records of a data set an event read.

    Attributes:
        group: names the division of the data set into parts, 1 to 64 printable characters.
        number: of the part, at least 0. Events of one group and different numbers read disjoint
            records; those of one number may have read the same ones, and add up.
    """

    group: str
    number: int

    def __attrs_post_init__(self) -> None:
        named = isinstance(self.group, str) and 0 < len(self.group) <= LONGEST_NAME
        if not named or not self.group.isprintable():
            raise InputError(f"part: its group must be 1 to {LONGEST_NAME} printable characters")
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 0:
            raise InputError(f"part: found number {self.number!r}, expected a whole number from 0")


def worst_parts(events: Iterable["Event"]) -> list["Event"]:
    """The events that bound what any one record costs.

    Of a group whose events all promise the same the part with most of them stands for the others.
    Where they promise different things no part is surely the worst, and all of them add up.
    """
    found, groups = [], dict[str, list["Event"]]()
    for event in events:
        if event.part is None:
            found.append(event)
        else:
            groups.setdefault(event.part.group, []).append(event)
    for group in groups.values():
        found += _worst(group)
    return found


def _worst(group: list["Event"]) -> list["Event"]:
    kinds = {(event.adjacency, event.promise, event.gaussian) for event in group}
    if len(kinds) > 1:
        return group
    parts = dict[int, list["Event"]]()
    for event in group:
        assert event.part is not None
        parts.setdefault(event.part.number, []).append(event)
    return max(parts.values(), key=lambda own: sum(event.count for event in own))

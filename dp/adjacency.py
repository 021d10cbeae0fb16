"""Which two data sets must be hard to tell apart: the unit of every epsilon."""

import math
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from attrs import field, frozen

from dp.errors import InputError


def _positive(_: object, attribute: object, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        name = getattr(attribute, "name", "value")
        raise InputError(f"{name}: found {value!r}, expected a finite number above 0")


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"distance or norm: found {value!r}, expected a finite number above 0")
    return float(value)


@frozen
class Element:
    """One entry of the matrix moves by at most `distance` (kahm.txt, definition 4).

    Attributes:
        distance: above 0, in the units of the features.
    """

    distance: float = field(converter=_as_float, validator=_positive)
    kind: ClassVar[Literal["element"]] = "element"

    @property
    def unit(self) -> str:
        """The unit that stands beside every epsilon."""
        return f"element (one matrix entry moves by at most {self.distance:.12g})"


@frozen
class Record:
    """One whole row is replaced; rows are clipped to an L2 norm.

    Attributes:
        norm: above 0, in the units of the features.
    """

    norm: float = field(converter=_as_float, validator=_positive)
    kind: ClassVar[Literal["record"]] = "record"

    @property
    def unit(self) -> str:
        """The unit that stands beside every epsilon."""
        return f"record (one row of L2 norm at most {self.norm:.12g} replaced)"


@frozen
class Membership:
    """One record, or one client with all its records, is added or removed.

    The unit of subsampled Gaussian training; a release cannot have it, since the number of rows
    that a release has is public. A sum over clients has the unit "contribution": one client's whole
    update becomes zero, while it is public who took part. "record contribution" is the same for a
    record in a sum over records: its term becomes zero, while the number of records is public. A
    record that is replaced by another is two such changes.

    Attributes:
        of: "record", "record contribution", "client" or "contribution".
    """

    of: Literal["record", "record contribution", "client", "contribution"] = field(default="record")
    kind: ClassVar[Literal["membership"]] = "membership"

    @of.validator
    def _check(self, _: object, value: str) -> None:
        expected = ("record", "record contribution", "client", "contribution")
        if value not in expected:
            raise InputError(f"membership of: found {value!r}, expected one of {expected}")

    @property
    def unit(self) -> str:
        """The unit that stands beside every epsilon."""
        if self.of == "contribution":
            return "client (one client's contribution added or removed, who takes part is public)"
        if self.of == "record contribution":
            return (
                "record (one record's contribution added or removed, how many there are is public)"
            )
        return f"{self.of} (one {self.of} added or removed)"


Adjacency: TypeAlias = Element | Record | Membership


def adjacency_to_json(adjacency: Adjacency) -> dict[str, str | float]:
    """JSON form, e.g. {"kind": "element", "distance": 1.0}."""
    if isinstance(adjacency, Element):
        return {"kind": "element", "distance": adjacency.distance}
    if isinstance(adjacency, Record):
        return {"kind": "record", "norm": adjacency.norm}
    return {"kind": "membership", "of": adjacency.of}


def adjacency_from_json(value: object) -> Adjacency:
    """Reads what `adjacency_to_json` wrote.

    Raises:
        InputError: another form.
    """
    match value:
        case {"kind": "element", "distance": distance, **rest} if not rest:
            return Element(distance)
        case {"kind": "record", "norm": norm, **rest} if not rest:
            return Record(norm)
        case {"kind": "membership", "of": of, **rest} if not rest:
            return Membership(of)
    raise InputError(f"adjacency: found {value!r}, expected an element, record or membership unit")

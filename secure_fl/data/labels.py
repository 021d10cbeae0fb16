"""One class list for the whole federation: labels of any type become codes 0..C-1."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.errors import LabelError, whose

# Leading zeros are not a number: 007 is a name.
_INTEGRAL = re.compile(r"([+-]?)(0|[1-9][0-9]*)(?:\.0*)?")
_PIECE = 2**16
"""Labels that are Python's own objects at once."""
_SHOWN = 12
"""Class names that an error lists before it stops."""


@dataclass(frozen=True)
class ClassList:
    """The federation's classes; a class's code is its place in the list.

    Attributes:
        names: distinct non-empty names, at least one.

    Raises:
        LabelError: no name, an empty one, one with a NUL, one used twice, or two that are one
            number in two spellings ("3" and "3.0").
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise LabelError("class list: no classes; give at least two")
        for i, name in enumerate(self.names):
            if not isinstance(name, str) or not name.strip():
                raise LabelError(f"class list: entry {i} is {name!r}; every class needs a name")
            if "\0" in name:
                # Files keep names in arrays of fixed width, which lose a NUL at the end.
                raise LabelError(f"class list: entry {i} is {name!r}; leave out the NUL")
        seen: dict[str, str] = {}
        for name in self.names:
            key = _number(name) or name
            if key in seen:
                raise LabelError(
                    f'class list: "{seen[key]}" and "{name}" name the same class; keep one spelling'
                )
            seen[key] = name

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def union(cls, labels: Iterable[Iterable[str]]) -> "ClassList":
        """The sorted union over clients, by value if all labels are integers, else as text.

        Args:
            labels: every client's labels as text.

        Raises:
            LabelError: no label at all, or one number in two spellings.
        """
        names = set[str]().union(*(set(each) for each in labels))
        if all(_number(name) for name in names):
            # A float would make neighbours beyond 2^53 one value.
            return cls(tuple(sorted(names, key=lambda name: (Decimal(name), name))))
        return cls(tuple(sorted(names)))

    def codes(
        self, labels: Sequence[str], *, client: str, where: Callable[[int], str]
    ) -> NDArray[np.int64]:
        """Codes of one client's labels.

        A label that is a whole number matches its class in any spelling: 3, 3.0, +3.

        Args:
            labels: text, one a record.
            client: the client's name, for the error; "" where no client is meant.
            where: tells a record's place from its index, for the error, e.g. "line 4 of a.csv".

        Returns:
            Shape (n,), in 0..C-1.

        Raises:
            LabelError: a label that is not in the list; names the client, the place, the label
                and the classes.
        """
        code = {label: self._code(label) for label in set(labels)}
        result = np.array([code[label] for label in labels], dtype=np.int64)
        unknown = np.flatnonzero(result < 0)
        if unknown.size:
            first = int(unknown[0])
            raise LabelError(
                f'{whose(client)}: label "{labels[first]}" in {where(first)} is none of the'
                f" federation's {len(self)} classes ({self._shown()}); correct the label or make"
                " the class list anew"
            )
        return result

    def _code(self, label: str) -> int:
        """The label's code, or -1."""
        if label in self.names:
            return self.names.index(label)
        number = _number(label)
        if number is not None:
            for code, name in enumerate(self.names):
                if _number(name) == number:
                    return code
        return -1

    def _shown(self) -> str:
        shown = ", ".join(self.names[:_SHOWN])
        more = len(self.names) - _SHOWN
        return shown if more <= 0 else f"{shown} and {more} more"


def label_text(
    values: NDArray[Any] | list[str], *, client: str, where: Callable[[int], str]
) -> list[str]:
    """Labels of any type as text: 3 and 3.0 become "3", text loses outer blanks.

    Args:
        values: integers, whole floats, booleans, text or UTF-8 bytes, shape (n,); or n texts.
        client: the client's name, for the error; "" where no client is meant.
        where: tells a record's place from its index, for the error.

    Raises:
        LabelError: a label is not a whole number, is a float so large that neighbours are the
            same one, is empty, holds a NUL, or is of another type.
    """
    if isinstance(values, list):
        return _stripped(values, client, where)
    kind = values.dtype.kind
    if kind in "iub":
        return _spelled(values, lambda value: str(int(value)))
    if kind == "f":
        return _whole(values, client, where)
    if kind == "S":
        return _decoded(values, client, where)
    if kind == "U":
        return _stripped(_spelled(values, str), client, where)
    raise LabelError(f"{whose(client)}: labels of type {values.dtype}; store whole numbers or text")


def _spelled(values: NDArray[Any], spell: Callable[[Any], str]) -> list[str]:
    """The text of each value; equal values share one, which may be fifty times their own size."""
    known: dict[Any, str] = {}
    texts: list[str] = []
    for start in range(0, len(values), _PIECE):
        for value in values[start : start + _PIECE].tolist():
            if value not in known:
                known[value] = spell(value)
            texts.append(known[value])
    return texts


def _whole(values: NDArray[Any], client: str, where: Callable[[int], str]) -> list[str]:
    wrong = np.flatnonzero(~np.isfinite(values) | (values != np.floor(values)))
    if wrong.size:
        first = int(wrong[0])
        raise LabelError(
            f"{whose(client)}: label {values[first]} in {where(first)} is not a whole number;"
            " a class label is a whole number or text"
        )
    bits = np.finfo(values.dtype).nmant + 1
    # Beyond it, and at it, another label may have been rounded to the same float.
    wrong = np.flatnonzero(np.abs(values) >= values.dtype.type(2) ** bits)
    if wrong.size:
        first = int(wrong[0])
        raise LabelError(
            f"{whose(client)}: label {values[first]} in {where(first)} is not below 2^{bits}, up to"
            f" which {values.dtype} holds every whole number; store labels as int64 or text"
        )
    return _spelled(values, lambda value: str(int(value)))


def _decoded(values: NDArray[Any], client: str, where: Callable[[int], str]) -> list[str]:
    try:
        texts = _spelled(values, lambda value: str(value, "utf-8"))
    except UnicodeDecodeError:
        place, value = next((i, v) for i, v in enumerate(values.tolist()) if not _is_utf8(v))
        raise LabelError(
            f"{whose(client)}: label {value!r} in {where(place)} is not UTF-8; store it as text"
        ) from None
    return _stripped(texts, client, where)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _stripped(texts: list[str], client: str, where: Callable[[int], str]) -> list[str]:
    stripped = [text.strip() for text in texts]
    if "" in stripped:
        first = stripped.index("")
        raise LabelError(
            f"{whose(client)}: empty label in {where(first)}; label the record or remove it"
        )
    for row, text in enumerate(stripped):
        if "\0" in text:
            raise LabelError(
                f"{whose(client)}: label {text!r} in {where(row)} holds a NUL; leave it out"
            )
    return stripped


def _number(label: str) -> str | None:
    """The whole number that a label spells, in one spelling; None if it spells none."""
    match = _INTEGRAL.fullmatch(label)
    if not match:
        return None
    sign, digits = match.groups()
    return f"-{digits}" if sign == "-" and digits != "0" else digits

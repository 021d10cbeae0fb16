"""Numbers as people and spreadsheets write them: 1.5 and 1,5, 1,234.5 and 1.234,5, 1 234,5.

One separator before exactly three digits has two readings. Which of them a file means is taken from
its other numbers; where they do not tell, the number is refused rather than guessed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Decimal = Literal["auto", "point", "comma"]
"""The decimal mark of a file; "auto" takes it from the file's own numbers."""

MARKS = {"point": ".", "comma": ","}

_SHAPE = re.compile(
    r"([+-]?)((?:[0-9][0-9.,'’ \u00a0\u202f]*[0-9.,]|[0-9]|[.,][0-9]+))([eE][+-]?[0-9]+)?"
)
_GROUPED = re.compile(r"[0-9]{1,3}(?:['’ \u00a0\u202f][0-9]{3})+(?:[.,][0-9]*)?")
_OPEN = re.compile(r"[1-9][0-9]{0,2}[.,][0-9]{3}")
_BLANKS = str.maketrans("", "", "'’ \u00a0\u202f")


@dataclass(frozen=True)
class Spelled:
    """A number's text, taken apart.

    Attributes:
        decimal: what Python reads where the mark is a decimal mark, or where there is none.
        grouped: what it reads where the mark only parts thousands; None where it cannot.
        mark: the decimal mark that the text has, or may have; "" without.
        shows: the decimal mark that the text proves its writer to use; "" where it proves none.
    """

    decimal: str
    grouped: str | None
    mark: str
    shows: str


def spelled(text: str) -> Spelled | None:
    """Takes a number apart; None where the text is no number.

    Args:
        text: without outer blanks. A sign may be U+2212, thousands may be parted by a point, a
            comma, an apostrophe or a blank.
    """
    match = _SHAPE.fullmatch(text.replace("\u2212", "-"))
    if not match:
        return None
    sign, body, exponent = match[1], match[2], match[3] or ""
    blanks = body != body.translate(_BLANKS)
    if blanks and not _GROUPED.fullmatch(body):
        return None
    body = body.translate(_BLANKS)
    found = {mark for mark in ".," if mark in body}
    if len(found) == 2:
        return _both(sign, body, exponent)
    if not found:
        return Spelled(sign + body + exponent, None, "", "")
    (mark,) = found
    if body.count(mark) > 1:
        # 1,234,567: no number has two decimal marks.
        whole = re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+", body)
        if not whole or exponent or blanks:
            return None
        return Spelled(sign + body.replace(mark, ""), None, "", _other(mark))
    number = f"{sign}{body.replace(mark, '.')}{exponent}"
    if _OPEN.fullmatch(body) and not exponent and not blanks:
        return Spelled(number, sign + body.replace(mark, ""), mark, "")
    return Spelled(number, None, mark, mark)


def _both(sign: str, body: str, exponent: str) -> Spelled | None:
    """1,234.5 or 1.234,5: the last of the two is the decimal mark."""
    mark = max(".,", key=body.rfind)
    whole, _, part = body.rpartition(mark)
    other = _other(mark)
    if mark in whole or not re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(other)}[0-9]{{3}})+", whole):
        return None
    return Spelled(f"{sign}{whole.replace(other, '')}.{part}{exponent}", None, mark, mark)


def _other(mark: str) -> str:
    return "," if mark == "." else "."


@dataclass(frozen=True)
class Convention:
    """The decimal marks of one file.

    Attributes:
        marks: those that its numbers prove, or the one that was stated.
        stated: whether a person said it, so that another mark is an error.
    """

    marks: frozenset[str]
    stated: bool = False

    @classmethod
    def of(cls, texts: Iterable[str], decimal: Decimal = "auto") -> "Convention":
        """What a file's numbers prove, or what is stated."""
        if decimal != "auto":
            return cls(frozenset(MARKS[decimal]), stated=True)
        found = (spelled(text) for text in texts)
        return cls(frozenset(each.shows for each in found if each is not None and each.shows))

    def numeral(self, number: Spelled) -> str | None:
        """The number as Python reads it; None where it has two readings, or the wrong mark."""
        if number.grouped is None:
            wrong = self.stated and number.shows and number.shows not in self.marks
            return None if wrong else number.decimal
        if len(self.marks) == 1:
            return number.decimal if number.mark in self.marks else number.grouped
        # Where a file proves nothing, a point is what it is in every programming language.
        return number.decimal if number.mark == "." and not self.marks else None

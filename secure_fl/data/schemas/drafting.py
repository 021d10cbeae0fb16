"""A first schema from a public table: types, categories, ranges. Never from private files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from secure_fl.data.labels import ClassList, label_text
from secure_fl.data.schemas.columns import (
    MISSING,
    OTHER,
    Category,
    Column,
    Date,
    Number,
    folded,
)
from secure_fl.data.schemas.raw import RawTable, read_raw
from secure_fl.data.schemas.schema import MISSING_VALUES, Label, Schema
from secure_fl.data.schemas.spelling import Convention, Decimal, spelled
from secure_fl.errors import FormatError

DATE_FORMATS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S")
MOST_CATEGORIES = 30
"""Words of a column that are taken for categories; more are free text or names."""
_IDENTIFIERS = 20
"""Records from which on whole numbers, all different and without great gaps, are identifiers."""


@dataclass(frozen=True)
class Draft:
    """A schema to read and correct before it is shared.

    Attributes:
        schema: the draft.
        remarks: what was guessed and should be looked at.
    """

    schema: Schema
    remarks: tuple[str, ...]


def draft_schema(
    path: Path,
    *,
    label: str = "label",
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    dates: Mapping[str, str] | None = None,
    encoding: str = "auto",
    decimal: Decimal = "auto",
) -> Draft:
    """Drafts a schema from a table that anybody may know.

    A column is a number if all its values are, a date if one format reads all of them, otherwise a
    category if it has at most 30 words; what has more is ignored. Ranges are the table's smallest
    and largest values, missing values become the table's median, in categories a feature.

    Args:
        path: a CSV file of public records with labels.
        label: its column with the class.
        ignore: columns to leave out.
        categories: columns of categories, whatever their values look like.
        dates: columns of dates and their formats, where the table does not tell.
        encoding: as `read_raw`.
        decimal: of the file.

    Raises:
        FormatError: the file cannot be read, lacks a column that is named, has a date with two
            readings or a number with two, or no column that can be a feature.
        LabelError: fewer than two classes, or a record without.
    """
    dates = dates or {}
    raw = read_raw(path, (label, *ignore, *categories, *dates), encoding=encoding)
    for column in (label, *ignore, *categories, *dates):
        if raw.place((column,)) is None:
            raise FormatError(
                f'{path}: no column "{column}" (the header has {", ".join(raw.header[:8])}); name a'
                " column that the file has"
            )
    if not raw.rows:
        raise FormatError(f"{path}: no records; a draft needs some")
    left_out = {*map(folded, ignore), folded(label), ""}
    names = [name for name in raw.header if folded(name) not in left_out]
    guess = _Guess(raw, set(map(folded, categories)), {folded(k): v for k, v in dates.items()})
    columns = guess.columns(names, decimal)
    if not columns:
        raise FormatError(f"{path}: no column of numbers, dates or categories; name the categories")
    schema = Schema(
        label=_label(raw, label, path),
        columns=tuple(columns),
        ignore=(*ignore, *guess.ignored),
    )
    return Draft(schema, tuple(guess.remarks))


def _label(raw: RawTable, label: str, path: Path) -> Label:
    place = raw.place((label,))
    assert place is not None
    cells = raw.cells(place)
    texts = label_text(cells, client="", where=lambda i: f"line {raw.lines[i]} of {path}")
    classes = ClassList.union([texts])
    try:
        return Label(column=raw.header[place], classes=classes.names)
    except ValueError as error:
        raise FormatError(f'{path}: column "{label}": {str(error).splitlines()[0]}') from error


class _Guess:
    """What the columns of a public table are, and what should be looked at."""

    def __init__(self, raw: RawTable, categories: set[str], dates: Mapping[str, str]) -> None:
        self._raw = raw
        self._categories = categories
        self._dates = dates
        self.ignored: list[str] = []
        self.remarks: list[str] = []

    def columns(self, names: Sequence[str], decimal: Decimal) -> list[Column]:
        """A column of the schema for every column that can be one."""
        values = {name: self._values(name) for name in names}
        numeric = {
            name
            for name, found in values.items()
            if found
            and folded(name) not in self._categories | set(self._dates)
            and all(spelled(text) for text in set(found))
        }
        convention = Convention.of({t for name in numeric for t in values[name]}, decimal)
        made = []
        for name in names:
            found = values[name]
            if not found:
                self._leave_out(name, "has no values")
            elif name in numeric:
                made.append(self._number(name, found, convention))
            else:
                made.append(self._date(name, found) or self._category(name, found))
        return [column for column in made if column is not None]

    def _values(self, name: str) -> list[str]:
        empty = {"", *map(folded, MISSING_VALUES)}
        place = self._raw.place((name,))
        assert place is not None
        return [cell.strip() for cell in self._raw.cells(place) if folded(cell) not in empty]

    def _flagged(self, found: Sequence[str]) -> bool:
        return len(found) < len(self._raw.rows)

    def _leave_out(self, name: str, why: str) -> None:
        self.ignored.append(name)
        self.remarks.append(f'column "{name}" {why}: ignored')

    def _number(self, name: str, found: list[str], convention: Convention) -> Column | None:
        read: dict[str, float] = {}
        for text in set(found):
            number = spelled(text)
            numeral = None if number is None else convention.numeral(number)
            if numeral is None:
                raise FormatError(
                    f'{self._raw.source}: column "{name}" has "{text[:40]}", a number with two'
                    " readings; say which mark the file uses (--decimal comma or point)"
                )
            read[text] = float(numeral)
        numbers = [read[text] for text in found]
        low, high = min(numbers), max(numbers)
        if low == high:
            self._leave_out(name, f"is {low:g} everywhere")
            return None
        whole = all(number == int(number) for number in numbers)
        distinct = len(set(numbers)) == len(numbers)
        if whole and distinct and len(numbers) >= _IDENTIFIERS and high - low < 2 * len(numbers):
            self._leave_out(name, "numbers the records")
            return None
        if whole and len(set(numbers)) <= 10:
            self.remarks.append(
                f'column "{name}" has {len(set(numbers))} whole numbers: taken as numbers; if they'
                f" are codes, say --category {name}"
            )
        return _built(
            Number,
            name=name,
            range=(low, high),
            missing=float(median(numbers)),
            flag_missing=self._flagged(found),
        )

    def _date(self, name: str, found: list[str]) -> Column | None:
        stated = self._dates.get(folded(name))
        if folded(name) in self._categories:
            return None
        formats = [each for each in ([stated] if stated else DATE_FORMATS) if _reads(each, found)]
        if stated and not formats:
            raise FormatError(
                f'{self._raw.source}: column "{name}" has values that {stated} does not read;'
                " correct --date"
            )
        if not formats:
            return None
        if len(formats) > 1:
            raise FormatError(
                f'{self._raw.source}: column "{name}" has dates that {" and ".join(formats)} both'
                f" read; say which it is (--date {name}={formats[0]})"
            )
        (chosen,) = formats
        moments = sorted({datetime.strptime(text, chosen) for text in found})
        if len(moments) == 1:
            self._leave_out(name, "is one date everywhere")
            return None
        return _built(
            Date,
            name=name,
            formats=(chosen,),
            range=(moments[0].strftime(chosen), moments[-1].strftime(chosen)),
            missing=moments[len(moments) // 2].strftime(chosen),
            flag_missing=self._flagged(found),
        )

    def _category(self, name: str, found: list[str]) -> Column | None:
        words: dict[str, str] = {}
        for text in found:
            words.setdefault(folded(text), text)
        if len(words) > MOST_CATEGORIES and folded(name) not in self._categories:
            self._leave_out(name, f"has {len(words)} different texts")
            return None
        if len(words) == 1:
            self._leave_out(name, f'is "{next(iter(words.values()))[:40]}" everywhere')
            return None
        listed = [words[word] for word in sorted(words)]
        numerals = {text for text in words.values() if spelled(text)}
        numbers = sum(words[folded(text)] in numerals for text in found)
        if 0 < numbers < len(found) and numbers > len(found) / 2:
            odd = next(text for text in found if words[folded(text)] not in numerals)
            self.remarks.append(
                f'column "{name}" is numbers but for "{odd[:40]}": taken as categories; if that'
                " means a missing value, put it into missing_values and draft without it"
            )
        wrong = {OTHER, MISSING} & set(listed)
        if wrong:
            raise FormatError(
                f'{self._raw.source}: column "{name}" has the word "{min(wrong)}", as a feature is'
                " called; write it otherwise in the public table"
            )
        return _built(Category, name=name, categories=listed)


def _reads(form: str, found: Sequence[str]) -> bool:
    try:
        for text in set(found):
            datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def _built(kind: Any, **fields: Any) -> Any:
    try:
        return kind(**fields)
    except ValueError as error:
        raise FormatError(f'column "{fields["name"]}": {str(error).splitlines()[0]}') from error

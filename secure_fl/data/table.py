"""Client files in CSV with a header: a label column, and numbers or one text column.

Fields may be separated by commas, semicolons, tabs or bars: the header tells, for it must name the
columns that are asked for.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from secure_fl.data._streams import MAX_BYTES, read_text
from secure_fl.data.dataset import Records, client_name, require_finite
from secure_fl.data.labels import label_text
from secure_fl.data.numerals import is_rounded, large
from secure_fl.errors import FeatureError, FormatError, whose

_MAX_FIELD = 2**27
"""Characters of one field: a long document, not a file with a missing quote."""

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""What separates fields, and its name in messages."""

_BLOCK = 4096
"""Rows of numbers converted at a time."""

_DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")


@dataclass(frozen=True)
class Columns:
    """Which column of a CSV file is what.

    Attributes:
        label: the class.
        text: the text to encode; with it, all other columns are left out. None: features are
            all columns but the label, the group and the ignored ones.
        group: a column that names the record's group (e.g. its site), or None.
        ignore: columns to leave out, e.g. ("id",).
        unlabelled: the label column may be absent, as in queries.
        targets: columns of numbers to be predicted, in place of the label; of other formats the
            names of the columns of y.
    """

    label: str = "label"
    text: str | None = None
    group: str | None = None
    ignore: tuple[str, ...] = ()
    unlabelled: bool = False
    targets: tuple[str, ...] = ()

    @property
    def labelling(self) -> tuple[str, ...]:
        """The columns that say what is to be learned."""
        return self.targets or (self.label,)

    def needed(self) -> tuple[str, ...]:
        """The columns that a file must have."""
        optional = [name for name in (self.text, self.group) if name is not None]
        return (*self.labelling, *optional)

    def option(self, column: str) -> str:
        """The command's option that names this column."""
        if column in self.targets:
            return "--targets"
        options = {self.label: "--label-column", self.group: "--group-column"}
        return options.get(column, "--text-column")


def read_csv(
    path: str | Path,
    columns: Columns | None = None,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Records:
    """Reads a CSV file (UTF-8, RFC 4180 quoting) whose first line names the columns.

    Args:
        path: the file; .bz2, .gz and .xz are unpacked.
        columns: which column is what; None means `Columns()`.
        delimiter: one character; None takes the comma, or where the header then lacks a needed
            column the one of semicolon, tab and bar with which it has them all.
        name: the client; None takes it from the file's name (`naming.stem`), "" is no client.
        max_bytes: cap on the unpacked size.

    Returns:
        Records with features as float64 and their names, or with texts.

    Raises:
        FormatError: no such delimiter, no header, a named column absent or twice, a line with
            another number of fields, not UTF-8, or over the cap.
        FeatureError: a feature is empty, not a number, not finite, or a whole number that float64
            does not hold exactly; names column and line.
        LabelError: an empty label.
        ClientError: the name cannot be a client's.
    """
    columns = columns or Columns()
    records = read_table(path, columns, delimiter=delimiter, name=name, max_bytes=max_bytes)
    for column in columns.ignore:
        if records.header is not None and column not in records.header:
            raise FormatError(
                f'{path}: no column "{column}" to ignore (the header has {_shown(records.header)});'
                f" correct or leave out --ignore-column {column}"
            )
    return records


def read_table(
    path: str | Path,
    columns: Columns,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Records:
    """As `read_csv`, but a column to ignore may be absent."""
    path = Path(path)
    client = client_name(name, path)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise FormatError(f"{path}: delimiter {delimiter!r}; give one character, e.g. ','")
    text = read_text(path, max_bytes)
    table = _Table(client, path, columns)
    _fill(table, text, delimiter or _delimiter(text, columns))
    records = table.records()
    require_finite(records)
    return _with_targets(records, columns.targets)


def _with_targets(records: Records, targets: tuple[str, ...]) -> Records:
    """Takes the columns that are to be predicted out of the features, where the file has them."""
    names = records.features or ()
    if not targets or not set(targets) <= set(names):
        return records
    kept = [i for i, name in enumerate(names) if name not in targets]
    return replace(
        records,
        X=records.X[:, kept],
        features=tuple(names[i] for i in kept),
        targets=records.X[:, [names.index(name) for name in targets]].astype(np.float64),
    )


def _delimiter(text: str, columns: Columns) -> str:
    """The first delimiter with which the header has all needed columns; else the most frequent."""
    line = next((each for each in text.splitlines() if each.strip()), "")
    for delimiter in DELIMITERS:
        try:
            header = {field.strip() for field in next(csv.reader([line], delimiter=delimiter))}
        except csv.Error:
            continue
        if header >= set(columns.needed()):
            return delimiter
    return max(DELIMITERS, key=line.count)


def _fill(table: "_Table", text: str, delimiter: str) -> None:
    """Reads the header and hands the table its rows, a block at a time."""
    rows = rows_of(table.path, text, delimiter)
    _, header = next(rows, (0, []))
    table.start([column.strip() for column in header], delimiter)
    for line, row in rows:
        if row:
            table.add(row, line)


def rows_of(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV text, the header among them, each with the line that it ends in.

    Raises:
        FormatError: quoting that is none, or a field that is too long; names the line.
    """
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while (row := _next_row(reader, path)) is not None:
        yield reader.line_num, row


def _next_row(reader: Any, path: Path) -> list[str] | None:
    # Documents may be longer than the module's own limit, which is the process's: a reader that is
    # left half-way must not keep it raised.
    limit = csv.field_size_limit(_MAX_FIELD)
    try:
        row: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise FormatError(
            f"{path}: line {reader.line_num}: {error}; quote fields as RFC 4180 says"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return row


class _Table:
    """The columns of one file as they fill.

    Numbers are converted a block at a time: as text they take ten times their size.
    """

    def __init__(self, client: str, path: Path, columns: Columns) -> None:
        self.path = path
        self._client = client
        self._columns = columns
        self._lines: list[int] = []
        self._labels: list[str] = []
        self._groups: list[str] = []
        self._texts: list[str] = []
        self._cells: list[list[str]] = []
        self._blocks: list[NDArray[np.float64]] = []

    def start(self, header: list[str], delimiter: str) -> None:
        """Finds the columns."""
        self._delimiter = delimiter
        self._header = tuple(header)
        if not any(header):
            raise FormatError(f"{self.path}: no header line; name the columns in the first line")
        columns = self._columns
        self._width = len(header)
        self._place = _places(self.path, header, columns, delimiter)
        listed = (*columns.needed(), *columns.ignore)
        # Targets are read as the features are, and taken out afterwards.
        used = {self._place.get(column) for column in listed if column not in columns.targets}
        numeric = columns.text is None
        self._kept = [i for i in range(len(header)) if i not in used] if numeric else []
        self._features = tuple(header[i] for i in self._kept)
        if numeric and set(self._features) <= set(columns.targets):
            named = ", ".join(
                name for name in (*columns.needed(), *columns.ignore) if name in header
            )
            raise FormatError(f"{self.path}: no feature columns beside {named}")

    def add(self, row: list[str], line: int) -> None:
        """Takes one record."""
        if len(row) != self._width:
            raise FormatError(
                f"{self.path}: line {line} has {len(row)} fields, the header {self._width}; quote"
                f" fields that hold {self._delimiter!r}"
            )
        columns, place = self._columns, self._place
        self._lines.append(line)
        if columns.label in place and not columns.targets:
            self._labels.append(row[place[columns.label]])
        if columns.group is not None:
            group = row[place[columns.group]].strip()
            if "\0" in group:
                raise FormatError(
                    f"{self.path}: line {line}: group {group!r} holds a NUL; leave it out"
                )
            self._groups.append(group)
        if columns.text is not None:
            self._texts.append(row[place[columns.text]])
            return
        self._cells.append([row[i] for i in self._kept])
        if len(self._cells) == _BLOCK:
            self._convert()

    def records(self) -> Records:
        """All that was added."""
        self._convert()
        numeric = self._columns.text is None
        labels = None
        if self._columns.label in self._place and not self._columns.targets:
            labels = tuple(label_text(self._labels, client=self._client, where=self._where))
        return Records(
            self._client,
            str(self.path),
            labels,
            np.concatenate(self._blocks) if numeric else None,
            None if numeric else tuple(self._texts),
            self._features if numeric else None,
            None if self._columns.group is None else tuple(self._groups),
            np.array(self._lines, dtype=np.int64),
            header=self._header,
        )

    def _where(self, row: int) -> str:
        return f"line {self._lines[row]} of {self.path}"

    def _convert(self) -> None:
        cells, self._cells = self._cells, []
        if not cells:
            self._blocks.append(np.empty((0, len(self._kept)), dtype=np.float64))
            return
        # Python takes 1_000 for a number; in a file it is more likely an identifier.
        if not any("_" in "".join(row) for row in cells):
            try:
                block = np.array(cells, dtype=np.float64)
            except ValueError:
                pass
            else:
                self._refuse_rounded(cells, block)
                self._blocks.append(block)
                return
        self._refuse(cells)

    def _refuse_rounded(self, cells: list[list[str]], block: NDArray[np.float64]) -> None:
        for row, column in large(block):
            text = cells[row][column]
            if is_rounded(text):
                name, line = self._features[column], self._lines[row - len(cells)]
                raise FeatureError(
                    f'{whose(self._client)}: feature "{name}" in line {line} of {self.path} is'
                    f" {text.strip()[:40]}, a whole number that float64 does not hold exactly;"
                    f" ignore the column if it names something (--ignore-column {name}), or round"
                    " it"
                )

    def _refuse(self, cells: list[list[str]]) -> NoReturn:
        first = len(self._lines) - len(cells)
        for row, line in zip(cells, self._lines[first:], strict=True):
            for text, column in zip(row, self._features, strict=True):
                if _not_a_number(text):
                    found = f'"{text[:40]}"' if text.strip() else "empty"
                    mend = "write 1.5 for 1,5" if _DECIMAL_COMMA.fullmatch(text) else "correct it"
                    if self._columns.label not in self._place and not self._columns.targets:
                        mend += f", name it if it is the label (--label-column {column})"
                    raise FeatureError(
                        f'{whose(self._client)}: feature "{column}" in line {line} of'
                        f" {self.path} is {found}, not a number; {mend}, or ignore the column"
                        f" (--ignore-column {column})"
                    )
        raise FeatureError(f"{whose(self._client)}: features in {self.path} are not all numbers")


def _places(path: Path, header: Sequence[str], columns: Columns, delimiter: str) -> dict[str, int]:
    place: dict[str, int] = {}
    for i, column in enumerate(header):
        if column in place or not column:
            what = f'column "{column}" twice' if column else f"column {i + 1} without a name"
            raise FormatError(f"{path}: {what} in the header; name each column once")
        if "\0" in column:
            raise FormatError(f"{path}: column {column!r} in the header holds a NUL; leave it out")
        place[column] = i
    for column in columns.needed():
        if column not in place and not (columns.unlabelled and column in columns.labelling):
            kind = "label column" if column == columns.label else "column"
            by = DELIMITERS.get(delimiter, delimiter)
            how = "" if delimiter == "," else f", separated by {by}"
            raise FormatError(
                f'{path}: no {kind} "{column}" (the header has {_shown(header)}{how}); name the'
                f" column that the file has ({columns.option(column)})"
            )
    return place


def _shown(header: Sequence[str]) -> str:
    return ", ".join(header[:8]) + (", ..." if len(header) > 8 else "")


def _not_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return True
    return "_" in text

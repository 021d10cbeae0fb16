"""A CSV file as it is: its header and its cells as text, whatever separates them."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from secure_fl.data._streams import MAX_BYTES, decoded
from secure_fl.data.schemas.columns import folded
from secure_fl.data.table import DELIMITERS, rows_of
from secure_fl.errors import FormatError


@dataclass(frozen=True)
class RawTable:
    """The cells of a file.

    Attributes:
        source: the file.
        header: its columns, at least one; "" where one has no name.
        rows: one list of cells a record, each as long as the header.
        lines: each record's line in the file.
        blank: rows that were left out because all their cells are empty.
    """

    source: str
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]
    blank: int

    def place(self, names: Sequence[str]) -> int | None:
        """The column that one of the names calls, in any case; None where there is none.

        Raises:
            FormatError: two columns are called so.
        """
        wanted = set(map(folded, names))
        found = [i for i, column in enumerate(self.header) if folded(column) in wanted]
        if len(found) > 1:
            both = " and ".join(f'"{self.header[i]}"' for i in found[:2])
            raise FormatError(f"{self.source}: columns {both} are one; remove or rename one")
        return found[0] if found else None

    def cells(self, place: int) -> list[str]:
        """A column's cells."""
        return [row[place] for row in self.rows]


def read_raw(
    path: Path,
    known: Collection[str],
    *,
    encoding: str = "auto",
    max_bytes: int = MAX_BYTES,
) -> RawTable:
    """Reads a CSV file with a header.

    Args:
        path: the file; .bz2 and .gz are unpacked.
        known: columns that are looked for; the delimiter that shows most of them is the file's.
        encoding: one of `ENCODINGS`.
        max_bytes: cap on the unpacked size.

    Raises:
        FormatError: not a text of this encoding, no header, a line with another number of fields,
            cells in a column without a name, or quoting that is none.
    """
    text = decoded(path, encoding, max_bytes)
    first, _, rest = text.partition("\n")
    # Spreadsheets write their delimiter into a line of its own.
    stated = first.rstrip("\r").removeprefix("sep=") if first.startswith("sep=") else ""
    skipped = 1 if len(stated) == 1 else 0
    delimiter = stated if skipped else _delimiter(text, known)
    rows = rows_of(path, rest if skipped else text, delimiter)
    header: list[str] = []
    kept, lines, blank = [], [], 0
    for line, row in rows:
        line += skipped
        if not any(cell.strip() for cell in row):
            # A row of separators alone is what a spreadsheet leaves below a table.
            blank += bool(row and header)
        elif not header:
            header = [cell.strip() for cell in row]
        elif len(row) != len(header):
            raise FormatError(
                f"{path}: line {line} has {len(row)} fields, the header {len(header)} (separated by"
                f" {DELIMITERS.get(delimiter, delimiter)}); quote fields that hold {delimiter!r}"
            )
        else:
            kept.append(row)
            lines.append(line)
    if not header:
        raise FormatError(f"{path}: no header line; name the columns in the first line")
    table = RawTable(str(path), tuple(header), kept, lines, blank)
    _check_nameless(table)
    return table


def _delimiter(text: str, known: Collection[str]) -> str:
    """The delimiter with which the header shows most of the known columns, else most columns."""
    line = next((each for each in text.splitlines() if each.strip()), "")
    wanted = set(map(folded, known))

    def shown(delimiter: str) -> tuple[int, int]:
        try:
            header = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            return 0, 0
        return len(wanted & set(map(folded, header))), len(header)

    return max(DELIMITERS, key=shown)


def _check_nameless(table: RawTable) -> None:
    for i, column in enumerate(table.header):
        filled = [] if column else [j for j, cell in enumerate(table.cells(i)) if cell.strip()]
        if filled:
            raise FormatError(
                f"{table.source}: column {i + 1} has no name, and line {table.lines[filled[0]]}"
                " has something in it; name each column"
            )

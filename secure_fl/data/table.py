"""Client files in CSV with a header: a label column, and numbers or one text column."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secure_fl.data._streams import COMPRESSED, MAX_BYTES, read_text
from secure_fl.data.dataset import Records, check_name, require_finite
from secure_fl.data.labels import label_text
from secure_fl.errors import FeatureError, FormatError

_MAX_FIELD = 2**27
"""Characters of one field: a long document, not a file with a missing quote."""


@dataclass(frozen=True)
class Columns:
    """Which column of a CSV file is what.

    Attributes:
        label: the class.
        text: the text to encode; with it, all other columns are left out. None: features are
            all columns but the label, the group and the ignored ones.
        group: a column that names the record's group (e.g. its site), or None.
        ignore: columns to leave out, e.g. ("id",).
    """

    label: str = "label"
    text: str | None = None
    group: str | None = None
    ignore: tuple[str, ...] = ()

    def named(self) -> tuple[str, ...]:
        """Every column that this names."""
        optional = [name for name in (self.text, self.group) if name is not None]
        return (self.label, *optional, *self.ignore)


def read_csv(
    path: str | Path,
    columns: Columns | None = None,
    *,
    delimiter: str = ",",
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Records:
    """Reads a CSV file (UTF-8, RFC 4180 quoting) whose first line names the columns.

    Args:
        path: the file; .bz2 and .gz are unpacked.
        columns: which column is what; None means `Columns()`.
        delimiter: one character.
        name: the client; None takes the file's name without its extensions.
        max_bytes: cap on the unpacked size.

    Returns:
        Records with features as float64 and their names, or with texts.

    Raises:
        FormatError: no header, a named column absent or twice, a line with another number of
            fields, not UTF-8, or over the cap.
        FeatureError: a feature is empty, not a number, or not finite; names column and line.
        LabelError: an empty label.
        ClientError: the name cannot be a client's.
    """
    path = Path(path)
    columns = columns or Columns()
    client = check_name(name or stem(path), str(path))
    header, rows, lines = _rows(path, delimiter, max_bytes)
    place = _places(path, header, columns)

    def where(row: int) -> str:
        return f"line {lines[row]} of {path}"

    labels = label_text([row[place[columns.label]] for row in rows], client=client, where=where)
    groups = None
    if columns.group is not None:
        groups = tuple(row[place[columns.group]].strip() for row in rows)
    used = {place[column] for column in columns.named()}
    texts = X = features = None
    if columns.text is not None:
        texts = tuple(row[place[columns.text]] for row in rows)
    else:
        kept = [i for i in range(len(header)) if i not in used]
        features = tuple(header[i] for i in kept)
        if not kept:
            raise FormatError(f"{path}: no feature columns beside {', '.join(columns.named())}")
        X = _numbers(rows, kept, features, client, path, lines)
    records = Records(
        client,
        str(path),
        tuple(labels),
        X,
        texts,
        features,
        groups,
        np.array(lines, dtype=np.int64),
    )
    require_finite(records)
    return records


def stem(path: Path) -> str:
    """A file's name without its extension and a compression suffix: a of a.csv.gz."""
    name = path.name
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).stem


def _rows(
    path: Path, delimiter: str, max_bytes: int
) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, the non-blank rows, and the line on which each row ends."""
    text = read_text(path, max_bytes)
    limit = csv.field_size_limit(_MAX_FIELD)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        header = [column.strip() for column in next(reader, [])]
        if not any(header):
            raise FormatError(f"{path}: no header line; name the columns in the first line")
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise FormatError(
                    f"{path}: line {reader.line_num} has {len(row)} fields, the header"
                    f" {len(header)}; quote fields that hold {delimiter!r}"
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise FormatError(
            f"{path}: line {reader.line_num}: {error}; quote fields as RFC 4180 says"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return header, rows, lines


def _places(path: Path, header: Sequence[str], columns: Columns) -> dict[str, int]:
    place: dict[str, int] = {}
    for i, column in enumerate(header):
        if column in place or not column:
            what = f'column "{column}" twice' if column else f"column {i + 1} without a name"
            raise FormatError(f"{path}: {what} in the header; name each column once")
        place[column] = i
    for column in columns.named():
        if column not in place:
            kind = "label column" if column == columns.label else "column"
            shown = ", ".join(header[:8]) + (", ..." if len(header) > 8 else "")
            raise FormatError(
                f'{path}: no {kind} "{column}" (the header has {shown}); name the column that the'
                " file has"
            )
    return place


def _numbers(
    rows: list[list[str]],
    kept: list[int],
    features: tuple[str, ...],
    client: str,
    path: Path,
    lines: list[int],
) -> NDArray[np.float64]:
    if not rows:
        return np.empty((0, len(kept)), dtype=np.float64)
    cells = [[row[i] for i in kept] for row in rows]
    # Python takes 1_000 for a number; in a file it is more likely an identifier.
    if not any("_" in "".join(row) for row in cells):
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
    for row, line in zip(rows, lines, strict=True):
        for i, column in zip(kept, features, strict=True):
            if _not_a_number(row[i]):
                found = f'"{row[i][:40]}"' if row[i].strip() else "empty"
                raise FeatureError(
                    f'client "{client}": feature "{column}" in line {line} of {path} is {found},'
                    " not a number; correct it, or ignore the column"
                )
    raise FeatureError(f'client "{client}": features in {path} are not all numbers')


def _not_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return True
    return "_" in text

"""Files of all kinds of spellings in, client data of one schema out; what changed is counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secure_fl.data._streams import MAX_BYTES
from secure_fl.data.assembly import assemble
from secure_fl.data.dataset import Dataset, Records, client_name
from secure_fl.data.labels import ClassList, label_text
from secure_fl.data.naming import format_suffix
from secure_fl.data.readers import client_files
from secure_fl.data.schemas.cells import Cells, Convention, Decimal, features_of
from secure_fl.data.schemas.columns import Category, Date, folded
from secure_fl.data.schemas.raw import RawTable, read_raw
from secure_fl.data.schemas.schema import Schema
from secure_fl.errors import ClientError, FormatError, whose

Array = NDArray[np.float64]


@dataclass
class Counts:
    """What became of a file; for its owner, it stands in no prepared file.

    Attributes:
        records: that are left.
        missing: values that were missing, by column.
        outside: values outside of the range, or words that are not listed, by column.
        unlabelled: records that were dropped because they have no class.
        blank: rows without anything in them.
        dropped: columns that the schema does not name.
        decimal: the decimal marks of the numbers: "point", "comma", "both" or "none".
    """

    records: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    unlabelled: int = 0
    blank: int = 0
    dropped: tuple[str, ...] = ()
    decimal: str = "none"


@dataclass(frozen=True)
class Prepared:
    """A client's records by the schema, and what became of its file.

    Attributes:
        data: features in the schema's order, codes of the schema's classes; without labels, all
            codes are 0.
        counts: for the file's owner.
    """

    data: Dataset
    counts: Counts


def prepare_clients(
    source: Path,
    schema: Schema,
    *,
    encoding: str = "auto",
    decimal: Decimal = "auto",
    labelled: bool = True,
    origin: str = "schema.json",
    max_bytes: int = MAX_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Prepared, ...]:
    """Prepares one CSV file, or every file of a folder with one a client.

    Args:
        source: the file or folder; a client is called what its file is.
        schema: of the federation.
        encoding, max_bytes: as `read_raw`.
        decimal: the files' decimal mark; "auto" takes each file's from its own numbers.
        labelled: whether the files have classes; queries may have none.
        origin: where the schema comes from, for messages.
        progress: called with files read and files in all.

    Raises:
        FormatError: a file is no CSV, cannot be read, or lacks a column of the schema.
        FeatureError: a value that is no number, date or category, or one that the schema says to
            refuse; names client, column and line.
        LabelError: a class that the schema does not list, or none.
        ClientError: a file's name cannot be a client's, or no record is left.
    """
    files = client_files(source)
    columns = (name for column in schema.columns for name in (column.name, *column.other_names))
    known = {*schema.label.names, *columns}
    found = []
    for done, (name, path) in enumerate(files.items(), start=1):
        if format_suffix(path) not in (".csv", ".tsv"):
            raise FormatError(f"{path}: no csv file; a schema is for tables in csv")
        raw = read_raw(path, known, encoding=encoding, max_bytes=max_bytes)
        found.append(_prepared(raw, name, schema, decimal, labelled, origin))
        if progress is not None:
            progress(done, len(files))
    data = assemble([records for records, _ in found], classes=ClassList(schema.label.classes))
    return tuple(Prepared(each, counts) for each, (_, counts) in zip(data, found, strict=True))


def _prepared(
    raw: RawTable, name: str, schema: Schema, decimal: Decimal, labelled: bool, origin: str
) -> tuple[Records, Counts]:
    client = client_name(name, Path(raw.source))
    counts = Counts(blank=raw.blank)
    places = _places(raw, schema, labelled, origin)
    counts.dropped = _dropped(raw, schema, places, origin)
    labels: list[str] | None = None
    if labelled:
        raw, labels = _labels(raw, places[schema.label.column], schema, client, origin, counts)
    if not raw.rows:
        raise ClientError(f"{whose(client)}: no records in {raw.source}; add some")
    context = Cells(client, raw.source, raw.lines, schema, origin)
    numeric = [c for c in schema.columns if not isinstance(c, Category | Date)]
    texts = (raw.cells(places[column.name]) for column in numeric)
    convention = context.convention([cell for cells in texts for cell in cells], numeric, decimal)
    counts.decimal = _named(convention)
    blocks = []
    for column in schema.columns:
        cells = raw.cells(places[column.name])
        block, missing, outside = features_of(column, cells, context, convention)
        blocks.append(block)
        counts.missing[column.name], counts.outside[column.name] = missing, outside
    counts.records = len(raw.rows)
    records = Records(
        client,
        raw.source,
        tuple(labels or [schema.label.classes[0]] * len(raw.rows)),
        np.concatenate(blocks, axis=1),
        features=schema.features,
        lines=np.array(raw.lines, dtype=np.int64),
        header=raw.header,
        schema=schema.digest,
    )
    return records, counts


def _places(raw: RawTable, schema: Schema, labelled: bool, origin: str) -> dict[str, int]:
    """The place of every column of the schema, and of the label, in a file."""
    wanted: list[tuple[str, ...]] = [(c.name, *c.other_names) for c in schema.columns]
    if labelled:
        wanted.append(schema.label.names)
    places: dict[str, int] = {}
    for names in wanted:
        place = raw.place(names)
        if place is None:
            raise FormatError(
                f'{raw.source}: no column "{names[0]}" (the header has {_shown(raw.header)}), the'
                f" schema has it ({origin}); if the file calls it otherwise, add that to its"
                " other_names at all parties"
            )
        places[names[0]] = place
    return places


def _dropped(raw: RawTable, schema: Schema, places: dict[str, int], origin: str) -> tuple[str, ...]:
    """Columns that the schema does not name at all."""
    named = set(map(folded, (*schema.ignore, *schema.label.names)))
    extra = tuple(
        column
        for i, column in enumerate(raw.header)
        if column and i not in places.values() and folded(column) not in named
    )
    if extra and schema.other_columns == "refuse":
        raise FormatError(
            f'{raw.source}: column "{extra[0]}" is none of the schema\'s ({origin}); remove it, or'
            " list it under ignore at all parties"
        )
    return extra


def _labels(
    raw: RawTable, place: int, schema: Schema, client: str, origin: str, counts: Counts
) -> tuple[RawTable, list[str]]:
    """The records that have a class, and their classes."""
    label = schema.label
    words = {**{folded(name): name for name in label.classes}, **label.spellings}
    empty = {"", *map(folded, schema.missing_values)} - set(words)
    cells = raw.cells(place)
    kept = [i for i, cell in enumerate(cells) if folded(cell) not in empty]
    counts.unlabelled = len(cells) - len(kept)
    if counts.unlabelled and label.missing == "refuse":
        first = next(i for i, cell in enumerate(cells) if folded(cell) in empty)
        raise FormatError(
            f"{whose(client)}: no class in line {raw.lines[first]} of {raw.source} (column"
            f' "{raw.header[place]}", {counts.unlabelled} in all); fill it in, remove the'
            f' record, or say "missing": "drop" of the label ({origin})'
        )
    found = replace(raw, rows=[raw.rows[i] for i in kept], lines=[raw.lines[i] for i in kept])
    texts = [words.get(folded(cells[i]), cells[i]) for i in kept]
    lines = found.lines
    stripped = label_text(texts, client=client, where=lambda i: f"line {lines[i]} of {raw.source}")
    return found, stripped


def _named(convention: Convention) -> str:
    names = {frozenset(): "none", frozenset("."): "point", frozenset(","): "comma"}
    return names.get(convention.marks, "both")


def _shown(header: Sequence[str]) -> str:
    return ", ".join(header[:8]) + (", ..." if len(header) > 8 else "")

"""`schema.json`: what all parties of a federation make of their tables.

It is made of public knowledge and shared by everybody; nothing in it may come from private files.
Its digest stands in every prepared file and in the federation's manifest.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import in_, instance_of

from fhe.envelope import write_atomic
from secure_fl.data.labels import ClassList
from secure_fl.data.schemas.columns import (
    KINDS,
    REFUSE,
    Category,
    Column,
    Date,
    folded,
    spellings_of,
    texts,
)
from secure_fl.errors import FormatError, InputError
from secure_fl.files import read_json_object

FORMAT_VERSION = 1
MAX_BYTES = 16 * 2**20
MISSING_VALUES = ("NA", "N/A", "NaN", "null", "-", "?")
"""Texts that a draft takes for missing values, beside the empty field."""


def _columns(value: Iterable[Column]) -> tuple[Column, ...]:
    return tuple(value)


@attrs.frozen(kw_only=True)
class Label:
    """The column with the class.

    Attributes:
        column: its name.
        classes: the federation's, at least two, in the order of their codes.
        other_names: headers that other parties' files have in its place.
        spellings: other words, with the class that each of them means.
        missing: "refuse", or "drop" for records without a class (counted).
    """

    column: str = attrs.field(validator=instance_of(str))
    classes: tuple[str, ...] = attrs.field(converter=texts)
    other_names: tuple[str, ...] = attrs.field(default=(), converter=texts)
    spellings: Mapping[str, str] = attrs.field(factory=dict, converter=spellings_of)
    missing: str = attrs.field(default=REFUSE, validator=in_((REFUSE, "drop")))

    @classes.validator
    def _two(self, _: object, value: tuple[str, ...]) -> None:
        ClassList(value)
        if len(value) < 2:
            raise ValueError("classes: give at least two")

    @spellings.validator
    def _known(self, _: object, value: Mapping[str, str]) -> None:
        for text, name in value.items():
            if name not in self.classes:
                raise ValueError(f"spellings: {text!r} means {name!r}, which is no class")

    @property
    def names(self) -> tuple[str, ...]:
        """All headers that name it."""
        return (self.column, *self.other_names)


@attrs.frozen(kw_only=True)
class Schema:
    """What becomes of the columns of a table.

    Attributes:
        label: the column with the class.
        columns: those that become features, in the order of the features.
        ignore: columns that are left out.
        other_columns: of a file, which the schema does not name: "drop" (told) or "refuse".
        missing_values: texts that mean a missing value, beside the empty field.
        scaling: "range" maps every number's public range to [0, 1], so that all features lie there;
            "none" leaves numbers in their units.
    """

    label: Label
    columns: tuple[Column, ...] = attrs.field(converter=_columns)
    ignore: tuple[str, ...] = attrs.field(default=(), converter=texts)
    other_columns: str = attrs.field(default="drop", validator=in_(("drop", REFUSE)))
    missing_values: tuple[str, ...] = attrs.field(default=MISSING_VALUES, converter=texts)
    scaling: str = attrs.field(default="range", validator=in_(("range", "none")))

    @columns.validator
    def _apart(self, _: object, value: tuple[Column, ...]) -> None:
        if not value:
            raise ValueError("columns: give at least one")
        features = self.features
        headers = [
            *(name for column in value for name in (column.name, *column.other_names)),
            *self.label.names,
        ]
        for what, names in (("feature", features), ("header", list(map(folded, headers)))):
            twice = next((name for name in names if list(names).count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"columns: {what} {twice!r} is named twice")

    @ignore.validator
    def _not_used(self, _: object, value: tuple[str, ...]) -> None:
        used = {folded(name) for column in self.columns for name in (column.name,)}
        wrong = [name for name in value if folded(name) in used | {folded(self.label.column)}]
        if wrong:
            raise ValueError(f"ignore: column {wrong[0]!r} is used too")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features, in their order."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def digest(self) -> str:
        """SHA-256 of the content, 64 hexadecimal digits."""
        text = json.dumps(_content(self), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def ranges(self) -> list[tuple[float, float]]:
        """Public smallest and largest value of every feature; kept ones may lie outside."""
        found: list[tuple[float, float]] = []
        for column in self.columns:
            spans = [(0.0, 1.0)] * len(column.features)
            if self.scaling == "none" and not isinstance(column, Category):
                spans[0] = column.days if isinstance(column, Date) else column.range
            found += spans
        return found


def save_schema(path: Path, schema: Schema) -> None:
    """Writes the file, whole or not at all.

    Raises:
        InputError: it is there already.
    """
    if path.exists():
        raise InputError(f"{path}: exists already; remove it or choose another file")
    content = {"format": FORMAT_VERSION, **_content(schema)}
    write_atomic(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def load_schema(path: Path) -> Schema:
    """Reads a schema, which people may have edited.

    Raises:
        InputError: absent, too large, or no JSON.
        FormatError: of another format version, or a field is missing, unknown or wrong; names it.
    """
    content = read_json_object(path, MAX_BYTES, "schema, as `securefl data schema` writes it")
    version = content.pop("format", None)
    if version != FORMAT_VERSION:
        raise FormatError(
            f"{path}: format version {version}, this securefl reads version {FORMAT_VERSION}"
        )
    columns = content.get("columns")
    if not isinstance(columns, list):
        raise FormatError(f'{path}: "columns" is no list; draft a schema with securefl data schema')
    content["label"] = _built(Label, content.get("label"), f"{path}: label")
    content["columns"] = [_column(each, i, path) for i, each in enumerate(columns)]
    return _built(Schema, content, str(path))


def _column(content: Any, place: int, path: Path) -> Column:
    where = f"{path}: columns[{place}]"
    if isinstance(content, dict) and "name" in content:
        where = f"{where} ({str(content['name'])[:40]!r})"
    kind = content.pop("type", None) if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise FormatError(f"{where}: type {kind!r}; expected one of {', '.join(KINDS)}")
    return _built(KINDS[kind], content, where)


def _built(kind: type[Any], content: Any, where: str) -> Any:
    """An object of a class from a JSON object that anybody may have written."""
    if not isinstance(content, dict):
        raise FormatError(f"{where}: expected a JSON object")
    fields = {field.name: field for field in attrs.fields(kind)}
    unknown = sorted(set(content) - set(fields))
    absent = [
        name
        for name, field in fields.items()
        if field.default is attrs.NOTHING and name not in content
    ]
    if unknown or absent:
        what = f"unknown field {unknown[0]!r}" if unknown else f"no field {absent[0]!r}"
        raise FormatError(f"{where}: {what}; it has {', '.join(fields)}")
    try:
        return kind(**content)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        # attrs puts the message first and then the attribute and the value.
        told = str(error.args[0] if error.args else error).splitlines()[0]
        raise FormatError(f"{where}: {told}") from error


def _content(schema: Schema) -> dict[str, Any]:
    names = {kind: name for name, kind in KINDS.items()}
    content: dict[str, Any] = json.loads(json.dumps(attrs.asdict(schema)))
    content["columns"] = [
        {"type": names[type(column)], **described}
        for column, described in zip(schema.columns, content["columns"], strict=True)
    ]
    return content

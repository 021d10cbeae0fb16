"""The kinds of columns of a table, and the features that each of them becomes."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import attrs
from attrs.validators import in_, instance_of

OWN, REFUSE = "own", "refuse"
OTHER, MISSING = "other", "missing"
"""Names of the features for categories that the schema does not list, and for missing values."""

_DATE_PARTS = re.compile(r"%([A-Za-z%])")
_EPOCH = datetime(1970, 1, 1)

_text = instance_of(str)


def folded(text: str) -> str:
    """A text as it is compared: without outer blanks, in one case."""
    return text.strip().casefold()


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts as a tuple; ValueError for anything else."""
    if isinstance(value, str) or not all(isinstance(each, str) and each.strip() for each in value):
        raise ValueError("not a list of texts that are not empty")
    found = tuple(each.strip() for each in value)
    if len({folded(each) for each in found}) < len(found):
        raise ValueError("holds one text twice (upper and lower case are the same)")
    return found


def _range(value: Any) -> tuple[float, float]:
    low, high = (number(each) for each in value)
    if not low < high:
        raise ValueError(f"range [{low:g}, {high:g}]: the first number must be below the second")
    return low, high


def number(value: Any) -> float:
    """A finite number that is no bool; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _fill(value: Any) -> float | str:
    return REFUSE if value == REFUSE else number(value)


def _factors(value: Any) -> dict[str, float]:
    found = {folded(name): number(factor) for name, factor in dict(value).items()}
    if any(factor <= 0 for factor in found.values()) or "" in found:
        raise ValueError("other_units: give each unit a name and a factor above 0")
    return found


def spellings_of(value: Any) -> dict[str, str]:
    """Other spellings, folded, with what they mean."""
    return {folded(text): str(name).strip() for text, name in dict(value).items()}


@attrs.frozen(kw_only=True)
class Number:
    """A measured number; one feature, and one more where missing values are flagged.

    Attributes:
        name: of the column.
        other_names: headers that other parties' files have in its place.
        unit: of its values, "" without. A value may carry it: "72,5 kg".
        other_units: further units that values may carry, each with its factor to `unit`.
        range: public smallest and largest value, in `unit`.
        missing: what a missing value becomes, in `unit`; or "refuse".
        flag_missing: one more feature, 1 where the value was missing.
        outside: of the range: "clip", "keep" (both counted) or "refuse".
    """

    name: str = attrs.field(validator=_text)
    range: tuple[float, float] = attrs.field(converter=_range)
    missing: float | str = attrs.field(converter=_fill)
    other_names: tuple[str, ...] = attrs.field(default=(), converter=texts)
    unit: str = attrs.field(default="", validator=_text)
    other_units: Mapping[str, float] = attrs.field(factory=dict, converter=_factors)
    flag_missing: bool = attrs.field(default=False, validator=instance_of(bool))
    outside: str = attrs.field(default="clip", validator=in_(("clip", "keep", REFUSE)))

    @missing.validator
    def _filled(self, _: object, value: float | str) -> None:
        if isinstance(value, float):
            _check_within(value, self.range, value)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, *((f"{self.name}={MISSING}",) if self.flag_missing else ()))

    @property
    def fill(self) -> float | None:
        """What a missing value becomes; None where it is refused."""
        return None if self.missing == REFUSE else float(self.missing)


@attrs.frozen(kw_only=True)
class Date:
    """A date; its feature counts days, from the range's first date or, unscaled, from 1970.

    Attributes:
        name, other_names, flag_missing, outside: as of a `Number`.
        formats: how it is written, as `strptime` has it; of numbers only, e.g. "%d.%m.%Y". A value
            that two formats read differently is refused.
        range: public first and last date, in the first of the formats.
        missing: a date in the first of the formats, or "refuse".
    """

    name: str = attrs.field(validator=_text)
    formats: tuple[str, ...] = attrs.field(converter=texts)
    range: tuple[str, str] = attrs.field(converter=texts)
    missing: str = attrs.field(validator=_text)
    other_names: tuple[str, ...] = attrs.field(default=(), converter=texts)
    flag_missing: bool = attrs.field(default=False, validator=instance_of(bool))
    outside: str = attrs.field(default="clip", validator=in_(("clip", "keep", REFUSE)))

    @formats.validator
    def _numeric(self, _: object, value: tuple[str, ...]) -> None:
        for each in value:
            parts = set(_DATE_PARTS.findall(each))
            # Names of months and days depend on the machine's language.
            if not parts <= set("YymdHMSf%") or not parts & {"Y", "y"}:
                raise ValueError(f"format {each!r}: use %Y or %y, with %m %d %H %M %S of numbers")
        if not value:
            raise ValueError("formats: give at least one, such as %Y-%m-%d")

    @range.validator
    def _spans(self, _: object, value: tuple[str, ...]) -> None:
        if len(value) != 2:
            raise ValueError("range: give the first and the last date")
        _range(self.days_of(each) for each in value)

    @missing.validator
    def _filled(self, _: object, value: str) -> None:
        if value != REFUSE:
            _check_within(self.days_of(value), self.days, value)

    def days_of(self, text: str) -> float:
        """Days since 1970 of a date in the first of the formats; ValueError otherwise."""
        return days(datetime.strptime(text, self.formats[0]))

    @property
    def days(self) -> tuple[float, float]:
        """The range in days since 1970."""
        return self.days_of(self.range[0]), self.days_of(self.range[1])

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, *((f"{self.name}={MISSING}",) if self.flag_missing else ()))

    @property
    def fill(self) -> float | None:
        """Days since 1970 that a missing date becomes; None where it is refused."""
        return None if self.missing == REFUSE else self.days_of(self.missing)


@attrs.frozen(kw_only=True)
class Category:
    """One of several words; a feature of 0 and 1 for each of them (one-hot).

    Attributes:
        name, other_names: as of a `Number`.
        categories: the words; upper and lower case are the same.
        spellings: other words, with the category that each of them means.
        missing: one of the categories, "own" for a feature of its own, or "refuse".
        outside: words that are not listed: "other" for a feature of their own (counted), or
            "refuse".
    """

    name: str = attrs.field(validator=_text)
    categories: tuple[str, ...] = attrs.field(converter=texts)
    other_names: tuple[str, ...] = attrs.field(default=(), converter=texts)
    spellings: Mapping[str, str] = attrs.field(factory=dict, converter=spellings_of)
    missing: str = attrs.field(default=OWN, validator=_text)
    outside: str = attrs.field(default=OTHER, validator=in_((OTHER, REFUSE)))

    @categories.validator
    def _some(self, _: object, value: tuple[str, ...]) -> None:
        if not value:
            raise ValueError("categories: give at least one")

    @spellings.validator
    def _known(self, _: object, value: Mapping[str, str]) -> None:
        for text, name in value.items():
            if name not in self.categories or text in map(folded, self.categories):
                raise ValueError(f"spellings: {text!r} of {name!r} is no other word of a category")

    @missing.validator
    def _one(self, _: object, value: str) -> None:
        if value not in (OWN, REFUSE, *self.categories):
            raise ValueError(f"missing: {value!r} is no category, nor {OWN!r} or {REFUSE!r}")

    @outside.validator
    def _apart(self, _: object, value: str) -> None:
        if len(set(self.features)) < len(self.features):
            raise ValueError(f"a category is called {OTHER!r} or {MISSING!r}, as a feature is")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        extra = [OTHER] if self.outside == OTHER else []
        extra += [MISSING] if self.missing == OWN else []
        return tuple(f"{self.name}={each}" for each in (*self.categories, *extra))

    @property
    def places(self) -> dict[str, int]:
        """The place among its features of every word, folded."""
        found = {folded(each): i for i, each in enumerate(self.categories)}
        return {**found, **{text: found[folded(name)] for text, name in self.spellings.items()}}


Column: TypeAlias = Number | Date | Category
KINDS: Mapping[str, type[Number] | type[Date] | type[Category]] = {
    "number": Number,
    "date": Date,
    "category": Category,
}


def days(moment: datetime) -> float:
    """Days since 1970."""
    return (moment - _EPOCH).total_seconds() / 86_400


def _check_within(found: float, span: tuple[float, float], shown: object) -> None:
    if not span[0] <= found <= span[1]:
        raise ValueError(f"missing: {shown} is outside of the range")

"""What a method is told: frozen settings that check themselves, and say what options they make.

A setting is declared once, in its method's class, with its default, range and one line of help. The
command line, the network's configuration and the documentation's table are made from that.
"""

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import attrs

from secure_fl.errors import InputError

Family = Literal["heads", "linear", "network"]
"""What a method trains."""
Kind = Literal["whole", "number", "switch", "choice", "wholes", "range"]
"""A whole number, a number, on or off, one of some words, whole numbers, or two numbers."""

T = TypeVar("T")
_FACTS = "setting"


@attrs.frozen(kw_only=True)
class Facts:
    """What is known of a setting beside its name and default.

    Attributes:
        help: one line.
        kind: of its value.
        optional: whether None is a value, of what `help` says.
        choices: of the kind "choice".
        least, above, most, below: bounds of a number; None for none.
        length: of the kind "wholes"; None for any from 1.
        option: its name on the command line and in files.
        of: another setting without which, where it is 0 or off, this one has no meaning.
        unless: another setting that takes this one's place where it is not 0 or off.
        moved: the default of version 0.1.0 and the value that the default stands for now, where
            they differ; checkpoints of that version do not keep settings.
    """

    help: str
    kind: Kind
    optional: bool
    choices: tuple[str, ...]
    least: float | None
    above: float | None
    most: float | None
    below: float | None
    length: int | None
    option: str | None
    of: str | None
    unless: str | None
    moved: tuple[float, float] | None

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        match self.kind:
            case "switch":
                return "true or false"
            case "choice":
                return f"one of {', '.join(self.choices)}"
            case "range":
                return "two finite numbers, the second above the first"
            case "wholes":
                some = "whole numbers" if self.length is None else f"{self.length} whole numbers"
                return f"{some}, each at least 1"
        return ("a whole number" if self.kind == "whole" else "a finite number") + self._bounds()

    def _bounds(self) -> str:
        low, high = self.least, self.most
        if high is not None or self.below is not None:
            left = f"[{low:g}" if low is not None else f"({self.above:g}"
            right = f"{high:g}]" if high is not None else f"{self.below:g})"
            return f" in {left}, {right}"
        if low is not None:
            return f", at least {low:g}"
        return "" if self.above is None else f" above {self.above:g}"

    def converted(self, value: Any) -> Any:
        """The value as its kind.

        Raises:
            ValueError, TypeError: it is none.
        """
        if value is None and self.optional:
            return None
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise ValueError
            return value
        if self.kind == "choice":
            if value not in self.choices:
                raise ValueError
            return value
        if self.kind == "range":
            low, high = map(float, value)
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError
            return low, high
        if self.kind == "wholes":
            found = tuple(map(operator.index, value))
            if not found or min(found) < 1 or self.length not in (None, len(found)):
                raise ValueError
            return found
        return self._number(value)

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError
        found: float = operator.index(value) if self.kind == "whole" else float(value)  # type: ignore[arg-type]  # refused at run time where it is no whole number
        fits = (
            math.isfinite(found)
            and (self.least is None or found >= self.least)
            and (self.above is None or found > self.above)
            and (self.most is None or found <= self.most)
            and (self.below is None or found < self.below)
        )
        if not fits:
            raise ValueError
        return found


def setting(
    default: T,
    help: str,  # as click's and argparse's parameter
    *,
    kind: Kind | None = None,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    length: int | None = None,
    option: str | None = None,
    of: str | None = None,
    unless: str | None = None,
    moved: tuple[float, float] | None = None,
) -> T:
    """Declares a setting; see `Facts` for the arguments.

    Args:
        default: its value where nothing is said; None makes it optional.
        kind: needed where the default is None; otherwise the default's own.
    """
    facts = Facts(
        help=help,
        kind=kind or _kind_of(default, choices),
        optional=default is None,
        choices=choices,
        least=least,
        above=above,
        most=most,
        below=below,
        length=length,
        option=option,
        of=of,
        unless=unless,
        moved=moved,
    )
    converter: Any = attrs.Converter(_convert(facts), takes_field=True)
    return attrs.field(default=default, converter=converter, metadata={_FACTS: facts})


def _kind_of(default: Any, choices: tuple[str, ...]) -> Kind:
    if choices:
        return "choice"
    if isinstance(default, bool):
        return "switch"
    return "whole" if isinstance(default, int) else "number"


def _convert(facts: Facts) -> Callable[[Any, "attrs.Attribute[Any]"], Any]:
    def convert(value: Any, attribute: "attrs.Attribute[Any]") -> Any:
        try:
            return facts.converted(value)
        except (ValueError, TypeError, OverflowError):
            raise InputError(
                f"{_option_name(attribute)}: found {value!s:.40}, expected {facts.expected}"
            ) from None

    return convert


def _option_name(attribute: "attrs.Attribute[Any]") -> str:
    facts: Facts = attribute.metadata[_FACTS]
    return facts.option or attribute.name.replace("_", "-")


@attrs.frozen(kw_only=True)
class Declared:
    """A setting of a method as the class declares it.

    Attributes:
        name: of the attribute.
        option: its name on the command line and in files, with hyphens.
        default: its value where nothing is said.
        facts: the rest.
    """

    name: str
    option: str
    default: Any
    facts: Facts


AUTO = "auto"
"""In place of a number of rounds: until the objective stops falling."""


class Settings:
    """A method with its settings; `secure_fl.trainers.registry.method` makes one of a class.

    Attributes:
        method: its name.
        family: what it trains.
        summary: one line.
        source: paper and algorithm.
    """

    method: ClassVar[str] = ""
    family: ClassVar[Family]
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""

    @classmethod
    def declared(cls) -> tuple[Declared, ...]:
        """The settings, in the order of the class."""
        return tuple(
            Declared(
                name=each.name,
                option=_option_name(each),
                default=each.default,
                facts=each.metadata[_FACTS],
            )
            for each in attrs.fields(cls)  # type: ignore[arg-type]  # `method` makes it an attrs class
        )

    @classmethod
    def by_rounds(cls) -> bool:
        """Whether the number of rounds is a setting."""
        return any(each.name == "rounds" for each in cls.declared())

    def moved(self) -> dict[str, tuple[float, float]]:
        """Options at a default that was another in version 0.1.0: that one and this one."""
        return {
            each.option: each.facts.moved
            for each in self.declared()
            if each.facts.moved is not None and getattr(self, each.name) == each.default
        }

    def lasting(self) -> dict[str, Any]:
        """Values by option, without the number of rounds, which may grow when a run goes on."""
        return {
            each.option: getattr(self, each.name)
            for each in self.declared()
            if each.name != "rounds"
        }

    def to_json(self) -> dict[str, Any]:
        """Method and settings, JSON types."""
        return {"method": self.method, **attrs.asdict(self)}  # type: ignore[arg-type]  # as above

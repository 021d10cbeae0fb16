"""Options of `securefl train` that methods declare: made from the registry, none is listed here."""

from collections.abc import Iterable
from typing import Any

import click

from cli.given import was_given
from secure_fl.trainers import registry
from secure_fl.trainers.network_settings import ARCHITECTURES
from secure_fl.trainers.settings import AUTO, Declared, Facts, Family, Settings

LINEAR = "linear"
_MODEL = "model"
"""A setting of networks that names the family too, and so is an option of its own."""


def method_options(function: Any) -> Any:
    """Adds --method, --model and every setting of every method."""
    for option, owners in reversed(registry.options().items()):
        if option != _MODEL:
            function = _option(option, owners)(function)
    function = click.option(
        "--model",
        type=click.Choice((LINEAR, *ARCHITECTURES)),
        default=LINEAR,
        show_default=True,
        help="What is trained by rounds: a linear model, or a network.",
    )(function)
    summaries = {each.method: each.summary for each in reversed(registry.methods())}
    lines = "; ".join(f"{name}: {summaries[name]}" for name in registry.names())
    return click.option(
        "--method",
        type=click.Choice(registry.names()),
        default="kahm",
        show_default=True,
        help=f"{lines}.",
    )(function)


def chosen_method(name: str, model: str, values: dict[str, Any], *, promised: bool) -> Settings:
    """The method that was asked for; its settings are taken out of `values`.

    Args:
        name: --method.
        model: --model.
        values: of all options that `method_options` added, None where nothing was said. "settle"
            is added: whether rounds end when the objective stops falling.
        promised: whether privacy is, so that the number of rounds must be known.

    Raises:
        InputError: a setting of another method, or a value out of range.
    """
    family: Family = "linear" if model == LINEAR else "network"
    if name in registry.names("heads"):
        if was_given("model"):
            raise click.UsageError(f"--model has no meaning for --method {name}")
        family = "heads"
    cls = registry.find(name, family)
    if values["rounds"] is None and not promised and cls.by_rounds():
        values["rounds"] = AUTO
    values["settle"] = values["rounds"] == AUTO
    if values["settle"]:
        from secure_fl.training.settling import MOST_ROUNDS

        values["rounds"] = MOST_ROUNDS
    names = {declared.name for owners in registry.options().values() for _, declared in owners}
    given = {key: values.pop(key) for key in list(values) if key in names}
    given = {key: value for key, value in given.items() if value is not None}
    if family == "network":
        given[_MODEL] = model
    refuse_foreign(cls, given)
    made = registry.make(name, family, given)
    _refuse_idle(made, given)
    return made


def _refuse_idle(settings: Settings, given: Iterable[str]) -> None:
    """A setting that another one puts out of use could only mislead: refuse it."""
    declared = {each.name: each for each in settings.declared()}
    for each in (declared[name] for name in given if name in declared):
        if each.facts.of is not None and not getattr(settings, each.facts.of):
            other = declared[each.facts.of].option
            raise click.UsageError(f"--{each.option} has no meaning without --{other}")
        if each.facts.unless is not None and getattr(settings, each.facts.unless):
            other = declared[each.facts.unless].option
            raise click.UsageError(f"--{each.option} has no meaning beside --{other}")


def refuse_foreign(cls: type[Settings], given: Iterable[str]) -> None:
    """A setting of another method could only mislead: refuse it.

    Args:
        cls: the method.
        given: settings by their names in Python.
    """
    own = {declared.name for declared in cls.declared()}
    for option, found in registry.options().items():
        name = found[0][1].name
        if name in given and name not in own:
            owners = registry.owners(option, cls.method)
            raise click.UsageError(
                f"--{option} has no meaning for {registry.describe(cls)}{owners}"
            )


def _option(option: str, owners: list[tuple[type[Settings], Declared]]) -> Any:
    facts = [declared.facts for _, declared in owners]
    kind = facts[0].kind
    flag = f"--{option}/--no-{option}" if kind == "switch" else f"--{option}"
    shape: dict[str, Any] = {"type": Rounds() if option == "rounds" else _type(facts)}
    if kind == "switch":
        shape = {}
    help_text = _help(owners) + (_OF_ROUNDS if option == "rounds" else "")
    return click.option(flag, owners[0][1].name, default=None, help=help_text, **shape)


_OF_ROUNDS = (
    " auto: until the objective of all clients stops falling; the default where no privacy is"
    " promised."
)


def _type(facts: list[Facts]) -> Any:
    match facts[0].kind:
        case "choice":
            return click.Choice(tuple(dict.fromkeys(word for one in facts for word in one.choices)))
        case "range":
            return (float, float)
        case "wholes":
            length = facts[0].length
            return Wholes() if length is None else (int,) * length
        case "whole":
            return int
    return float


class Rounds(click.ParamType[Any]):
    """A whole number, or the word for as many as are of use."""

    name = "integer|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """As a number, or AUTO."""
        if value == AUTO or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r}: expected a whole number, or {AUTO}", param, ctx)


class Wholes(click.ParamType[Any]):
    """Whole numbers, separated by commas."""

    name = "integers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """As a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: expected whole numbers, such as 64,32", param, ctx)


def _help(owners: list[tuple[type[Settings], Declared]]) -> str:
    told: dict[str, list[str]] = {}
    for cls, declared in owners:
        text = declared.facts.help
        if declared.default is not None:
            text += f", default {registry.text_of(declared.default)}"
        told.setdefault(text, []).append(_called(cls))
    if len(told) == 1 and len(owners) > 3:
        (text,) = told
        return f"{text[0].upper()}{text[1:]} ({_shortened(told[text])})."
    parts = [f"{_shortened(methods)}: {text}" for text, methods in told.items()]
    return f"{'; '.join(parts)}."


def _called(cls: type[Settings]) -> str:
    both = {each.family for each in registry.methods() if each.method == cls.method}
    return f"{cls.method} --model" if cls.family == "network" and len(both) > 1 else cls.method


def _shortened(names: list[str]) -> str:
    everyone = {_called(each) for each in registry.methods("linear", "network")}
    missing = sorted(everyone - set(names))
    if len(missing) <= 6 and len(names) > len(missing):
        rest = f" but {', '.join(missing)}" if missing else ""
        return f"every method by rounds or sums{rest}"
    return ", ".join(dict.fromkeys(names))

"""The one list of methods: whoever needs their names or settings asks here.

A method is one file in `secure_fl.trainers.methods`: a class of settings that knows how to run.
Files there import what computes only when they run, so that reading the list costs nothing.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from secure_fl.errors import InputError
from secure_fl.trainers.settings import Declared, Family, Settings

C = TypeVar("C", bound=type[Settings])
_METHODS: dict[tuple[str, Family], type[Settings]] = {}


def method(name: str, *, summary: str, source: str) -> Callable[[C], C]:
    """Registers a class of settings as a method; `@attrs.frozen(kw_only=True)` stands below it.

    Args:
        name: as users type it; a name may be given once a family.
        summary: one line, for lists.
        source: paper and algorithm.

    Raises:
        ValueError: the name is taken in the class's family.
        TypeError: the class has no settings of its own: the other decorator is missing.
    """

    def register(cls: C) -> C:
        made: Any = cls
        if "__attrs_attrs__" not in cls.__dict__:
            # Where type checkers see it, so that who calls the class is checked.
            raise TypeError(
                f"method {name}: put @attrs.frozen(kw_only=True) between @method and the class"
            )
        made.method, made.summary, made.source = name, summary, source
        key = name, made.family
        if key in _METHODS and _METHODS[key].__qualname__ != made.__qualname__:
            raise ValueError(f"method {name}: {_METHODS[key].__qualname__} has the name already")
        _METHODS[key] = made
        return cls

    return register


@cache
def _discovered() -> None:
    from secure_fl.trainers import methods as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def methods(*families: Family) -> tuple[type[Settings], ...]:
    """All methods of these families, of every family by default, by family and name."""
    _discovered()
    order: tuple[Family, ...] = ("heads", "linear", "network")
    found = [each for (_, family), each in _METHODS.items() if not families or family in families]
    return tuple(sorted(found, key=lambda each: (order.index(each.family), each.method)))


def names(*families: Family) -> tuple[str, ...]:
    """The names of `methods`, each once."""
    return tuple(dict.fromkeys(each.method for each in methods(*families)))


def hiding_records() -> tuple[str, ...]:
    """The names of the linear methods that run only with a promise for every record."""
    found = methods("linear")
    return tuple(each.method for each in found if getattr(each, "hides_records", False))


def find(name: str, family: Family | None = None) -> type[Settings]:
    """The method of that name.

    Args:
        name: as users type it.
        family: what it is to train; None where only one method has the name.

    Raises:
        InputError: no method of that name, or none of that family.
    """
    found = [each for each in methods() if each.method == name]
    if not found:
        raise InputError(f"method: found {name!r}, expected one of {', '.join(names())}")
    of_family = [each for each in found if family in (None, each.family)]
    if not of_family:
        families = " or ".join(_WHAT[each.family] for each in found)
        wanted = family or "heads"
        raise InputError(
            f"method {name}: trains {families}, not {_WHAT[wanted]}, which"
            f" {', '.join(names(wanted))} do"
        )
    return of_family[0]


_WHAT: Mapping[Family, str] = {
    "heads": "heads",
    "linear": "a linear model (--model linear)",
    "network": "a network (--model mlp, cnn or fourier)",
}


def make(name: str, family: Family | None, given: Mapping[str, Any]) -> Settings:
    """A method with the settings that were given; the others keep their defaults.

    Args:
        name: of the method.
        family: see `find`.
        given: values by attribute name or option name.

    Raises:
        InputError: no such method, a setting that it does not have, or a value out of range.
    """
    cls = find(name, family)
    by_name = {key: each for each in cls.declared() for key in (each.name, each.option)}
    for key in given:
        if key not in by_name:
            option = key.replace("_", "-")
            raise InputError(f"{option}: no setting of {describe(cls)}{owners(option, name)}")
    return cls(**{by_name[key].name: value for key, value in given.items()})


def describe(cls: type[Settings]) -> str:
    """A method's name, with its family where two have the name."""
    twice = sum(each.method == cls.method for each in methods()) > 1
    return f"{cls.method} ({_WHAT[cls.family]})" if twice else cls.method


def owners(option: str, like: str) -> str:
    """Who has an option, as the end of a refusal; empty where nobody has.

    Args:
        option: its name.
        like: the method that does not have it; its kin are named first.
    """
    found = {
        each.method
        for each in methods()
        if option in (declared.option for declared in each.declared())
    }
    kin = like.partition("-")[0]
    named = sorted(found, key=lambda name: (not name.startswith(kin), name))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"; it belongs to {', '.join(named[:_SHOWN])}{more}" if named else ""


_SHOWN = 5


def options() -> dict[str, list[tuple[type[Settings], Declared]]]:
    """Every option of any method by its name, with the methods that have it."""
    found: dict[str, list[tuple[type[Settings], Declared]]] = {}
    for each in methods():
        for declared in each.declared():
            found.setdefault(declared.option, []).append((each, declared))
    return found


def table(families: Iterable[Family] = ("heads", "linear", "network")) -> str:
    """The methods as a table in Markdown, with their settings and defaults."""
    rows = [
        "| method | trains | what it does | source | settings (default) |",
        "|---|---|---|---|---|",
    ]
    for each in methods(*families):
        settings = ", ".join(f"`{one.option}` ({text_of(one.default)})" for one in each.declared())
        rows.append(
            f"| `{each.method}` | {each.family} | {each.summary} | {each.source} | {settings}"
            f" | `{each.__name__}` |"
        )
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page of the documentation that lists all methods."""
    return (
        "# Methods\n\nEvery method of `securefl train --method`, and of"
        " `secure_fl.train(clients, method)` as the class that is named last. A setting of another"
        " method is refused. This page is written by `python -m secure_fl.trainers.registry`.\n\n"
        + table()
    )


def text_of(value: Any) -> str:
    """A default as people read it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(text_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    import sys

    # Imported by its name: run as a script, this module is another one than methods register with.
    from secure_fl.trainers import registry

    sys.stdout.write(registry.page())

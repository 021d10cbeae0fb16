"""Methods for tests that run every one of them with the same settings."""

from typing import Any

from secure_fl.trainers.registry import find, make, names
from secure_fl.trainers.settings import Family

LINEAR = names("linear")
FEDNL = tuple(name for name in LINEAR if name.startswith("fednl"))


def own(method: str, family: Family, settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that the method has."""
    declared = {each.name for each in find(method, family).declared()}
    return {name: value for name, value in settings.items() if name in declared}


def linear(method: str, **settings: Any) -> Any:
    """A method of linear models, with those settings that it has."""
    return make(method, "linear", own(method, "linear", settings))


def network(method: str, **settings: Any) -> Any:
    """A method of networks, with those settings that it has."""
    return make(method, "network", own(method, "network", settings))

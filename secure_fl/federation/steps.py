"""Which functions a server may ask clients to run, and which records it may send them.

Both are known by name, "module:qualname": a name can cross a process or a network, code cannot.
"""

import dataclasses
import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from attrs import frozen

from dp import Event
from secure_fl.errors import FederationError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

_STEPS: dict[str, Callable[..., Any]] = {}
_PROMISES: dict[str, Callable[..., "NoisySum"]] = {}
_RECORDS: dict[str, type] = {}
_NAMES: dict[Any, str] = {}
_import_by_name = False


def client_step(function: F) -> F:
    """Registers a module-level function of (client, *broadcast) as a step that clients may run.

    Raises:
        FederationError: the function is nested or a lambda: no other process could find it.
    """
    name = _name_of(function, "step")
    _STEPS[name] = function
    _NAMES[function] = name
    return function


@frozen
class NoisySum:
    """A sum whose summands carry their part of the noise.

    Attributes:
        event: what the sum costs, as long as no summand is clipped or rounded on its way.
        largest: magnitude that no entry of a summand exceeds, noise included, but with negligible
            probability.
        grid: all entries are multiples of this power of 2.
    """

    event: Event
    largest: float
    grid: float


def promise_of(step: Callable[..., Any]) -> Callable[[F], F]:
    """Registers what one masked sum of a step that draws noise costs in privacy.

    A client on its own machine books it before it answers, whatever the server says of the sum.
    The function is called with the client, the fewest honest and the most clients whose noise is in
    the sum, and what is broadcast; it returns a `NoisySum`.

    Raises:
        FederationError: the step is not registered.
    """
    name = step_name(step)

    def register(function: F) -> F:
        _PROMISES[name] = function
        return function

    return register


def broadcastable(cls: C) -> C:
    """Registers a frozen module-level dataclass as a value that may be broadcast or checkpointed.

    Its fields must be such values themselves: trees, numbers, strings, booleans, None, or other
    broadcastable records.

    Raises:
        FederationError: not a frozen dataclass, or nested.
    """
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # set by the dataclass decorator, absent from typeshed
        raise FederationError(f"broadcastable {cls.__name__}: expected a frozen dataclass")
    name = _name_of(cls, "broadcastable")
    _RECORDS[name] = cls
    _NAMES[cls] = name
    return cls


def step_name(function: Callable[..., Any]) -> str:
    """The registered name of a step.

    Raises:
        FederationError: it was not registered.
    """
    name = _NAMES.get(function)
    if name is None:
        called = getattr(function, "__qualname__", repr(function))
        raise FederationError(f"step {called}: not registered; decorate it with @client_step")
    return name


def record_name(cls: type) -> str:
    """The registered name of a broadcastable record.

    Raises:
        FederationError: it was not registered.
    """
    name = _NAMES.get(cls)
    if name is None:
        raise FederationError(
            f"broadcast: found a {cls.__name__}, expected a tree, a number, a string, None or a"
            " frozen dataclass decorated with @broadcastable"
        )
    return name


def find_step(name: str) -> Callable[..., Any]:
    """The registered step of that name.

    Raises:
        FederationError: no such step here; import the module that defines it first.
    """
    return _found(_STEPS, name, "step")


def find_promise(name: str) -> Callable[..., NoisySum] | None:
    """What a sum of the step of that name costs; None where it draws no noise of its own."""
    return _PROMISES.get(name)


def find_record(name: str) -> type:
    """The registered record of that name.

    Raises:
        FederationError: no such record here; import the module that defines it first.
    """
    return _found(_RECORDS, name, "broadcastable")


def import_by_name() -> None:
    """From now on an unknown name makes its module be imported.

    Only for a worker process, whose names come from the program that started it: an import runs
    code, so names from a network must never be looked up this way.
    """
    global _import_by_name
    _import_by_name = True


def _found(registry: dict[str, Any], name: str, what: str) -> Any:
    if name not in registry:
        name = _renamed(name)
    if name not in registry and _import_by_name:
        importlib.import_module(name.partition(":")[0])
    if name not in registry:
        raise FederationError(f"{what} {name!r}: unknown here; import the module that defines it")
    return registry[name]


_MOVED = {
    "secure_fl.networks.trainers.": "secure_fl.trainers.networks.",
    "secure_fl.networks.": "secure_fl.trainers.networks.",
    "secure_fl.fednl.": "secure_fl.trainers.fednl.",
    "secure_fl.trainers.": "secure_fl.trainers.linear.",
}
"""Where modules of version 0.1.0 are now: its checkpoints name records by them."""


def _renamed(name: str) -> str:
    for old, new in _MOVED.items():
        if name.startswith(old) and not name.startswith(tuple(_MOVED.values())):
            return new + name.removeprefix(old)
    return name


def _name_of(thing: Any, what: str) -> str:
    if "<" in thing.__qualname__:
        raise FederationError(f"{what} {thing.__qualname__}: define it at the top of a module")
    module = thing.__module__
    if module == "__main__":
        # `python -m package.module` runs the module under another name than others import it by.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else module
    return f"{module}:{thing.__qualname__}"

"""Which engine answers a batch of so many queries in less time."""

from .batched.parameters import BatchedParameters, choose_parameters
from .engines import AnyParameters, engine_of
from .errors import InputError
from .parameters import RuleParameters

LOOKUP_MS = {40: 7.5, 64: 7.7, 128: 10.0}
"""Of one core, a table look-up of TFHE by its failure exponent (docs/fhe.md)."""


def core_seconds(parameters: AnyParameters, queries: int) -> float:
    """An estimate of one core's time for a batch, on a machine such as that of docs/fhe.md."""
    if isinstance(parameters, BatchedParameters):
        slots = parameters.sets(queries) * parameters.degree
        return slots * parameters.milliseconds / 1000
    each = LOOKUP_MS[parameters.failure_exponent]
    return queries * parameters.lookups * each / 1000


def advice(parameters: AnyParameters, queries: int) -> str:
    """One sentence: what the batch costs by either engine, and which is cheaper."""
    own = engine_of(parameters)
    try:
        other = _other(parameters)
    except InputError:
        return f"about {core_seconds(parameters, queries):,.0f} core-seconds by engine {own}"
    costs = {own: core_seconds(parameters, queries)}
    costs[engine_of(other)] = core_seconds(other, queries)
    cheaper = min(costs, key=lambda engine: costs[engine])
    facts = " and ".join(f"{costs[e]:,.0f} by engine {e}" for e in sorted(costs, reverse=True))
    choice = "these keys" if cheaper == own else f"keys new --engine {cheaper}"
    return f"{queries:,} queries: about {facts}, in core-seconds; cheaper: {cheaper} ({choice})"


def _other(parameters: AnyParameters) -> AnyParameters:
    """The same rule by the other engine."""
    if isinstance(parameters, BatchedParameters):
        return RuleParameters(
            contributors=parameters.contributors,
            classes=parameters.classes,
            bits=parameters.bits,
        )
    return choose_parameters(parameters.contributors, parameters.classes, parameters.bits)

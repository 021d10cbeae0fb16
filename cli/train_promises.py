"""What the options of `securefl train` promise; those of another promise or method are refused."""

from typing import Any

import click

from cli.dp import release_promise
from cli.given import refuse_given
from cli.trainers import CLIENT_PRIVACY, TRAINERS_ONLY
from secure_fl.trainers.registry import hiding_records
from secure_fl.trainers.settings import Settings

_OF_A_RELEASE = frozenset(
    {"distance", "norm", "bounds", "grid", "mechanism", "smoothing", "ledgers", "budget"}
)
_OF_HEADS = _OF_A_RELEASE | {"encoder", "epsilon", "delta", "unit", "federation", "tuned"}


RELEASED = "kahm-record-private"
RECORD_LEVEL = {RELEASED, *hiding_records()}
_OF_SUMS = frozenset({"adjacency", "class_texts"})
"""Options of the promises of RECORD_LEVEL methods alone."""


def promise_of(
    method: Settings,
    given: tuple[float | None, float | None, str | None],
    release: dict[str, Any],
    budget: float | None,
    settings: dict[str, Any],
) -> Any:
    """What the options promise; options of a promise that is not made are refused."""
    from secure_fl.privacy.promises import ClientPromise, RecordPromise

    epsilon, delta, unit = given
    if settings["client_epsilon"] is not None:
        return ClientPromise(
            epsilon=settings["client_epsilon"],
            clip=settings["clip"],
            delta=settings["client_delta"],
            noise=settings["client_noise"],
        )
    refuse_given(CLIENT_PRIVACY, "without --client-epsilon")
    if epsilon is None or delta is None or unit is None:
        refuse_given(_OF_A_RELEASE | _OF_SUMS, "without --epsilon, --delta and --unit")
        refuse_given({"clip"}, "without --client-epsilon")
        refuse_given({"ledger"}, "without noise (--client-epsilon, or --epsilon with its unit)")
        return None
    if method.method == "kahm":
        refuse_given(_OF_SUMS, "for --method kahm")
        return release_promise(epsilon, delta, unit, budget=budget, **release)
    if unit != "record" or (method.method in RECORD_LEVEL and release["norm"] is None):
        raise click.UsageError(incomplete(method))
    if method.family == "network":
        refuse_given({"ledger"}, "for networks that hide records; --ledgers holds each client's")
    else:
        refuse_given({"clip"}, "without --client-epsilon")
    if method.method not in RECORD_LEVEL:
        refuse_given(_OF_SUMS, f"for --method {method.method}")
    clip = 1.0 if settings["clip"] is None else settings["clip"]
    return RecordPromise(
        epsilon=epsilon,
        delta=delta,
        norm=release["norm"],
        clip=clip,
        budget=budget,
        adjacency=settings["adjacency"],
        class_texts=settings["class_texts"],
    )


def incomplete(method: Settings) -> str:
    """Which options a promise of this method needs together."""
    if method.method == "kahm":
        return "privacy needs all of --epsilon, --delta and --unit"
    more = ", --unit record and --norm" if method.method in RECORD_LEVEL else " and --unit record"
    return f"--method {method.method} needs all of --epsilon, --delta{more}"


def refuse_options_of_others(settings: Settings) -> None:
    """An option that the method does not know could only mislead: refuse it."""
    wrong = TRAINERS_ONLY if settings.family == "heads" else _OF_HEADS
    if settings.method == RELEASED:
        wrong = (_OF_HEADS | TRAINERS_ONLY) - {"encoder", "federation", "aggregate", "ledger"}
    if settings.method in RECORD_LEVEL:
        wrong -= {"epsilon", "delta", "unit", "norm", "encoder"}
    elif settings.family == "network":
        wrong -= {"epsilon", "delta", "unit", "ledgers", "budget"}
    refuse_given(
        wrong & {"epsilon"}, f"for --method {settings.method}; noise is --client-epsilon's"
    )
    refuse_given(wrong, f"for --method {settings.method}")

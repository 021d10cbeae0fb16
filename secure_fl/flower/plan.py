"""The plan of a network run: what all parties are told, in a Flower run's configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

import dp
from secure_fl.data import Scaling, check_scale
from secure_fl.errors import InputError
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.privacy.promises import ClientPromise, Promise, RecordPromise, ReleasePromise
from secure_fl.trainers.feature_moments import SPREADS, Spread
from secure_fl.trainers.linear_settings import LinearSettings
from secure_fl.trainers.methods.kahm import KAHMHeads, RecordPrivateHeads
from secure_fl.trainers.registry import hiding_records, make, methods
from secure_fl.trainers.settings import AUTO, Settings
from secure_fl.training.preparing import by_length, known_scaling, refuse_votes
from secure_fl.training.released_scaling import MomentsClip, read_moments_clip
from secure_fl.training.settling import MOST_ROUNDS, refuse_settling

_OWN = {"clients", "classes", "out", "scale", "wait", "time-out", "threshold", "features"} | {
    *("scaling", "moments-clip", "offsets", "spreads"),
}
_LINEAR = {"secure", "seed", "checkpoint", "max-weight"} | {
    *("client-epsilon", "client-delta", "clip", "ledger"),
}
_RECORD = {"epsilon", "delta", "norm", "ledger"}
_OF_MACHINES = {"batch_size", "batching", "regularisation", "regularisation_factor"} | {
    *("low", "high"),
}
HEADS = ("kahm", "kahm-record-private")
_PROMISE = {"epsilon", "delta", "norm"} | {
    "unit",
    "distance",
    "bounds",
    "grid",
    "mechanism",
    "smoothing",
}
_PATHS = ("out", "checkpoint", "ledger", "federation")
_NUMBERS = ("scale", "wait", "time_out", "max_weight", "client_epsilon", "clip", "epsilon", "norm")


@frozen
class Plan:
    """A network run, public to all parties.

    Attributes:
        clients: names, in the fixed order of every sum.
        classes: class names.
        recipe: what to run.
        secure, seed: of a linear model: whether sums are masked, and the experiment's randomness.
        out: run folder that the server writes; must not exist.
        scale: constant factor on all features.
        scaling: what is done to every feature before the factor: none, range (by offsets and
            spreads), or a `Spread` by all clients' means and deviations, which one masked sum
            gives. "" is range where there are offsets, and else none.
        offsets, spreads: of every feature, public: it becomes (x - offset) / spread; both empty
            where there are none. Beside a promise and a `Spread`, the ranges that records are
            clipped to before they are summed.
        moments_clip: in their place: a public L2 norm of a record, or LOW,HIGH of every feature.
        wait: seconds that the start waits for clients.
        time_out: seconds that a node has for one message.
        threshold: clients that must be left in a sum, or must have a head.
        checkpoint: file at the server that a killed run goes on from.
        max_weight: bound on the records of one client; needed where means are masked.
        features: columns of the client files; needed with random features and with LIBSVM files,
            whose largest index would tell about the records.
        client_epsilon, client_delta, clip: client-level noise; see `ClientPrivacy`.
        epsilon, delta, norm: record-level noise of private-ridge and kahm-record-private.
        ledger: the server's books of either noise.
        settle: whether to end before the last round, when the objective of all clients stops
            falling; one sum a round more, and not beside a promise.
        federation: of kahm: federation.json that the clients agreed on, such as a successor's; its
            heads are made, and those kept that are there. None makes a federation of the plan.
    """

    clients: tuple[str, ...]
    classes: tuple[str, ...]
    recipe: LinearSettings | HeadRecipe
    out: Path
    secure: bool = False
    seed: int = 0
    scale: float = 1.0
    scaling: str = ""
    offsets: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    wait: float = 60.0
    time_out: float = 600.0
    threshold: int | None = None
    checkpoint: Path | None = None
    max_weight: float | None = None
    features: int | None = None
    client_epsilon: float | None = None
    client_delta: float = 1e-5
    clip: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    norm: float | None = None
    ledger: Path | None = None
    federation: Path | None = None
    moments_clip: MomentsClip | None = None
    settle: bool = False

    @property
    def spread(self) -> Spread | None:
        """What features are divided by, where all clients' moments say it; else None."""
        return next((word for word in SPREADS if word == self.scaling), None)

    @property
    def scaling_map(self) -> Scaling:
        """What is done to every feature, where no client must be asked for it."""
        return Scaling(factor=self.scale) if self.spread or not self._ranges else self._by_ranges

    @property
    def moments_within(self) -> MomentsClip | None:
        """What records are clipped to before their moments are summed; None where nothing is."""
        if self.spread and self._ranges:
            return attrs.evolve(self._by_ranges, factor=1.0)
        return self.moments_clip

    @property
    def moments(self) -> list[Any]:
        """What a scaling by moments is of and for, as a value of the wire encoding."""
        kind = "moments" if self.promise is None else "released"
        clip = repr(self.moments_within)
        return [list(self.clients), float(self.scale), self.spread, self.by_length, kind, clip]

    @property
    def promise(self) -> Promise | None:
        """What every client or record is promised, if anything."""
        if isinstance(self.recipe, HeadRecipe) and self.recipe.privacy is not None:
            return self.recipe.privacy
        if self.epsilon is not None:
            return RecordPromise(epsilon=self.epsilon, delta=self.delta, norm=self.norm)
        if self.client_epsilon is None:
            return None
        return ClientPromise(epsilon=self.client_epsilon, delta=self.client_delta, clip=self.clip)

    @property
    def by_length(self) -> bool:
        """Whether records should be of length 1 when they are scaled by moments."""
        return isinstance(self.recipe, HeadRecipe) or by_length(self.recipe)

    @property
    def _ranges(self) -> bool:
        return bool(self.offsets or self.spreads)

    @property
    def _by_ranges(self) -> Scaling:
        return Scaling(kind="range", factor=self.scale, offsets=self.offsets, spreads=self.spreads)

    @property
    def description(self) -> dict[str, Any]:
        """What a node computes with, as a value of the wire encoding: equal for equal plans alone.

        Files, times and thresholds are the server's; what a sum needs of them is in its own terms.
        """
        return {
            "clients": list(self.clients),
            "classes": list(self.classes),
            "scale": float(self.scale),
            "features": self.features,
            # Frozen records of numbers and strings, whose text shows every bit of them.
            "recipe": repr(self.recipe),
            "secure": self.secure,
            "seed": self.seed,
            **({"scaling": self._by_ranges.to_json()} if self.offsets else {}),
            **({"moments": [self.spread, repr(self.moments_clip)]} if self.spread else {}),
        }


def read_plan(config: Mapping[str, Any]) -> Plan:
    """The plan in a Flower run's configuration.

    Names are those of `Plan`, and of the method's settings or (for the method kahm) `HeadRecipe`
    and `ReleasePromise`, with hyphens.

    Raises:
        InputError: a setting is unknown, absent or out of range.
    """
    given = {key.replace("-", "_"): value for key, value in config.items()}
    method = given.get("method")
    known = _head_settings(method) if method in HEADS else _settings_of_linear() | {"method"}
    own = {name.replace("-", "_") for name in _own_settings(method)}
    unknown = sorted(set(given) - known - own)
    if unknown:
        name = unknown[0].replace("_", "-")
        raise InputError(f"{name}: no setting of a run; see docs/deploy.md")
    recipe = {name: value for name, value in given.items() if name in known}
    rest = {name: value for name, value in given.items() if name not in recipe}
    for name in ("clients", "classes"):
        rest[name] = tuple(part for part in str(rest.get(name, "")).split(",") if part)
        if len(rest[name]) < 2:
            raise InputError(f"{name}: found {len(rest[name])}, give at least 2, with commas")
    if "out" not in rest:
        raise InputError("out: missing; name the folder that the server writes the model to")
    rest |= {name: Path(rest[name]) for name in _PATHS if name in rest}
    rest |= {name: float(rest[name]) for name in _NUMBERS if name in rest}
    for name in ("offsets", "spreads"):
        rest[name] = _listed(name, rest.get(name, ""))
    if "scale" in rest:
        check_scale(rest["scale"])
    if "moments_clip" in rest:
        rest["moments_clip"] = read_moments_clip(str(rest["moments_clip"]))
    if method in HEADS:
        plan = Plan(recipe=_head_recipe(recipe), **rest)
        _check_scaling(plan)
        if method != "kahm" and None in (plan.epsilon, plan.norm, plan.ledger):
            raise InputError(f"{method}: needs epsilon, norm and ledger")
        return plan
    rest["settle"] = recipe.get("rounds") == AUTO
    if rest["settle"]:
        recipe["rounds"] = MOST_ROUNDS
    name = recipe.pop("method", None)
    made = make(str(name), "linear", recipe)
    assert isinstance(made, LinearSettings)
    return _checked(Plan(recipe=made, **rest))


def _listed(name: str, text: Any) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in str(text).split(",") if part)
    except ValueError:
        raise InputError(f"{name}: expected numbers, with commas, one a feature") from None


def _check_scaling(plan: Plan) -> None:
    if plan._ranges:
        _ = plan._by_ranges  # refuses numbers that make none
    if plan.scaling not in ("", "none", "range", *SPREADS):
        words = ", ".join(("none", "range", *SPREADS))
        raise InputError(f"scaling: {plan.scaling!r}, expected one of {words}")
    if (plan.scaling == "range") > bool(plan.offsets):
        raise InputError("scaling: range needs offsets and spreads (flower app --public FILE)")
    if plan.offsets and (plan.scaling == "none" or plan.moments_clip is not None):
        raise InputError(
            "offsets: public ranges have no use beside scaling none or moments-clip; leave them out"
        )
    word: Any = "none" if plan.spread is None else plan.spread
    known_scaling(word, plan.scale, plan.promise, _asked_of(plan.recipe), plan.moments_within)
    if plan.spread is None:
        return
    if isinstance(plan.recipe, HeadRecipe) and plan.recipe.rule == "votes":
        refuse_votes()
    if plan.promise is not None and plan.checkpoint is not None:
        raise InputError(
            "scaling: a run that goes on from a checkpoint would release means and deviations anew;"
            " leave out checkpoint, or scale by public ranges"
        )


def _asked_of(recipe: LinearSettings | HeadRecipe) -> Settings:
    if isinstance(recipe, LinearSettings):
        return recipe
    return KAHMHeads() if recipe.method == "kahm" else RecordPrivateHeads()


def _checked(plan: Plan) -> Plan:
    recipe = plan.recipe
    assert isinstance(recipe, LinearSettings)
    _check_scaling(plan)
    if plan.secure and plan.max_weight is None and not recipe.unweighted:
        raise InputError("max-weight: missing; a public bound on the records of one client")
    if recipe.random_features and plan.features is None:
        raise InputError("features: missing; columns of the client files, for random features")
    if plan.settle and plan.promise is not None:
        refuse_settling()
    private = recipe.hides_records
    if private and (not plan.secure or None in (plan.epsilon, plan.norm, plan.ledger)):
        raise InputError(f"{recipe.method}: needs secure, epsilon, norm and ledger")
    if private != (plan.epsilon is not None):
        hiding = ", ".join(hiding_records())
        raise InputError(f"epsilon: of {hiding} and kahm alone, not of {recipe.method}")
    if plan.client_epsilon is not None:
        if private or plan.clip is None or plan.ledger is None:
            raise InputError("client-epsilon: needs clip and ledger, and no other noise")
        if recipe.sums(len(plan.classes)) is None:
            raise InputError(
                f"client-epsilon: the line search of {recipe.method} takes as many sums as it"
                f" needs, and each costs privacy; {recipe.bounded}"
            )
    return plan


def _settings_of_linear() -> set[str]:
    return {declared.name for each in methods("linear") for declared in each.declared()}


def _own_settings(method: str | None) -> set[str]:
    if method == "kahm":
        return _OWN | {"federation"}
    return _OWN | _RECORD if method in HEADS else _OWN | _LINEAR | _RECORD


def _head_settings(method: str) -> set[str]:
    found = {field.name for field in attrs.fields(HeadRecipe)} - {"privacy"}
    # Machines of synthetic records have no batches, and their release has the codes' range.
    return found | _PROMISE if method == "kahm" else found - _OF_MACHINES


def _head_recipe(given: Mapping[str, Any]) -> HeadRecipe:
    promise = {name: given[name] for name in _PROMISE if name in given}
    rest = {name: value for name, value in given.items() if name not in promise}
    return HeadRecipe(**rest, privacy=_promise(promise) if promise else None)


def _promise(given: dict[str, Any]) -> ReleasePromise:
    missing = sorted({"epsilon", "delta", "unit", "bounds"} - set(given))
    if missing:
        raise InputError(f"{missing[0]}: missing; private heads need epsilon, delta, unit, bounds")
    unit, norm = given["unit"], given.get("norm")
    if unit not in ("element", "record") or (unit == "record" and norm is None):
        raise InputError(f'unit: found {unit!r}, expected "element", or "record" with norm')
    adjacency = dp.Element(given.get("distance", 1.0)) if unit == "element" else dp.Record(norm)
    try:
        low, high = map(float, str(given["bounds"]).split(","))
    except ValueError:
        raise InputError(f'bounds: found {given["bounds"]!r}, expected "LOW,HIGH"') from None
    return ReleasePromise(
        epsilon=float(given["epsilon"]),
        delta=float(given["delta"]),
        adjacency=adjacency,
        bounds=(low, high),
        grid=float(given.get("grid", 2.0**-10)),
        mechanism=given.get("mechanism", "optimal" if unit == "element" else "gaussian"),
        smoothing=given.get("smoothing", "sure"),
    )

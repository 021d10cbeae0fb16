"""A node's records where the plan scales them by all clients' means and deviations.

The server asks for one masked sum over records as they are, and tells the scaling that follows from
it with every later request. That scaling is part of what all clients of a masked sum must have been
told alike, and of the federation that heads are signed for. Nobody but the server can tell whether
it is that of the sum, so a node that has taken one takes another only when it has given its part to
another sum of the kind.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from attrs import frozen

from dp import Event
from secure_fl.data import Scaling
from secure_fl.errors import PrivacyError, ProtocolError
from secure_fl.federation import Client, wire
from secure_fl.federation.steps import step_name
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.flower.plan import Plan
from secure_fl.flower.policy import NodePolicy
from secure_fl.privacy.promises import RecordPromise, ReleasePromise
from secure_fl.trainers.feature_moments import local_feature_moments
from secure_fl.trainers.private_moments import local_private_moments
from secure_fl.training.released_scaling import assumed, terms_of

_REMEMBERED = 64
"""Plans whose scaling a node knows again."""


def told(scaling: Scaling) -> dict[str, Any]:
    """A scaling by moments as a value of the wire encoding."""
    constants = {"offsets": scaling.offsets, "spreads": scaling.spreads}
    arrays = {name: np.array(numbers, np.float64) for name, numbers in constants.items()}
    return {"kind": scaling.kind, "factor": float(scaling.factor), **arrays}


def heard(scaling: Mapping[str, Any]) -> Scaling:
    """The scaling that `told` described.

    Raises:
        InputError, AttributeError, KeyError, TypeError, ValueError: it described none.
    """
    numbers = {name: scaling[name].tolist() for name in ("offsets", "spreads")}
    return Scaling(kind=scaling["kind"], factor=scaling["factor"], **numbers)


def described(description: Mapping[str, Any], scaling: Mapping[str, Any]) -> dict[str, Any]:
    """What all clients of a masked sum must have been told alike, with the scaling in it.

    Args:
        description: of the plan.
        scaling: as it was told.
    """
    return {**description, "scaled": dict(scaling)}


def scaling_in(facts: Mapping[str, Any]) -> Scaling:
    """The scaling among a federation's facts.

    Raises:
        InputError, KeyError, TypeError, ValueError: there is none.
    """
    return Scaling(
        kind=facts["scaling"],
        factor=facts["scale"],
        offsets=facts["offsets"],
        spreads=facts["spreads"],
    )


@frozen
class Taken:
    """A scaling that a node has taken, and what of a head's promise is left after it.

    Attributes:
        scaling: of every feature.
        promise: of the head's release; None where it is none.
        assumed: what its statement says of the scaling; None where this node's records are not in
            the sum.
    """

    scaling: Scaling
    promise: ReleasePromise | None
    assumed: str | None


class Scaled:
    """The records of a node, as a request wants them.

    Args:
        plan: scaled by moments.
        load: the client with its records scaled; as they are for None.
    """

    def __init__(self, plan: Plan, load: Callable[[Scaling | None], Client]) -> None:
        self._load, self._plan = load, plan
        released = plan.promise is not None
        self._kind = "released" if released else "moments"
        self._step = step_name(local_private_moments if released else local_feature_moments)
        self._key = wire.fingerprint(plan.moments).hex()

    def is_of_moments(self, asked: Mapping[str, Any]) -> bool:
        """Whether a request is for the sum that the scaling follows from."""
        return bool(asked.get("step") == self._step)

    def client(self, asked: Mapping[str, Any], kept: dict[str, Any]) -> Client:
        """The client with its records as the request wants them.

        Raises:
            PrivacyError: moments are asked for bare.
            ProtocolError: the server told no scaling, or another than it did before.
        """
        return self._load(self._wanted(asked, kept))

    def _wanted(self, asked: Mapping[str, Any], kept: dict[str, Any]) -> Scaling | None:
        if self.is_of_moments(asked):
            if asked.get("do") == "run":
                raise PrivacyError("server: asks for a client's means and deviations unmasked")
            return None
        if asked.get("scaling") is not None:
            return self._heard(asked["scaling"], kept)
        if asked.get("do") == "hello":
            return None
        raise ProtocolError("server: asks for scaled records, and has not told the scaling")

    def _heard(self, scaling: Mapping[str, Any], kept: dict[str, Any]) -> Scaling:
        found = heard(scaling)
        self.take(found, kept)
        return found

    def described(self, description: Any, asked: Mapping[str, Any]) -> Any:
        """The federation's description, with the scaling that came with a request."""
        if self.is_of_moments(asked) or asked.get("scaling") is None:
            return description
        return described(description, asked["scaling"])

    def take(self, scaling: Scaling, kept: dict[str, Any]) -> Taken:
        """Notes the scaling of the plan.

        Raises:
            ProtocolError: it is not of the plan's kind, or another than before, with no sum of
                moments in between.
        """
        if (scaling.kind, scaling.factor) != (self._kind, self._plan.scale):
            raise ProtocolError(
                f"server: a scaling {scaling.kind} times {scaling.factor:g}, the plan has"
                f" {self._kind} times {self._plan.scale:g}"
            )
        digest = wire.fingerprint(told(scaling)).hex()
        known, parts, multiplier = self._noted(kept)
        if known not in ("", digest):
            raise ProtocolError(
                "server: another scaling than before, and no sum of means and deviations of this"
                " node's records in between"
            )
        self._note(kept, digest, parts, multiplier)
        promise, clip = self._plan.promise, self._plan.moments_within
        if not isinstance(promise, ReleasePromise) or clip is None:
            return Taken(scaling, None, None)
        features = len(scaling.offsets or ())
        said = assumed(promise, clip, features, parts, multiplier) if parts else None
        return Taken(scaling, terms_of(promise, features).left, said)

    def gave(
        self, asked: Mapping[str, Any], kept: dict[str, Any], parts: int, price: Event | None
    ) -> None:
        """After its masked vector: another scaling may follow a sum of moments.

        Args:
            asked: the request of the sum.
            kept: of the node.
            parts: honest clients whose vectors are surely in the sum.
            price: as which it was booked; None where there are no books.
        """
        if self.is_of_moments(asked):
            noise = None if price is None else price.gaussian
            self._note(kept, "", parts, 0.0 if noise is None else noise.noise_multiplier)

    def terms(self, terms: NodePolicy, asked: Mapping[str, Any]) -> NodePolicy:
        """What the owner insists on for this request.

        A node of heads has nothing else that leaves it, so its moments are masked under the rules
        of nodes that mask all.
        """
        if not self.is_of_moments(asked) or not isinstance(self._plan.recipe, HeadRecipe):
            return terms
        return attrs.evolve(terms, secure=True)

    def later(self, asked: Mapping[str, Any], client: Client) -> tuple[Event, ...]:
        """What the run spends after this sum, which the books must have room for as well."""
        promise = self._plan.promise
        if not self.is_of_moments(asked) or not isinstance(promise, RecordPromise | ReleasePromise):
            return ()
        return (terms_of(promise, client.features.shape[1]).later,)

    def _noted(self, kept: Mapping[str, Any]) -> tuple[str, int, float]:
        found = next(
            (each for each in kept["scaled"] if each[0] == self._key), (self._key, "", 0, 0.0)
        )
        _, digest, parts, multiplier = found
        return digest, parts, multiplier

    def _note(self, kept: dict[str, Any], digest: str, parts: int, multiplier: float) -> None:
        others = [list(each) for each in kept["scaled"] if each[0] != self._key]
        kept["scaled"] = [*others, [self._key, digest, parts, multiplier]][-_REMEMBERED:]

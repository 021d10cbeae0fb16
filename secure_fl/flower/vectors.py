"""How a node makes the vector of a masked sum of what its step returned."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from secure_fl.errors import FederationError, PrivacyError
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.privacy import GRID_BITS, Grid, NoiseSource
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.trees import LowRank, SparseArray
from secure_fl.flower.descriptions import encoding_of

log = logging.getLogger(__name__)


def codes_of(name: str, coding: Mapping[str, Any], weight: float, vector: Any) -> Any:
    """Codes without noise and masks; what was moved to the clip stays in this node's log.

    Args:
        name: of the client.
        coding: what the server says of codes and noise.
        weight: of the client.
        vector: float64, finite.

    Raises:
        FederationError: a coding that is none, or a client that weighs more than it says.
    """
    if "sigma" in coding:
        if not 0 < coding["steps"] <= 1 << GRID_BITS:
            raise FederationError(f"server: a grid of {coding['steps']} steps")
        codes, clipped = Grid(coding["clip"], coding["steps"]).place(vector)
        outside = int(clipped)
    else:
        encoding = encoding_of(coding)
        if coding["weighted"]:
            if weight > coding["largest"]:
                raise FederationError(
                    f'client "{name}": weighs {weight:g}, the public bound is'
                    f" {coding['largest']:g}; raise it (max-weight)"
                )
            share = weight / coding["largest"]
            vector = np.append(vector * share, share * encoding.clip)
        codes, outside = encoding.encode(vector)
    if outside:
        log.info('client "%s": moved to the clip %d times', name, outside)
    return codes


def under_noise(coding: Mapping[str, Any], codes: Any, parameters: Parameters) -> Words:
    """The codes under the client's part of the noise, where the coding has one."""
    if "sigma" not in coding:
        return codes
    # A fresh secret for every sum: nothing is ever repeated under the same noise.
    noise = NoiseSource().draw(coding["sigma"], codes, parameters.context)
    return encoding_of(coding).wrap(codes + noise)


def vector_of(leaves: Sequence[Any]) -> Any:
    """All leaves end to end, float64; raises PrivacyError for those that do not add up."""
    if any(isinstance(leaf, SparseArray | LowRank | PackedCodes) for leaf in leaves):
        raise PrivacyError(
            "a sparse array, low-rank matrix or quantised vector cannot be aggregated securely:"
            " positions tell on the client, and factors and codes do not add up"
        )
    flat = [np.asarray(leaf).ravel().astype(np.float64, copy=False) for leaf in leaves]
    return np.concatenate(flat) if flat else np.zeros(0)

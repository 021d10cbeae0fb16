"""Sums of integer vectors: quantised, where asked for private, and masked or central.

A client's tree becomes one vector of codes; what comes back is the vector of their sum. The plain
path of `plain` never comes here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from secure_fl.errors import PrivacyError, QuorumError
from secure_fl.federation import wire
from secure_fl.federation.agreement import agreement
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.metering import Traffic
from secure_fl.federation.participation import Stage
from secure_fl.federation.plain import Contribution, same_structure
from secure_fl.federation.privacy import Accountant, NoiseSource, PrivateEncoding, context_of
from secure_fl.federation.secagg.encoding import FixedPoint, Words
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secure import SecureSum
from secure_fl.federation.trees import Array, LowRank, SparseArray, Structure, split_leaves

Vector = NDArray[np.float64]


@frozen
class Asked:
    """What a sum was asked of whom.

    Attributes:
        names: clients, in the fixed order.
        round: from 0.
        call: of the round, from 0.
        step: registered name.
        told: what every client is told of the step, see `secure_fl.federation.agreement`.
        request: digest of the step and what is broadcast with it; empty without privacy.
        lost: clients that drop out, and before which message.
        threshold: clients that must be left.
        expected: clients that take part on average; the divisor of a private mean.
        weighted: a mean is asked for.
    """

    names: tuple[str, ...]
    round: int
    call: int
    step: str
    told: Mapping[str, Any]
    request: bytes
    lost: Mapping[str, Stage]
    threshold: int
    expected: float
    weighted: bool

    def check_participants(self) -> None:
        """Raises QuorumError where nobody is asked: the protocol has no sum over nobody."""
        if not self.names:
            raise QuorumError(f"round {self.round}: 0 clients take part")

    def check_quorum(self, left: int) -> None:
        """Raises QuorumError where fewer clients are left than the threshold."""
        if left < self.threshold:
            raise QuorumError(
                f"round {self.round}: {left} clients left of {len(self.names)} that were asked,"
                f" the threshold is {self.threshold}; run the round again when more are there"
            )


@frozen
class VectorTotal:
    """A sum of trees, decoded.

    Attributes:
        structure: of every contribution.
        leaves: dense sums, float64.
        weight: what a mean is divided by.
        names: whose contributions are in it.
        traffic: of every client that was asked.
        outside: entries (or, under privacy, whole updates) that were moved to the clip.
    """

    structure: Structure
    leaves: list[Array]
    weight: float
    names: tuple[str, ...]
    traffic: Mapping[str, Traffic]
    outside: Mapping[str, int] = field(factory=dict)


class Quantised:
    """Fixed-point codes, without noise.

    Args:
        encoding: of the federation.
        weights: of the clients.
        largest: public bound on them.
    """

    def __init__(self, encoding: FixedPoint, weights: Mapping[str, float], largest: float) -> None:
        self.encoding = encoding
        self._weights = weights
        self._largest = largest

    def codes(self, asked: Asked, name: str, vector: Vector) -> tuple[Words, int]:
        """A client's codes, and entries outside the clip; in a mean the last code is its weight."""
        if asked.weighted:
            # As shares of the largest weight, an update within the clip stays within it.
            share = self._weights[name] / self._largest
            vector = np.append(vector * share, share * self.encoding.clip)
        return self.encoding.encode(vector)

    def describe(self, asked: Asked) -> dict[str, Any]:
        """What a client on another machine must know to make its codes."""
        return {
            **_described(self.encoding, asked),
            "largest": float(self._largest),
        }

    def decode(self, asked: Asked, total: Words) -> tuple[Vector, float]:
        """The values, and what a mean of them is divided by."""
        values = self.encoding.decode(total)
        if not asked.weighted:
            return values, 1.0
        return values[:-1], float(values[-1]) / self.encoding.clip


class Private:
    """Clipped codes with noise; every client weighs 1.

    Args:
        encoding: of the federation.
        accountant: the books.
        sources: every client's noise, and the server's under "".
        session: 16 random bytes.
        central: the server adds the noise.
    """

    def __init__(
        self,
        encoding: PrivateEncoding,
        accountant: Accountant,
        sources: Mapping[str, NoiseSource],
        session: bytes,
        *,
        central: bool,
    ) -> None:
        self.encoding = encoding.fixed_point()
        self._private = encoding
        self._accountant = accountant
        self._sources = sources
        self._session = session
        self._central = central

    def book(self, asked: Asked, dimension: int) -> None:
        """Books the sum, before any of its noise is drawn."""
        if self._central:
            multiplier = self._private.central_multiplier(dimension)
        else:
            multiplier = self._private.part_multiplier(asked.threshold, len(asked.names), dimension)
        self._accountant.book(asked.round, asked.call, asked.step, asked.request, multiplier)

    def codes(self, asked: Asked, name: str, vector: Vector) -> tuple[Words, int]:
        """A client's codes, under its part of the noise; whether its update was clipped."""
        codes, clipped = self._private.grid.place(vector)
        if not self._central:
            sigma = self._private.part_sigma(asked.threshold)
            codes = codes + self._noise(asked, name, sigma, codes)
        return self.encoding.wrap(codes), int(clipped)

    def describe(self, asked: Asked) -> dict[str, Any]:
        """What a client on another machine must know to make its codes, noise included."""
        return {
            **_described(self.encoding, asked),
            "steps": self._private.grid.steps,
            "sigma": self._private.part_sigma(asked.threshold),
        }

    def decode(self, asked: Asked, total: Words) -> tuple[Vector, float]:
        """The values, under the server's noise where it is trusted, and the public divisor."""
        codes = self.encoding.unwrap(total)
        if self._central:
            codes = codes + self._noise(asked, "", self._private.central_sigma(), codes)
        return self._private.grid.values(codes), asked.expected

    def _noise(self, asked: Asked, name: str, sigma: float, codes: Any) -> Any:
        request = asked.step, asked.request.hex()
        context = context_of(self._session, asked.round, asked.call, *request, name)
        kind = self._private.kind
        return self._sources[name].draw(sigma, codes, context, noise=kind)


def _described(encoding: FixedPoint, asked: Asked) -> dict[str, Any]:
    return {
        "clip": float(encoding.clip),
        "clients": encoding.clients,
        "bits": encoding.bits,
        "outside": encoding.outside,
        "weighted": asked.weighted,
    }


class VectorSum:
    """Sums of vectors of codes, masked or by a trusted server.

    Args:
        coding: what makes codes of values and back.
        secure: the protocol, or None for a server that sees every vector.
        federation: its description, which all clients must have been told alike.

    Attributes:
        coding: as given.
    """

    def __init__(
        self, coding: Quantised | Private, secure: SecureSum | None, federation: Any = None
    ) -> None:
        self.coding = coding
        self._secure = secure
        self._federation = federation
        self._common = wire.fingerprint(federation)

    def sum(self, asked: Asked, contributions: Iterable[Contribution]) -> VectorTotal:
        """The sum of the contributions of those who do not drop out.

        Raises:
            QuorumError: fewer than the threshold are left.
            PrivacyError: a sparse array, or more private sums than planned.
            BudgetError: the budget would be exceeded; no noise was drawn.
            FederationError: trees of different structure, or values outside the clip.
        """
        if self._secure is not None:
            asked.check_participants()
        parameters = None if self._secure is None else self.parameters(asked)
        found = list(contributions)
        asked.check_quorum(len(found))
        structure = found[0].structure
        vectors = {each.name: _vector(each, structure, found[0].name) for each in found}
        if isinstance(self.coding, Private):
            self.coding.book(asked, len(vectors[found[0].name]))
        coded = {name: self.coding.codes(asked, name, v) for name, v in vectors.items()}
        codes = {name: each[0] for name, each in coded.items()}
        total, names, traffic = self._added(asked, parameters, codes, structure)
        values, weight = self.coding.decode(asked, total)
        return VectorTotal(
            structure,
            split_leaves(structure, values),
            weight,
            names,
            traffic,
            {name: each[1] for name, each in coded.items() if each[1]},
        )

    def parameters(self, asked: Asked, **place: int) -> Parameters:
        """The protocol's, of this sum; only where sums are masked.

        Args:
            asked: of the sum.
            place: `setup`, `sums` and `place` of `Parameters`; a set-up for this sum by default.
        """
        assert self._secure is not None
        agreed = agreement(asked.told, self.coding.describe(asked), self._federation)
        return self._secure.parameters(
            asked.names,
            asked.round,
            asked.call,
            asked.threshold,
            agreed,
            common=self._common,
            **place,
        )

    def _added(
        self,
        asked: Asked,
        parameters: Parameters | None,
        codes: Mapping[str, Words],
        structure: Structure,
    ) -> tuple[Words, tuple[str, ...], Mapping[str, Traffic]]:
        if self._secure is not None and parameters is not None:
            found = self._secure.sum(parameters, codes, asked.lost, structure.text())
            return found.total, found.survivors, found.traffic
        names = tuple(codes)
        total = np.zeros_like(codes[names[0]])
        for each in codes.values():
            np.add(total, each, out=total)
        size = Structure("array", dtype="l", shape=total.shape)
        n_bytes, _ = wire.measure_tree(size, [])
        return total, names, dict.fromkeys(names, Traffic(0, n_bytes, 0, len(total)))


def _vector(found: Contribution, structure: Structure, first: str) -> Vector:
    same_structure(structure, found, first)
    flat = []
    for leaf in found.leaves:
        if isinstance(leaf, SparseArray):
            raise PrivacyError(
                f'client "{found.name}": a sparse array cannot be aggregated securely or privately,'
                " the positions tell on the client; draw them from a seed that all clients share"
                " (Rand-K) and send the values as an array"
            )
        if isinstance(leaf, LowRank | PackedCodes):
            raise PrivacyError(
                f'client "{found.name}": factors and codes do not add up, so a low-rank matrix or'
                " quantised vector cannot be aggregated securely or privately; send an array"
            )
        flat.append(leaf.ravel().astype(np.float64, copy=False))
    return np.concatenate(flat) if flat else np.zeros(0)

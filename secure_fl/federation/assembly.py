"""How a `Federation` is put together from its options: checks, runtime, and the sum's stages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from secure_fl.errors import FederationError
from secure_fl.federation.client import Client
from secure_fl.federation.executor import InProcess, Runtime, Threads
from secure_fl.federation.privacy import Accountant, ClientPrivacy, NoiseSource, PrivateEncoding
from secure_fl.federation.secagg.encoding import FixedPoint
from secure_fl.federation.secure import SecureAggregation, SecureSum
from secure_fl.federation.vector import Private, Quantised, VectorSum
from secure_fl.federation.workers import Processes

SERVER = ""
"""The server's key among the noise sources; no client may have an empty name."""


def checked_clients(clients: Sequence[Client]) -> tuple[Client, ...]:
    """The clients; raises FederationError where there is none, or a name is used twice."""
    if not clients:
        raise FederationError("federation: 0 clients, at least 1 is needed")
    seen: set[str] = set()
    for client in clients:
        if client.name in seen:
            raise FederationError(f'client "{client.name}": the name is used twice; rename one')
        seen.add(client.name)
    return tuple(clients)


def checked_seed(seed: int) -> int:
    """The seed; raises FederationError unless it is a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise FederationError(f"seed: found {seed!r}, expected a whole number of at least 0")
    return int(seed)


def checked_threshold(
    threshold: int | None, n_clients: int, expected: float, *, secure: bool
) -> int | None:
    """The threshold; raises FederationError where it is out of range.

    Args:
        threshold: None leaves it to the number of clients that are asked.
        n_clients: of the federation.
        expected: of a round.
        secure: secure aggregation is on, which needs more than half.
    """
    if threshold is None:
        return None
    if not 1 <= threshold <= n_clients:
        raise FederationError(f"threshold: found {threshold}, expected 1 to {n_clients} clients")
    if secure and threshold <= expected / 2:
        raise FederationError(
            f"threshold: found {threshold}, secure aggregation needs it above half of the"
            f" {expected:g} clients of a round"
        )
    return threshold


def make_runtime(clients: tuple[Client, ...], workers: int | str) -> Runtime:
    """The runtime of the `workers` option.

    Raises:
        FederationError: the option is neither a number of at least 1 nor "threads:N".
    """
    if isinstance(workers, str) and workers.startswith("threads:") and workers[8:].isdigit():
        return Threads(clients, max(1, int(workers[8:])))
    if isinstance(workers, int) and workers == 1:
        return InProcess(clients)
    if isinstance(workers, int) and workers > 1:
        return Processes(clients, workers)
    raise FederationError(
        f'workers: found {workers!r}, expected a whole number of at least 1 or "threads:N"'
    )


def pipeline(*, secure: bool, private: bool) -> tuple[str, ...]:
    """What happens to an update on its way into a sum, in order."""
    stages = {
        "step": True,
        "refuse non-finite": True,
        "clip": private or secure,
        "quantise": private or secure,
        "noise of the clients": private and secure,
        "mask": secure,
        "transport": True,
        "sum": True,
        "unmask": secure,
        "noise of the server": private and not secure,
        "dequantise": private or secure,
        "meter": True,
    }
    return tuple(stage for stage, on in stages.items() if on)


class Stages:
    """What is bound to one run's name: protocol, noise and books.

    Args:
        weights: of the clients, in the fixed order.
        aggregation: option of the handle.
        privacy: option of the handle.
        session: 16 random bytes that name the run.
        secrets: of the noise sources, where a run is resumed.
        earlier: private sums of the run's sessions before this one.
        description: of the federation, see `secure_fl.federation.agreement`.

    Attributes:
        sources: of noise, by client and `SERVER`; none without privacy.
        accountant: None without privacy.
        vector: None where sums are plain.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        aggregation: SecureAggregation | None,
        privacy: ClientPrivacy | None,
        session: bytes,
        secrets: Mapping[str, bytes],
        earlier: int = 0,
        description: Any = None,
    ) -> None:
        self.session = session
        self.sources: dict[str, NoiseSource] = {}
        self.accountant: Accountant | None = None
        self.vector: VectorSum | None = None
        protocol = None
        if aggregation is not None:
            protocol = SecureSum(tuple(weights), aggregation, session)
        if privacy is not None:
            self.sources = {n: NoiseSource(secrets.get(n)) for n in (*weights, SERVER)}
            self.accountant = Accountant(privacy, session, earlier)
            bits = 64 if aggregation is None else aggregation.bits
            encoding = PrivateEncoding(privacy, len(weights), bits)
            coding = Private(
                encoding, self.accountant, self.sources, session, central=protocol is None
            )
            self.vector = VectorSum(coding, protocol, description)
        elif aggregation is not None:
            self.vector = VectorSum(_quantised(aggregation, weights), protocol, description)


def _quantised(options: SecureAggregation, weights: Mapping[str, float]) -> Quantised:
    largest = max(weights.values())
    if options.max_weight is not None:
        if options.max_weight < largest:
            raise FederationError(
                f"max_weight: found {options.max_weight:g}, a client weighs {largest:g}; raise it"
            )
        largest = options.max_weight
    encoding = FixedPoint(options.clip, len(weights), options.bits, options.outside)
    return Quantised(encoding, weights, largest)

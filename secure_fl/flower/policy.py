"""What the owner of a node insists on, whatever the server asks."""

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from dp import Ledger
from secure_fl.errors import PrivacyError
from secure_fl.federation.client import Client
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.steps import find_promise
from secure_fl.flower.descriptions import encoding_of


@frozen
class Terms:
    """The owner's terms.

    Attributes:
        secure: every update is masked.
        noise: least noise multiplier of every sum, 0 for none; implies `secure`.
        clip: largest L2 norm that updates may be clipped to; noise is relative to it.
        sums: private sums that the node answers in all.
        colluding: surviving clients that may tell the server their noise.
        ledger: of the data set. Where there is one, the node does only what draws noise that it
            can book there beforehand: sums of steps with a promise, masked, and private heads.
    """

    secure: bool = False
    noise: float = 0.0
    clip: float = math.inf
    sums: int = 2**31
    colluding: int = 0
    ledger: Ledger | None = None

    def check_bare(self) -> None:
        """Raises PrivacyError unless an update may leave unmasked."""
        if self.secure or self.noise > 0 or self.ledger is not None:
            raise PrivacyError("server: asks for a bare update; this node masks all")

    def check_masked(
        self, parameters: Parameters, coding: Mapping[str, Any], answered: int
    ) -> None:
        """Whether a masked sum has the noise that is wanted.

        Args:
            parameters: of the sum.
            coding: what the server says of codes and noise.
            answered: private sums so far.

        Raises:
            PrivacyError: it has not, or all private sums are answered.
        """
        if self.noise <= 0:
            return
        if "sigma" not in coding:
            raise PrivacyError(
                f"server: asks for a sum without noise, this node adds {self.noise:g}"
            )
        noise = coding["sigma"] / coding["steps"] * math.sqrt(self._honest(parameters))
        if coding["clip"] > self.clip or noise < self.noise * (1 - 1e-9):
            raise PrivacyError(
                f"server: clip {coding['clip']:g} and noise {noise:g}, this node wants at most"
                f" {self.clip:g} and at least {self.noise:g}"
            )
        if answered >= self.sums:
            raise PrivacyError(f"this node answered the {self.sums} private sums it allows")

    def book(
        self,
        step: str,
        client: Client,
        parameters: Parameters,
        coding: Mapping[str, Any],
        broadcast: tuple[Any, ...],
    ) -> None:
        """Books a masked sum in the ledger, if there is one, before its noise is drawn.

        Args:
            step: registered name.
            client: with its records.
            parameters: of the sum.
            coding: what the server says of codes and noise.
            broadcast: the step's arguments.

        Raises:
            PrivacyError: the step draws no noise of its own, too little to account for, or noise
                that weights, clip or rounding would change on its way into the sum.
            BudgetError: the budget does not allow it.
        """
        if self.ledger is None:
            return
        promise = find_promise(step)
        honest = self._honest(parameters)
        if promise is None or honest < 1:
            raise PrivacyError(f"server: asks for {step}, whose noise this node cannot book")
        found = promise(client, honest, len(parameters.names), *broadcast)
        encoding = encoding_of(coding)
        # Others' noise hides this client's records only if it arrives as it was drawn.
        exact = math.frexp(encoding.clip)[0] == 0.5 and encoding.step <= found.grid
        scaled = coding["weighted"] or "sigma" in coding
        if scaled or not exact or encoding.clip < found.largest:
            raise PrivacyError(
                f"server: codes up to {encoding.clip:g} in steps of {encoding.step:g}, in which"
                f" noisy values up to {found.largest:g} do not arrive as they are"
            )
        self.ledger.spend(found.event)

    def _honest(self, parameters: Parameters) -> int:
        return max(0, parameters.threshold - self.colluding)

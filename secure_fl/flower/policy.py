"""What the owner of a node insists on, whatever the server asks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from dp import Event, Ledger
from secure_fl.errors import PrivacyError
from secure_fl.federation.client import Client
from secure_fl.federation.noises import distributed_multiplier
from secure_fl.federation.secagg.parameters import Parameters, default_threshold
from secure_fl.federation.steps import find_promise
from secure_fl.flower.descriptions import encoding_of

FEWEST = 3
"""Clients in a sum without noise: of two, each knows the other's update."""


@frozen
class NodePolicy:
    """The owner's terms.

    What concerns masked sums is checked of all of them; nodes that do not mask everything have
    nothing to lose by sums over few clients, and check only what their owner has set.

    Attributes:
        secure: every update is masked.
        noise: least noise multiplier of every sum, 0 for none; implies `secure`.
        clip: largest L2 norm that updates may be clipped to; noise is relative to it.
        sums: private sums that the node answers in all.
        colluding: clients that may tell the server all they know, their noise included. Of n
            clients that hold shares of a secret which t of them open, fewer than 2 t - n may
            collude: sums that do not withstand as many as this are refused, and so are sums without
            noise of which they leave only this client's update.
        threshold: least number of clients that must be left in a sum. None wants more than two
            thirds of those asked, of the holders of a secret too, where all is masked.
        min_clients: least number of clients in whatever sum comes to light; implies `secure`. None
            wants 3 of sums without noise, where all is masked.
        cohorts: lists of clients over which the node ends sums without noise, where all is masked.
            Two sums over different lists show what the difference of the lists added, so each list
            above one may show a client's update. 1 keeps to the same list for good.
        unfinished: sums with noise or in the ledger that may stay without an end, in all. They are
            paid for when the masked vector leaves, and the server can leave them there.
        ledger: of the data set. Where there is one, the node does only what draws noise that it
            can book there beforehand: sums of steps with a promise, masked, and private heads.
    """

    secure: bool = False
    noise: float = 0.0
    clip: float = math.inf
    sums: int = 2**31
    colluding: int = 0
    threshold: int | None = None
    min_clients: int | None = None
    cohorts: int = 1
    unfinished: int = 3
    ledger: Ledger | None = None

    def __attrs_post_init__(self) -> None:
        for name, least in (("colluding", 0), ("cohorts", 1), ("unfinished", 1), ("sums", 0)):
            if getattr(self, name) < least:
                raise PrivacyError(
                    f"{name}: found {getattr(self, name)}, expected at least {least}"
                )

    @property
    def masks_all(self) -> bool:
        """Whether no update leaves bare."""
        noisy = self.noise > 0 or self.ledger is not None
        return self.secure or noisy or self.min_clients is not None

    def check_bare(self) -> None:
        """Raises PrivacyError unless an update may leave unmasked."""
        if self.masks_all:
            raise PrivacyError("server: asks for a bare update; this node masks all")

    @property
    def quiet(self) -> bool:
        """Whether masks alone protect an update, without noise that this node's owner counts on."""
        return self.masks_all and self.noise <= 0 and self.ledger is None

    def check_cohort(self, parameters: Parameters, known: Sequence[Sequence[str]]) -> None:
        """Whether a masked sum has clients enough, against as many that collude.

        Args:
            parameters: of the sum.
            known: lists of clients over which the node ended sums without noise.

        Raises:
            PrivacyError: it has not.
        """
        if parameters.colluding < self.colluding:
            raise PrivacyError(
                f"server: a sum that withstands {parameters.colluding} colluding clients (2 x"
                f" {parameters.share_threshold} shares of {parameters.holders}), this node wants"
                f" {self.colluding}; raise the threshold"
            )
        self._check_threshold(parameters)
        if parameters.fewest < self._least:
            raise PrivacyError(
                f"server: a sum that may be of {parameters.fewest} clients, this node wants at"
                f" least {self._least}; raise the threshold"
            )
        asked = set(parameters.names)
        full = self.quiet and len(known) >= self.cohorts
        if full and not any(asked.issuperset(each) for each in known):
            self._refuse_cohort(len(known))

    @property
    def _least(self) -> int:
        least = FEWEST if self.quiet else 0
        least = least if self.min_clients is None else self.min_clients
        return max(least, self.colluding + 2) if self.quiet else least

    def check_survivors(self, survivors: Sequence[str], known: Sequence[Sequence[str]]) -> bool:
        """Whether the node may help to open a sum over these clients; True where it must note them.

        Args:
            survivors: whose vectors are in the sum, in order.
            known: lists of clients over which the node ended sums without noise.

        Raises:
            PrivacyError: it may not.
        """
        if not self.quiet or tuple(survivors) in {tuple(each) for each in known}:
            return False
        if len(known) >= self.cohorts:
            self._refuse_cohort(len(known))
        return True

    def _refuse_cohort(self, known: int) -> None:
        raise PrivacyError(
            f"server: a sum without noise over other clients than before ({known} lists so far);"
            " the difference would show single updates (cohorts)"
        )

    def _check_threshold(self, parameters: Parameters) -> None:
        if self.threshold is not None:
            if parameters.threshold < self.threshold:
                raise PrivacyError(
                    f"server: a threshold of {parameters.threshold}, this node wants at least"
                    f" {self.threshold}"
                )
            return
        wanted = default_threshold(len(parameters.names)), default_threshold(parameters.holders)
        found = parameters.threshold, parameters.share_threshold
        if self.masks_all and (found[0] < wanted[0] or found[1] < wanted[1]):
            raise PrivacyError(
                f"server: thresholds of {found[0]} clients and {found[1]} shares, this node wants"
                f" at least {wanted[0]} and {wanted[1]} unless its owner sets another (threshold)"
            )

    def check_unfinished(self, unfinished: int) -> None:
        """Raises PrivacyError where too many sums that were paid for never ended."""
        if unfinished >= self.unfinished:
            raise PrivacyError(
                f"server: {unfinished} sums were begun, paid for and never ended, this node allows"
                f" {self.unfinished} (unfinished)"
            )

    def check_masked(
        self, parameters: Parameters, coding: Mapping[str, Any], answered: int, entries: int = 0
    ) -> None:
        """Whether a masked sum has the noise that is wanted.

        Args:
            parameters: of the sum.
            coding: what the server says of codes and noise.
            answered: private sums so far.
            entries: of the vector, as far as they are known; more are worth no more noise.

        Raises:
            PrivacyError: it has not, or all private sums are answered.
        """
        if self.noise <= 0:
            return
        if "sigma" not in coding:
            raise PrivacyError(
                f"server: asks for a sum without noise, this node adds {self.noise:g}"
            )
        honest = self.honest(parameters)
        if honest < 1:
            raise PrivacyError("server: a sum of which no honest client is surely left")
        # On a coarse grid the parts' sum is worth less than their deviation says.
        noise = distributed_multiplier(
            coding["steps"], coding["sigma"], honest, len(parameters.names), entries
        )
        if not (coding["clip"] <= self.clip and noise >= self.noise * (1 - 1e-9)):
            raise PrivacyError(
                f"server: clip {coding['clip']:g} and noise {noise:g}, this node wants at most"
                f" {self.clip:g} and at least {self.noise:g}"
            )
        if answered >= self.sums:
            raise PrivacyError(f"this node answered the {self.sums} private sums it allows")

    def price(
        self,
        step: str,
        client: Client,
        parameters: Parameters,
        coding: Mapping[str, Any],
        broadcast: tuple[Any, ...],
    ) -> Event | None:
        """What a masked sum costs the ledger; None where there is none.

        Args:
            step: registered name.
            client: with its records.
            parameters: of the sum.
            coding: what the server says of codes and noise.
            broadcast: the step's arguments.

        Raises:
            PrivacyError: the step draws no noise of its own, too little to account for, or noise
                that weights, clip or rounding would change on its way into the sum.
        """
        if self.ledger is None:
            return None
        promise = find_promise(step)
        honest = self.honest(parameters)
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
        return found.event

    def honest(self, parameters: Parameters) -> int:
        """Clients whose vectors are surely in the sum and who tell the server nothing."""
        return max(0, parameters.fewest - self.colluding)

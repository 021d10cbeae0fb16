"""Client-level differential privacy of every sum.

Each update is clipped as a whole to an L2 norm, put on an integer grid towards zero (so that no
norm grows), and blurred with integer noise before or after the sum:

- under secure aggregation every client adds its part before masking, so that the server never sees
  a less private sum. Parts are sized for the fewest clients that may be left, less those that might
  pool what they know with the server;
- under plain aggregation the server, which is trusted there, adds the whole noise to the sum.

What a sum of parts is worth is said in `secure_fl.federation.noises`.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp import BudgetError, Composition, Event, Ledger, Membership, compose
from dp.exact import RandomSource
from secure_fl.crypto.keys import derive, digest
from secure_fl.errors import PrivacyError
from secure_fl.federation.noises import NOISES, NoiseName
from secure_fl.federation.secagg.encoding import FixedPoint

Codes = NDArray[np.int64]

UNIT = Membership("contribution")
GRID_BITS = 24
"""The clip has at most 2^24 grid steps: rounding is far below any useful noise, squares fit."""
TAIL = 12
"""Room for noise in the modulus, in standard deviations: beyond lies less than 4e-33 an entry."""


@frozen
class ClientPrivacy:
    """Noise that hides one client's contribution, whatever it is.

    Attributes:
        clip: L2 norm of a client's whole update, above 0; longer ones are scaled down to it.
        noise_multiplier: standard deviation of the noise in the sum over `clip`, above 0.
        sums: sums and means that the run will ask for (rounds times those of a round), at least 1;
            the budget is checked for all of them before the first.
        ledger: the books; its budget, if it has one, must be per `Membership("contribution")`.
        delta: at which epsilon is reported; the budget's where the ledger has one.
        colluding: surviving clients that may tell the server their own noise, at least 0.
        noise: "gaussian" (discrete), or "skellam": its parts add up to Skellam noise exactly, on a
            grid of at most 2^16 steps for the noise.
    """

    clip: float
    noise_multiplier: float
    sums: int
    ledger: Ledger
    delta: float = 1e-5
    colluding: int = 0
    noise: NoiseName = "gaussian"

    def __attrs_post_init__(self) -> None:
        if self.noise not in NOISES:
            raise PrivacyError(f"noise: found {self.noise!r}, expected one of {', '.join(NOISES)}")
        for name in ("clip", "noise_multiplier"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise PrivacyError(f"{name}: found {value}, expected a finite number above 0")
        if self.sums < 1:
            raise PrivacyError(f"sums: found {self.sums}, expected at least 1")
        if self.colluding < 0:
            raise PrivacyError(f"colluding: found {self.colluding}, expected at least 0")
        if not 0 < self.delta < 1:
            raise PrivacyError(f"delta: found {self.delta}, expected it in (0, 1)")

    @property
    def of_a_sum(self) -> list[Any]:
        """What decides the noise of a sum."""
        return [float(self.clip), float(self.noise_multiplier), self.colluding, self.noise]


def calibrate(epsilon: float, delta: float, sums: int, noise: NoiseName = "gaussian") -> float:
    """The least noise multiplier, to a relative 1e-4, with which so many sums keep a budget.

    Args:
        epsilon: above 0, per client's contribution.
        delta: in (0, 1).
        sums: at least 1.
        noise: as `ClientPrivacy`'s.

    Raises:
        PrivacyError: no multiplier up to 1e6 is enough.
    """

    def spent(multiplier: float) -> float:
        return compose([], [NOISES[noise].event(multiplier, sums)], delta).epsilon

    low, high = 0.0, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > 1e6:
            raise PrivacyError(f"epsilon {epsilon:g} for {sums} sums: ask for fewer or for more")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > epsilon else (low, middle)
    return high


@frozen
class Grid:
    """The integer grid of private updates.

    Attributes:
        clip: L2 norm in the updates' units.
        steps: the same in grid steps, a power of 2.
    """

    clip: float
    steps: int

    @classmethod
    def fitting(
        cls,
        clip: float,
        clients: int,
        bits: int,
        noise: Callable[[int], float],
        most: float = 2.0**GRID_BITS,
    ) -> "Grid":
        """The finest grid of which `clients` updates and their noise stay in half the modulus.

        Args:
            clip: L2 norm.
            clients: that may be in a sum.
            bits: of the modulus.
            noise: grid steps of the clip to the standard deviation of all noise in the sum.
            most: steps of the clip.

        Raises:
            PrivacyError: the modulus is too small for any grid.
        """
        for exponent in range(GRID_BITS, 3, -1):
            steps = 1 << exponent
            if steps <= most and clients * steps + TAIL * noise(steps) < 2 ** (bits - 1):
                return cls(clip, steps)
        raise PrivacyError(
            f"bits: noise and updates of {clients} clients do not fit into {bits} bits; take 64, or"
            " less noise"
        )

    def place(self, values: NDArray[np.float64]) -> tuple[Codes, bool]:
        """The clipped update in grid steps, of L2 norm at most `steps`; whether it was clipped."""
        # Scaled by its largest entry first: squares of huge entries would overflow.
        top = float(np.abs(values).max(initial=0.0))
        norm = top * float(np.linalg.norm(values / top)) if top else 0.0
        clipped = norm > self.clip
        factor = self.steps / max(norm, self.clip)
        codes = np.trunc(values * factor).astype(np.int64)
        # Rounding errors of the norm: checked in integers, which have none.
        while int(np.square(codes).sum()) > self.steps**2:
            factor *= 1 - 2.0**-20
            codes = np.trunc(values * factor).astype(np.int64)
        return codes, clipped

    def values(self, total: Codes) -> NDArray[np.float64]:
        """A sum of codes in the updates' units."""
        return total * (self.clip / self.steps)


class NoiseSource:
    """Noise that is drawn once per message, even if a run is killed and repeats the message.

    The noise follows from a secret of 32 random bytes and from everything that it hides: the same
    codes of the same sum get the same noise (a resumed run sends the very message that it had
    sent, which reveals nothing new), and anything else gets independent noise. Its stream is
    AES-256-CTR under a key by HKDF; whoever lacks the secret cannot tell it from random bits.

    It reveals nothing new as long as the same clients survive the repeated sum, which holds where
    drop-outs are simulated. Two sums over different survivors would differ by one client under its
    own part of the noise alone: a runtime with real drop-outs must repeat a sum as a new call.

    Attributes:
        secret: 32 bytes; with them the noise can be taken off, so a checkpoint that holds them is
            as confidential as the client's records.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = os.urandom(32) if secret is None else secret

    def draw(
        self, sigma: float, codes: Codes, *context: bytes, noise: NoiseName = "gaussian"
    ) -> Codes:
        """Noise of that scale for these codes in that sum."""
        parts = (b"noise", noise.encode(), repr(sigma).encode(), digest(codes.tobytes()), *context)
        return NOISES[noise].draw(sigma, len(codes), keystream(self.secret, *parts))


def keystream(secret: bytes, *context: bytes) -> RandomSource:
    """Bytes that nobody without the secret can tell from random ones: AES-256-CTR, key by HKDF.

    Args:
        secret: 32 bytes of the operating system's randomness.
        context: what the stream is for; another context gives an independent stream.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES256(derive(secret, *context)), modes.CTR(bytes(16))).encryptor()
    return lambda n: stream.update(bytes(n))


class Accountant:
    """Books every sum before its noise is drawn, and no sum twice.

    Args:
        options: of the handle.
        session: 16 random bytes that name the run.
        earlier: sums of the plan that earlier sessions of the run asked for.

    Raises:
        PrivacyError: the ledger's budget is in another unit.
    """

    def __init__(self, options: ClientPrivacy, session: bytes, earlier: int = 0) -> None:
        self._options = options
        self._earlier = earlier
        self._session = session.hex()
        budget = options.ledger.budget
        self.delta = options.delta if budget is None else budget.delta
        self._booked = {event.what for event in self._events()}
        self._fits = False
        if budget is not None and budget.adjacency != UNIT:
            raise PrivacyError(
                f"{options.ledger.path}: its budget is per {budget.adjacency.unit}, private sums"
                f" are per {UNIT.unit}; keep a ledger for each"
            )

    @property
    def booked(self) -> int:
        """Sums of this run in the books, those of its earlier sessions included."""
        return self._earlier + len(self._booked)

    def book(
        self, round_number: int, call: int, step: str, request: bytes, multiplier: float
    ) -> None:
        """Writes one sum into the ledger, unless the killed run that goes on already did.

        It is the same sum only if round, call, step and everything that was broadcast are the same.

        Raises:
            BudgetError: the ledger's budget would be exceeded; no noise was drawn.
            PrivacyError: more sums than planned.
        """
        asked = f"{step[:90]} {request.hex()[:16]}"
        what = f"round {round_number} sum {call} {asked} of run {self._session}"
        if what in self._booked:
            return
        if self.booked >= self._options.sums:
            raise PrivacyError(
                f"round {round_number}: {self._options.sums} private sums were planned and all are"
                " spent; plan more (ClientPrivacy.sums)"
            )
        noise = NOISES[self._options.noise].event(multiplier)
        self._options.ledger.spend(Event(what, UNIT, gaussian=noise))
        self._booked.add(what)

    def spent(self) -> Composition:
        """What the ledger's events of this unit cost together."""
        return self._options.ledger.get_epsilon(self.delta, UNIT)

    def _events(self) -> Sequence[Event]:
        mark = f" of run {self._session}"
        return [each for each in self._options.ledger.events if each.what.endswith(mark)]

    def check_plan(self) -> None:
        """Checks that all sums of the plan that are not booked yet fit into the budget; once.

        To be called before the first sum, when it is known which run goes on: what an earlier
        process booked for the same run must not count twice.

        Raises:
            BudgetError: they do not; nothing was spent.
        """
        budget = self._options.ledger.budget
        left = self._options.sums - self.booked
        if self._fits or budget is None or left <= 0:
            return
        plan = NOISES[self._options.noise].event(self._options.noise_multiplier, left)
        try:
            self._options.ledger.check(Event("planned", UNIT, gaussian=plan))
        except BudgetError as error:
            raise BudgetError(
                f"{left} sums at noise multiplier {self._options.noise_multiplier:g}: {error}; more"
                " noise or fewer rounds"
            ) from None
        self._fits = True


def statement(accountant: Accountant) -> str:
    """One line on what the books say, with the unit."""
    total = accountant.spent()
    return (
        f"epsilon {total.epsilon:.4g} at delta {total.delta:g} per {UNIT.unit}, after"
        f" {accountant.booked} private sums of this run and all else in the ledger ({total.rule})"
    )


class PrivateEncoding:
    """Clip, grid and noise of one federation.

    Args:
        options: of the handle.
        clients: that may be in a sum.
        bits: of the modulus.
    """

    def __init__(self, options: ClientPrivacy, clients: int, bits: int = 64) -> None:
        self._options = options
        self._bits = bits
        self._clients = clients
        self._noise = NOISES[options.noise]
        most = self._noise.largest / options.noise_multiplier
        self.grid = Grid.fitting(options.clip, clients, bits, self._widest, most)

    @property
    def kind(self) -> NoiseName:
        """Of the noise."""
        return self._noise.name

    def _widest(self, steps: int) -> float:
        # All clients may survive a sum whose parts were sized for one honest survivor.
        return self._options.noise_multiplier * steps * math.sqrt(self._clients)

    def central_sigma(self) -> float:
        """Of the noise that a trusted server adds, in grid steps."""
        return self._options.noise_multiplier * self.grid.steps

    def part_sigma(self, threshold: int) -> float:
        """Of one client's part where at least `threshold` clients will be left, in grid steps.

        Raises:
            PrivacyError: no honest client is sure to be left.
        """
        return self.central_sigma() / math.sqrt(self._honest(threshold))

    def part_multiplier(self, threshold: int, asked: int, dimension: int) -> float:
        """What the sum of the parts is worth; see `IntegerNoise.multiplier`."""
        sigma = self.part_sigma(threshold)
        honest = self._honest(threshold)
        return self._noise.multiplier(self.grid.steps, sigma, honest, asked, dimension)

    def central_multiplier(self, dimension: int) -> float:
        """What the server's noise is worth."""
        return self._noise.multiplier(self.grid.steps, self.central_sigma(), 1, 1, dimension)

    def _honest(self, threshold: int) -> int:
        honest = threshold - self._options.colluding
        if honest < 1:
            raise PrivacyError(
                f"colluding: {self._options.colluding} of at least {threshold} survivors leave no"
                " honest one to add noise; raise the threshold"
            )
        return honest

    def fixed_point(self) -> FixedPoint:
        """How codes with noise stand in the modulus."""
        return FixedPoint(self._options.clip, self._clients, self._bits)


def context_of(session: bytes, *parts: Any) -> bytes:
    """Bytes that name one sum of one run, for `NoiseSource.draw`."""
    return digest(session, *(str(part).encode() for part in parts))

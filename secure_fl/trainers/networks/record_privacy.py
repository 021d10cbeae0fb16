"""What a client promises of each of its records, the noise that keeps it, and its books.

The unit is one record's contribution, added or removed, while the number of records is public: it
is the client's weight in means and decides its sampling rate. (Replacing a record is two such
changes.) Everything that the promise rests on stays with the client: it calibrates the noise for
its own number of records, and its ledger and the secret of its noise are its own files.
"""

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
from scipy.optimize import brentq

from dp import Event, Gaussian, Ledger, Membership
from dp.calibration import noise_multiplier
from dp.exact import RandomSource
from dp.loss_distribution import gaussian_epsilon
from dp.storage import PRIVATE, write_aside
from secure_fl.crypto.keys import derive, digest
from secure_fl.federation import Client, PrivacyError
from secure_fl.federation.checkpoint import records_digest
from secure_fl.federation.privacy import keystream
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import Array, Model
from secure_fl.trainers.networks.promise import DPSGD

UNIT = Membership("record contribution")
Kind: TypeAlias = Literal["features", "steps"]
SECRET = 32
"""Bytes of the secret behind a client's noise."""


@dataclass(frozen=True)
class Plan:
    """What a client of that many records does in a round.

    Attributes:
        steps: local steps of a round and their noise, sampling at `steps.sample_rate`.
        features: release of the features' mean, or None.
    """

    steps: Gaussian
    features: Gaussian | None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Events of a round, in their order."""
        return ("steps",) if self.features is None else ("features", "steps")

    def event(self, kind: Kind) -> Gaussian:
        """The noise of an event of that kind.

        Raises:
            PrivacyError: the plan has none.
        """
        if kind == "steps":
            return self.steps
        if self.features is None:
            raise PrivacyError("plan: made without a release of features' means")
        return self.features

    def of(self, rounds: int) -> list[Gaussian]:
        """The events of so many rounds, at least 1."""
        return [_times(self.event(kind), rounds) for kind in self.kinds]


def _times(event: Gaussian, rounds: int) -> Gaussian:
    return Gaussian(event.noise_multiplier, event.sample_rate, event.steps * rounds)


def make_plan(records: int, training: LocalTraining, *, features: bool) -> Plan:
    """The least noise that keeps the promise of `training.privacy`.

    The sampling rate is batch size over records, rounded up to a thousandth, so that clients of
    about the same size share a calibration.

    Args:
        records: n of the client.
        training: with a promise.
        features: whether the features' mean is released in every round.
    """
    privacy = _promise(training)
    rate = min(1.0, math.ceil(1000 * training.batch_size / records) / 1000)
    steps = training.steps or training.epochs * math.ceil(1 / rate)
    released: tuple[Gaussian, ...] = ()
    if features:
        share = privacy.epsilon * privacy.feature_share
        sigma = noise_multiplier(share, privacy.delta, sample_rate=1.0, steps=privacy.rounds)
        released = (Gaussian(sigma, steps=privacy.rounds),)
    before = () if privacy.beside is None else (Gaussian(privacy.beside),)
    sigma = noise_multiplier(
        privacy.epsilon,
        privacy.delta,
        sample_rate=rate,
        steps=steps * privacy.rounds,
        beside=(*released, *before),
    )
    of_features = Gaussian(released[0].noise_multiplier) if released else None
    return Plan(Gaussian(sigma, rate, steps), of_features)


def economical_batch(records: int, privacy: DPSGD, steps: int) -> int:
    """Records of an expected batch, above which noise hardly falls and work grows.

    Noise in a mean gradient is the multiplier over the batch. A batch of one record in a thousand
    at a large epsilon has a multiplier below 1, where a step's own cost, not the sampling, decides:
    more epsilon then buys little. Steps of rate q have together about the cost of one Gaussian that
    moves by mu = q sqrt(steps (exp(1 / sigma^2) - 1)) (Bu, Dong, Long, Su 2020, theorem 5), so with
    a = mu / (q sqrt(steps)) the noise is a / sqrt(log(1 + a^2)) times that of steps that take all
    records. At the batch here a is 1: sigma is 1.2, and the noise 1.2 times the least. That
    chooses a batch; what is promised and booked is the accountant's.

    Args:
        records: n of the client.
        privacy: the promise.
        steps: local steps of a round.

    Returns:
        At least 1, at most `records`.
    """
    mu = brentq(lambda mu: gaussian_epsilon(mu, privacy.delta) - privacy.epsilon, 1e-6, 1e3)
    rate = mu / math.sqrt(steps * privacy.rounds)
    return max(1, math.ceil(min(1.0, rate) * records))


class Books:
    """A client's ledger and the secret of its noise, for one run.

    A run is known by what decides it: secret, records, model, training, the federation's seed and
    the machine's arithmetic. The same step of the same run has the same event, sample and noise; so
    a run that was killed and goes on repeats the very message that it may have sent, which tells
    nothing new and is not booked again. Anything else is booked, and its noise is independent.

    Args:
        client: with a ledger.
        model: that is trained.
        training: with a promise.

    Raises:
        PrivacyError: the client has no ledger.
    """

    def __init__(self, client: Client, model: Model, training: LocalTraining) -> None:
        if client.ledger is None:
            raise PrivacyError(
                f'client "{client.name}": has no ledger to book record-level privacy in; give it'
                " one (Client.ledger)"
            )
        self._client, self._privacy = client, _promise(training)
        self._ledger = client.ledger
        self._secret = _secret(client.ledger)
        if "records digest" not in client.cache:
            client.cache["records digest"] = records_digest([client])
        setting = (model, training, client.seed, client.cache["records digest"], _arithmetic())
        self._run = derive(self._secret, b"run", repr(setting).encode())[:8]

    @property
    def _mark(self) -> str:
        return f" of run {self._run.hex()}"

    @cached_property
    def _booked(self) -> list[str]:
        return [e.what for e in self._ledger.events if e.what.endswith(self._mark)]

    def request(self, kind: str, *parts: Array | str) -> bytes:
        """What names one message of this round: everything that it depends on."""
        given = (part.encode() if isinstance(part, str) else part.tobytes() for part in parts)
        return digest(self._run, kind.encode(), str(self._client.round).encode(), *given)

    def stream(self, request: bytes, *context: bytes) -> RandomSource:
        """Randomness of that message; its key follows from the client's secret."""
        return keystream(self._secret, request, *context)

    def book(self, kind: Kind, plan: Plan, request: bytes) -> None:
        """Writes a message into the ledger before its noise is drawn, unless it is there already.

        Before the first of a run the whole plan must fit, so that no run ends half-way for want of
        budget, whenever its client joins in.

        Raises:
            BudgetError: the ledger's budget would be exceeded.
            PrivacyError: more rounds than planned.
        """
        if not self._booked:
            self.check(plan)
        what = f"round {self._client.round} {kind} {request.hex()[:16]}{self._mark}"
        if what in self._booked:
            return
        if self._rounds_booked(kind) >= self._privacy.rounds:
            raise PrivacyError(
                f'client "{self._client.name}": {self._privacy.rounds} private rounds were planned'
                " and all are spent; plan more (DPSGD.rounds), or give another run another seed"
            )
        self._ledger.spend(Event(what, UNIT, gaussian=plan.event(kind)))

    def check(self, plan: Plan, *before: Event) -> None:
        """Checks that all planned rounds that are not booked yet fit into the budget.

        Args:
            plan: of the rounds.
            before: what is to be booked before them.

        Raises:
            BudgetError: they do not; nothing was spent.
            InputError: the budget is in another unit.
        """
        planned = [*before]
        for kind in plan.kinds:
            # A run that was killed in between has booked one and not yet the other.
            left = self._privacy.rounds - self._rounds_booked(kind)
            if left > 0:
                planned.append(Event("planned", UNIT, gaussian=_times(plan.event(kind), left)))
        self._ledger.check(*planned)

    def _rounds_booked(self, kind: Kind) -> int:
        return sum(what.split()[2] == kind for what in self._booked)


def privacy_spent(ledgers: Sequence[Ledger], delta: float) -> str:
    """One line: the largest epsilon that a client's books say, with its unit."""
    worst = max((each.finite_epsilon(delta, UNIT) for each in ledgers), key=lambda c: c.epsilon)
    return (
        f"epsilon {worst.epsilon:.4g} at delta {worst.delta:g} per {UNIT.unit}, the largest of"
        f" {len(ledgers)} clients ({worst.rule})"
    )


def _promise(training: LocalTraining) -> DPSGD:
    if training.privacy is None:
        raise PrivacyError("local training: no promise to keep; set LocalTraining.privacy")
    return training.privacy


def _arithmetic() -> tuple[str, ...]:
    # Another machine or library may round differently: its messages are others. So do runs of
    # versions that took as many threads as there were.
    kind = torch.backends.cpu.get_cpu_capability()
    return (torch.__version__, platform.machine(), kind, "one thread")


def _secret(ledger: Ledger) -> bytes:
    """32 random bytes beside the ledger, readable by its owner alone; made where there are none."""
    path = ledger.path.with_name(ledger.path.name + ".secret")
    if not path.exists():
        aside = write_aside(path, os.urandom(SECRET), PRIVATE)
        try:
            # Whole or not at all, and never over one that is there.
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            aside.unlink()
    found = path.read_bytes()
    if len(found) != SECRET:
        raise PrivacyError(
            f"{path}: found {len(found)} bytes, expected the {SECRET} of a client's secret; restore"
            " a copy, or remove it (a run that goes on is then booked anew)"
        )
    return found

"""The contributor: fetches queries that are sealed to it, and answers with encrypted codes.

It calls the evaluator and opens no port to anybody. What its owner insists on, whatever a querier
asks, is its `ContributorPolicy`.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from attrs import Factory, frozen
from numpy.typing import NDArray

import fhe
from fhe.envelope import load_json
from kahm.errors import InputError as MeasureError
from secure_fl.errors import FormatError, InputError, ProtocolError, QuorumError, ServiceError
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.heads.codes import measure_codes
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.masked import Told, VoteCoding
from secure_fl.service.answers_book import AnswersBook
from secure_fl.service.channel import Channel
from secure_fl.service.declining import seal_reason
from secure_fl.service.held_setups import HeldSetUps
from secure_fl.service.likeness import count_before, first_pair
from secure_fl.service.masked_offer import Keys, Offer
from secure_fl.service.masked_part import DroppedOut, MaskedPart
from secure_fl.service.masked_words import (
    audit_parameters,
    known_secret,
    neighbours,
    refuse_known,
)
from secure_fl.service.members import Member
from secure_fl.service.metrics import Metrics
from secure_fl.service.outbox import DAY, Outbox
from secure_fl.service.sealed_query import (
    BATCH,
    Facts,
    SealedQuery,
    open_query,
    open_salted_query,
)
from secure_fl.service.watch import DriftWatch

log = logging.getLogger("securefl.service")

WAIT = 20.0
"""Seconds that one call waits for a batch."""
_FINAL = (404, 409, 410, 413, 422)
"""Signed words of the evaluator after which this contribution will never be taken."""


@frozen(kw_only=True)
class ContributorPolicy:
    """What a contributor's owner insists on.

    Attributes:
        quorum: least quorum of a batch that it answers; an answer of few contributors says much
            about the records of each.
        daily_queries: queries answered in any 24 hours; who may ask without limit learns whose
            records a head was made of.
        near: two queries whose distance is at most this part of the larger norm are nearly the
            same; a batch with two such ones is declined.
        repeats: times that nearly the same query is answered in any 24 hours, in batches of its
            own: each time a querier with an accomplice may learn a bit of this client's code.
        degree: of the rule masked, the least number of contributors that it masks with, 0 for all
            others. On a ring fewer of all contributors may collude, and a cheating evaluator opens
            parts of a sum (`secure_fl.service.masked_words.sum_parameters`).
    """

    quorum: int = 2
    daily_queries: int = 10_000
    near: float = 1e-3
    repeats: int = 3
    degree: int = 0


def least_quorum(manifest: Manifest) -> int:
    """The least quorum that a contributor takes by default.

    An answer of one contributor is a statement about its records; under the rules of sums the
    quorum is the sum's threshold, on which rests how many may collude.
    """
    clients = len(manifest.clients)
    return default_threshold(clients) if manifest.summed else min(2, clients)


class Declined(Exception):  # noqa: N818  # a decision, not a defect
    """A batch that is not answered; the message says why."""


@frozen
class Contributor:
    """A client that answers queries.

    Attributes:
        member: its name and secrets.
        manifest: of the federation.
        head: its own.
        key: the querier's public key; None of the rule masked, which has none.
        terms: its owner's.
        outbox: its memory.
        metrics: counters.
        watch: for drift, or None.
        answers: books of what answers tell, of the rule votes; None of the others.
        setups: keys of masked sums to come.
    """

    member: Member
    manifest: Manifest
    head: Head
    key: fhe.PublicKey | None
    terms: ContributorPolicy
    outbox: Outbox
    metrics: Metrics
    watch: DriftWatch | None = None
    answers: AnswersBook | None = None
    setups: HeldSetUps = Factory(HeldSetUps)

    @property
    def public(self) -> fhe.PublicKey:
        """The querier's public key, of a federation whose rule has one."""
        assert self.key is not None
        return self.key

    def part(self, data: bytes, batch: str, now: float, keys: Keys | None = None) -> MaskedPart:
        """This client's part in the masked sum of a sealed query; the batch is remembered.

        Args, Raises: as `answer`, with the keys that the evaluator names, None for new ones; also
            where others are told something else, no sum has the quorum, or the keys are not here.
        """
        try:
            query = SealedQuery.from_bytes(data, self.manifest)
            self._check(query.facts, batch, now)
            self._check_ring(query.facts)
            opened = open_salted_query(query, self.member, self.manifest.n_features)
            features, audit, salt = opened
            self._check_likeness(features, now)
            measures = self.head.measures(features, self.manifest)
            codes = measure_codes(measures, self.manifest)
            if audit is not None:
                refuse_known(self.manifest)
                position = self.manifest.client_index(self.member.name)
                codes = audit.mix(codes, position, audit_parameters(self.manifest))
            told = Told(self.manifest.fingerprint, batch, features, salt, known_secret(audit))
            parts = query.facts, codes, told, self.setups, keys
            part = MaskedPart(self.member, self.manifest, *parts)
            self._book(part, query.facts)
        except (InputError, fhe.InputError, MeasureError, ProtocolError) as error:
            raise Declined(str(error)) from None
        # Before anything leaves: whatever happens from here on, it takes part once.
        self.outbox.keep(batch, query.facts.queries, None, now, features)
        if self.watch is not None:
            self.watch.seen(measures, now)
        return part

    def _book(self, part: MaskedPart, facts: Facts) -> None:
        if isinstance(part.coding, VoteCoding):
            assert self.answers is not None
            self.answers.spend(part.coding, facts.batch, facts.queries)

    def answer(self, data: bytes, batch: str, now: float) -> bytes:
        """The contribution to a sealed query; kept until it is delivered.

        Args:
            data: the sealed query, as the evaluator handed it over.
            batch: that it was asked for.
            now: seconds since 1970.

        Raises:
            Declined: it is not the querier's, not for this client, answered before, expired, or
                against the terms.
        """
        try:
            query = SealedQuery.from_bytes(data, self.manifest)
            self._check(query.facts, batch, now)
            features, audit = open_query(query, self.member, self.manifest.n_features)
            self._check_likeness(features, now)
            measures = self.head.measures(features, self.manifest)
            codes = measure_codes(measures, self.manifest)
            position = self.manifest.client_index(self.member.name)
            if audit is not None:
                codes = audit.mix(codes, position, self.public.parameters)
        except (InputError, fhe.InputError, MeasureError) as error:
            raise Declined(str(error)) from None
        made = fhe.contribute(
            codes,
            self.public,
            contributor=position,
            name=self.member.name,
            federation=self.manifest.fingerprint,
            batch=batch,
        ).to_bytes()
        self.outbox.keep(batch, query.facts.queries, made, now, features)
        if self.watch is not None:
            self.watch.seen(measures, now)
        return made

    def _check_likeness(self, features: NDArray[np.float32], now: float) -> None:
        terms = self.terms
        pair = first_pair(features, terms.near)
        if pair is not None:
            raise Declined(
                f"queries {pair[0]} and {pair[1]} are nearly the same, which this client's terms"
                f" ({terms.near:g} of their norm) do not allow in one batch; ask once"
            )
        earlier = self.outbox.asked_since(now - DAY, features.shape[1])
        counts = count_before(features, earlier, terms.near)
        often = int(counts.argmax())
        if counts[often] >= terms.repeats:
            raise Declined(
                f"query {often} was answered {counts[often]} times in 24 hours, this client's terms"
                f" allow {terms.repeats}"
            )

    def _check_ring(self, facts: Facts) -> None:
        near = neighbours(self.manifest, facts.degree)
        least = neighbours(self.manifest, self.terms.degree)
        if near < least:
            raise Declined(
                f"each contributor would mask with {near} others, this client's terms ask for"
                f" {least} (--min-degree)"
            )

    def _check(self, facts: Facts, batch: str, now: float) -> None:
        asked = self.outbox.queries_since(now - DAY) + facts.queries
        checks = (
            (facts.batch == batch, "a sealed query of another batch"),
            (facts.contributor == self.member.name, "sealed to another client"),
            (
                self.key is None or facts.public == self.key.fingerprint,
                "another public key than this client has",
            ),
            (now < facts.expires, "expired"),
            (not self.outbox.answered(batch), "answered before"),
            (
                facts.quorum >= self.terms.quorum,
                f"quorum {facts.quorum}, this client's terms ask for {self.terms.quorum}",
            ),
            (
                asked <= self.terms.daily_queries,
                f"{asked} queries in 24 hours, this client's terms allow"
                f" {self.terms.daily_queries}",
            ),
        )
        for fine, reason in checks:
            if not fine:
                raise Declined(reason)


def answer_listed(
    contributor: Contributor,
    channel: Channel,
    stop: threading.Event,
    busy: threading.Lock,
    told: Callable[[bool], None],
) -> None:
    """Waits for batches once, and answers those that are there; a turn of the loop.

    An evaluator that is away is no failure of this process: it is asked again in the next turn.

    Args:
        contributor: that answers.
        channel: to the evaluator.
        stop: set to end after the batch at hand.
        busy: held while a batch is at hand.
        told: hears after every call whether the evaluator could be reached.
    """
    try:
        if contributor.key is None:
            work = _offered(contributor, channel, stop)
        else:
            work = _listed(contributor, channel)
        told(True)
        for serve in work:
            with busy:
                if stop.is_set():
                    return
                serve()
    except ServiceError as error:
        told(False)
        log.warning("%s", error)
        stop.wait(2.0)


def _listed(contributor: Contributor, channel: Channel) -> list[Callable[[], None]]:
    """What serves the batches that wait for an encrypted contribution."""
    listed = channel.expect("GET", f"/asked?wait={WAIT:.0f}", what="asking for batches")
    return [partial(_serve, contributor, channel, batch) for batch in _names(listed)]


def _offered(
    contributor: Contributor, channel: Channel, stop: threading.Event
) -> list[Callable[[], None]]:
    """What serves the next masked sum, if there is one."""
    path = f"/sums?wait={WAIT:.0f}&holds={','.join(contributor.setups.names)}"
    found = channel.granted("GET", path, what="asking for sums")
    if found.status == 202:
        return []
    try:
        offer = Offer.from_bytes(found.content)
    except FormatError as error:
        raise ServiceError(f"the evaluator's offer cannot be read: {error}") from None
    return [partial(_take_part, contributor, channel, offer, stop)]


def _names(listed: bytes) -> list[str]:
    try:
        names = load_json(listed)["batches"]
        # They become parts of paths.
        if all(BATCH.fullmatch(name) for name in names):
            return list(names)
    except (ValueError, KeyError, TypeError):
        pass
    raise ServiceError("the evaluator's list of batches cannot be read")


def _take_part(
    contributor: Contributor, channel: Channel, offer: Offer, stop: threading.Event
) -> None:
    with _declining(contributor, channel, offer.batch):
        part = contributor.part(offer.sealed, offer.batch, time.time(), offer.keys)
        part.run(channel, stop)
        contributor.metrics.contributions.inc()


def _serve(contributor: Contributor, channel: Channel, batch: str) -> None:
    made = contributor.outbox.undelivered(batch)
    path = f"/batches/{batch}"
    if made is None:
        sealed = channel.heard("GET", f"{path}/query", what="asking for a query")
        if sealed.status != 200:
            # Closed or expired since it was listed.
            return
        with _declining(contributor, channel, batch):
            made = contributor.answer(sealed.content, batch, time.time())
    if made is None:
        return
    sent = channel.heard("PUT", f"{path}/contribution", made, what="sending a contribution")
    if sent.status >= 300 and sent.status not in _FINAL:
        raise ServiceError(
            f"the evaluator did not take a contribution ({sent.status}); it is sent again"
        )
    contributor.outbox.delivered(batch)
    if sent.status < 300:
        contributor.metrics.contributions.inc()
    elif sent.status not in (404, 409):
        # Closed and expired batches are nothing to speak of; this one will not be taken later.
        log.error("the evaluator did not take a contribution (%d)", sent.status)
        _decline(contributor, channel, batch, "its contribution was refused; see its log")


@contextmanager
def _declining(contributor: Contributor, channel: Channel, batch: str) -> Iterator[None]:
    """Declines a batch that cannot be answered, with the reason."""
    try:
        yield
    except (Declined, DroppedOut, ProtocolError, QuorumError) as reason:
        log.warning("a batch is declined: %s", reason)
        _decline(contributor, channel, batch, str(reason))
    except (sqlite3.Error, OSError):
        # The machine's trouble and not the batch's: the turn fails, and is tried again.
        raise
    except ServiceError:
        # The evaluator is away: of a sum this client has dropped out.
        raise
    except Exception as error:
        # One batch that cannot be answered must not keep the others from it.
        log.error("a batch cannot be answered: %s", type(error).__name__)
        _decline(contributor, channel, batch, "this client failed over it; see its log")


def _decline(contributor: Contributor, channel: Channel, batch: str, reason: str) -> None:
    contributor.metrics.refusals.labels("declined").inc()
    sealed = seal_reason(contributor.member, contributor.manifest, batch, reason)
    channel.heard("DELETE", f"/batches/{batch}/query", sealed, what="declining a batch")

"""The contributor: fetches queries that are sealed to it, and answers with encrypted codes.

It calls the evaluator and opens no port to anybody. What its owner insists on, whatever a querier
asks, is its `Terms`.
"""

import logging
import threading
import time
from collections.abc import Callable

from attrs import frozen

import fhe
from fhe.envelope import load_json
from kahm.errors import InputError as MeasureError
from secure_fl.errors import InputError, ServiceError
from secure_fl.heads.codes import head_codes
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.service.channel import Channel
from secure_fl.service.members import Member
from secure_fl.service.metrics import Metrics
from secure_fl.service.outbox import DAY, Outbox
from secure_fl.service.sealed_query import BATCH, Facts, SealedQuery, open_query

log = logging.getLogger("securefl.service")

WAIT = 20.0
"""Seconds that one call waits for a batch."""


@frozen(kw_only=True)
class Terms:
    """What a contributor's owner insists on.

    Attributes:
        quorum: least quorum of a batch that it answers; an answer of few contributors says much
            about the records of each.
        daily_queries: queries answered in any 24 hours; who may ask without limit learns whose
            records a head was made of.
    """

    quorum: int = 2
    daily_queries: int = 10_000


class Declined(Exception):  # noqa: N818  # a decision, not a defect
    """A batch that is not answered; the message says why."""


@frozen
class Contributor:
    """A client that answers queries.

    Attributes:
        member: its name and secrets.
        manifest: of the federation.
        head: its own.
        public: the querier's public key.
        terms: its owner's.
        outbox: its memory.
        metrics: counters.
    """

    member: Member
    manifest: Manifest
    head: Head
    public: fhe.PublicKey
    terms: Terms
    outbox: Outbox
    metrics: Metrics

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
            codes = head_codes(self.head, features, self.manifest)
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
        self.outbox.keep(batch, query.facts.queries, made, now)
        return made

    def _check(self, facts: Facts, batch: str, now: float) -> None:
        asked = self.outbox.queries_since(now - DAY) + facts.queries
        checks = (
            (facts.batch == batch, "a sealed query of another batch"),
            (facts.contributor == self.member.name, "sealed to another client"),
            (facts.public == self.public.fingerprint, "another public key than this client has"),
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


def answer_batches(
    contributor: Contributor,
    channel: Channel,
    stop: threading.Event,
    busy: threading.Lock,
    told: Callable[[bool], None],
) -> None:
    """Answers batch after batch until it is told to stop.

    Args:
        contributor: that answers.
        channel: to the evaluator.
        stop: set to end after the batch at hand.
        busy: held while a batch is at hand.
        told: hears after every call whether the evaluator could be reached.
    """
    while not stop.is_set():
        try:
            listed = channel.expect("GET", f"/asked?wait={WAIT:.0f}", what="asking for batches")
            told(True)
            for batch in _names(listed):
                with busy:
                    if stop.is_set():
                        return
                    _serve(contributor, channel, batch)
        except ServiceError as error:
            told(False)
            log.warning("%s", error)
            stop.wait(2.0)


def _names(listed: bytes) -> list[str]:
    try:
        names = load_json(listed)["batches"]
        # They become parts of paths.
        if all(BATCH.fullmatch(name) for name in names):
            return list(names)
    except (ValueError, KeyError, TypeError):
        pass
    raise ServiceError("the evaluator's list of batches cannot be read")


def _serve(contributor: Contributor, channel: Channel, batch: str) -> None:
    made = contributor.outbox.undelivered(batch)
    path = f"/batches/{batch}"
    if made is None:
        sealed = channel.call("GET", f"{path}/query")
        if sealed.status != 200:
            # Closed or expired since it was listed.
            return
        try:
            made = contributor.answer(sealed.content, batch, time.time())
        except Declined as reason:
            log.warning("a batch is declined: %s", reason)
            contributor.metrics.refusals.labels("declined").inc()
            channel.call("DELETE", f"{path}/query")
            return
    sent = channel.call("PUT", f"{path}/contribution", made)
    contributor.outbox.delivered(batch)
    if sent.status < 300:
        contributor.metrics.contributions.inc()
    elif sent.status not in (404, 409):
        # Closed and expired batches are nothing to speak of; this one will not be taken later.
        log.error("the evaluator did not take a contribution (%d)", sent.status)
        channel.call("DELETE", f"{path}/query")

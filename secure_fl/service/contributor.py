"""The contributor: opens queries that are sealed to it, and answers with encrypted codes.

It calls the evaluator and opens no port to anybody. What its owner insists on, whatever a querier
asks, is its `ContributorPolicy`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

import fhe
from fhe.batched.contributor import write_batched
from fhe.envelope import PRIVATE
from kahm.errors import InputError as MeasureError
from secure_fl.errors import InputError, ProtocolError
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.heads.codes import measure_codes
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.masked import Told, VoteCoding
from secure_fl.service.answers_book import AnswersBook
from secure_fl.service.held_setups import HeldSetUps
from secure_fl.service.likeness import count_before, first_pair
from secure_fl.service.masked_offer import Keys
from secure_fl.service.masked_part import MaskedPart
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
    Facts,
    SealedQuery,
    open_query,
    open_salted_query,
)
from secure_fl.service.shares import Share, shares_of
from secure_fl.service.watch import DriftWatch


@frozen(kw_only=True)
class ContributorPolicy:
    """What a contributor's owner insists on.

    Attributes:
        quorum: least quorum of a batch that it answers; an answer of few contributors says much
            about the records of each.
        daily_queries: queries answered in any 24 hours, to all queriers together; who may ask
            without limit learns whose records a head was made of.
        quotas: of these, by querier; the others have equal parts of what is left
            (`secure_fl.service.shares`).
        near: two queries whose distance is at most this part of the larger norm are nearly the
            same; a batch with two such ones is declined.
        repeats: times that nearly the same query is answered in any 24 hours, in batches of its
            own, to all queriers together, each of whom has an equal part: each time a querier with
            an accomplice may learn a bit of this client's code.
        degree: of the rule masked, the least number of contributors that it masks with, 0 for all
            others. On a ring fewer of all contributors may collude, and a cheating evaluator opens
            parts of a sum (`secure_fl.service.masked_words.sum_parameters`).
    """

    quorum: int = 2
    daily_queries: int = 10_000
    quotas: Mapping[str, int] = field(factory=dict)
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
        keys: public keys of the queriers that are answered, by name; empty of the rule masked,
            which has none.
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
    keys: Mapping[str, fhe.AnyPublicKey]
    terms: ContributorPolicy
    outbox: Outbox
    metrics: Metrics
    watch: DriftWatch | None = None
    answers: AnswersBook | None = None
    setups: HeldSetUps = Factory(HeldSetUps)

    @property
    def shares(self) -> dict[str, Share]:
        """What each querier may ask.

        Raises:
            InputError: the terms leave one with nothing.
        """
        terms = self.terms
        parts = terms.daily_queries, terms.repeats, terms.quotas
        return shares_of(*parts, self.manifest.queriers)

    def asked(self, now: float) -> dict[str, tuple[int, int]]:
        """Of each querier the queries answered in the last 24 hours, and how many it may ask."""
        since = now - DAY
        return {
            name: (self.outbox.queries_since(since, name), share.queries)
            for name, share in self.shares.items()
        }

    def part(self, data: bytes, batch: str, now: float, keys: Keys | None = None) -> MaskedPart:
        """This client's part in the masked sum of a sealed query; the batch is remembered.

        Args, Raises: as `answer`, with the keys that the evaluator names, None for new ones; also
            where others are told something else, no sum has the quorum, or the keys are not here.
        """
        with self._declining(data) as query:
            self._check(query.facts, batch, now)
            self._check_ring(query.facts)
            opened = open_salted_query(query, self.member, self.manifest.n_features)
            features, audit, salt = opened
            asks = query.facts.querier
            self._check_likeness(features, now, asks)
            measures = self.head.measures(features, self.manifest)
            codes = measure_codes(measures, self.manifest)
            if audit is not None:
                refuse_known(self.manifest)
                position = self.manifest.client_index(self.member.name)
                codes = audit.mix(codes, position, audit_parameters(self.manifest))
            told = Told(self.manifest.fingerprint, batch, features, salt, known_secret(audit), asks)
            parts = query.facts, codes, told, self.setups, keys
            part = MaskedPart(self.member, self.manifest, *parts)
            self._book(part, query.facts)
        # Before anything leaves: whatever happens from here on, it takes part once.
        self._keep(query.facts, None, now, features, measures)
        return part

    @contextmanager
    def _declining(self, data: bytes) -> Iterator[SealedQuery]:
        """The sealed query that a block works on; what is found wrong with it declines it."""
        try:
            yield SealedQuery.from_bytes(data, self.manifest)
        except (InputError, fhe.InputError, MeasureError, ProtocolError) as error:
            raise Declined(str(error)) from None

    def _keep(
        self,
        facts: Facts,
        made: bytes | str | None,
        now: float,
        features: NDArray[np.float32],
        measures: NDArray[np.floating[Any]],
    ) -> None:
        self.outbox.keep(facts.batch, facts.queries, made, now, features, facts.querier)
        self.metrics.answered.labels(facts.querier).inc(facts.queries)
        if self.watch is not None:
            self.watch.seen(measures, now)

    def _book(self, part: MaskedPart, facts: Facts) -> None:
        if isinstance(part.coding, VoteCoding):
            assert self.answers is not None
            self.answers.spend(part.coding, facts.batch, facts.queries)

    def answer(self, data: bytes, batch: str, now: float) -> bytes | Path:
        """The contribution to a sealed query, of engine bgv its file; kept until it is delivered.

        Args:
            data: the sealed query, as the evaluator handed it over.
            batch: that it was asked for.
            now: seconds since 1970.

        Raises:
            Declined: it is not the querier's, not for this client, answered before, expired, or
                against the terms.
        """
        with self._declining(data) as query:
            self._check(query.facts, batch, now)
            public = self.keys[query.facts.querier]
            features, audit = open_query(query, self.member, self.manifest.n_features)
            self._check_likeness(features, now, query.facts.querier)
            measures = self.head.measures(features, self.manifest)
            codes = measure_codes(measures, self.manifest)
            if audit is not None:
                position = self.manifest.client_index(self.member.name)
                codes = audit.mix(codes, position, public.parameters)
        made = self._encrypted(codes, batch, public)
        self._keep(query.facts, made, now, features, measures)
        kept = self.outbox.undelivered(batch)
        assert kept is not None
        return kept

    def _encrypted(
        self, codes: NDArray[np.int64], batch: str, public: fhe.AnyPublicKey
    ) -> bytes | str:
        """A contribution, or the digest of its file."""
        facts: Any = {
            "contributor": self.manifest.client_index(self.member.name),
            "name": self.member.name,
            "federation": self.manifest.fingerprint,
            "batch": batch,
        }
        if isinstance(public, fhe.BatchedPublicKey):
            return self.outbox.made(
                lambda path: write_batched(path, codes, public, mode=PRIVATE, **facts)
            )
        return fhe.contribute(codes, public, **facts).to_bytes()

    def _check_likeness(self, features: NDArray[np.float32], now: float, querier: str) -> None:
        terms, allowed = self.terms, self.shares[querier].repeats
        pair = first_pair(features, terms.near)
        if pair is not None:
            raise Declined(
                f"queries {pair[0]} and {pair[1]} are nearly the same, which this client's terms"
                f" ({terms.near:g} of their norm) do not allow in one batch; ask once"
            )
        earlier = self.outbox.asked_since(now - DAY, features.shape[1], querier)
        counts = count_before(features, earlier, terms.near)
        often = int(counts.argmax())
        if counts[often] >= allowed:
            raise Declined(
                f"query {often} was answered {counts[often]} times in 24 hours, this client's terms"
                f" allow {allowed}"
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
        asked = self.outbox.queries_since(now - DAY, facts.querier) + facts.queries
        allowed, key = self.shares[facts.querier].queries, self.keys.get(facts.querier)
        checks = (
            (facts.batch == batch, "a sealed query of another batch"),
            (facts.contributor == self.member.name, "sealed to another client"),
            (
                self.manifest.summed or key is not None,
                f"this client has no public key of the querier {facts.querier!r}",
            ),
            (
                key is None or facts.public == key.fingerprint,
                "another public key than this client has",
            ),
            (now < facts.expires, "expired"),
            (not self.outbox.answered(batch), "answered before"),
            (
                facts.quorum >= self.terms.quorum,
                f"quorum {facts.quorum}, this client's terms ask for {self.terms.quorum}",
            ),
            (
                asked <= allowed,
                f"{asked} queries in 24 hours, this client's terms allow {allowed}",
            ),
        )
        for fine, reason in checks:
            if not fine:
                raise Declined(reason)

"""Parties played by the tests: signed requests, whole or spoilt, to a running evaluator."""

import base64
import json
import secrets
import time

import attrs
import httpx

import fhe
from fhe.audit import Audit
from secure_fl.demo.service_parties import IDENTITY, PASSPHRASE, Deployment
from secure_fl.service.channel import RECIPIENT, Channel
from secure_fl.service.contributor import ContributorPolicy
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.members import Member, read_member
from secure_fl.service.querier import BatchTerms, Querier
from secure_fl.service.sealed_query import Facts, seal_query
from secure_fl.service.signing import SCHEME, new_request, signed


class Players:
    """All parties of a deployment but the evaluator.

    Args:
        made: the federation.
        running: its deployment.
        asks: the querier that is played.
    """

    def __init__(self, made, running: Deployment, asks: str = "querier") -> None:
        self.made, self.running, self.asks = made, running, asks
        self.manifest = made.manifest
        # Without TLS: no certificates need to be loaded.
        self._http = httpx.Client(verify=False, timeout=60)
        self._channels: dict[str, Channel] = {}
        self.secret = fhe.load_secret_keys(running.folder / asks, PASSPHRASE)

    def member(self, name: str) -> Member:
        return read_member(self.running.folder / name / IDENTITY, name, self.manifest)

    def channel(self, name: str) -> Channel:
        if name not in self._channels:
            self._channels[name] = self.new_channel(name)
        return self._channels[name]

    def new_channel(self, name: str) -> Channel:
        return Channel(self.running.url(), self.member(name), self.manifest)

    def contributor(self, name: str, **terms):
        folder = self.running.folder / name
        return load_contributor(
            folder,
            name,
            folder,
            folder / IDENTITY,
            folder / "state",
            ContributorPolicy(**{"repeats": 1000, **terms}),
        )

    def querier(self) -> Querier:
        public = fhe.load_public_key(self.running.folder / self.asks)
        return Querier(self.member(self.asks), self.manifest, public, self.channel(self.asks))

    def open(self, queries, audit: Audit | None = None, **asking) -> str:
        """Opens a batch of the federation's queries; returns its name."""
        batch = secrets.token_hex(8)
        self.querier().open(batch, self.made.queries[queries], audit, BatchTerms(**asking))
        return batch

    def contribute(self, name: str, batch: str, **terms) -> bytes:
        """Answers a batch as a client does; returns what was sent."""
        channel, contributor = self.channel(name), self.contributor(name, **terms)
        sealed = channel.expect("GET", f"/batches/{batch}/query", what="query")
        made = contributor.answer(sealed, batch, time.time())
        contributor.outbox.close()
        channel.expect("PUT", f"/batches/{batch}/contribution", made, what="contribution")
        return made

    def fetch(self, batch: str, audit: Audit | None = None):
        return self.querier().fetch(batch, self.secret, audit, on_status=lambda status: None)

    def status(self, batch: str) -> dict:
        content = self.channel(self.asks).expect("GET", f"/batches/{batch}", what="status")
        return json.loads(content)

    def opening(self, batch: str, rows, **changes) -> bytes:
        """The body that opens a batch, for requests by hand."""
        features = self.made.queries[rows]
        public = fhe.load_public_key(self.running.folder / self.asks).fingerprint
        facts = Facts(
            federation=self.manifest.fingerprint,
            batch=batch,
            contributor="",
            public=public,
            queries=len(features),
            quorum=3,
            expires=time.time() + 600,
            querier=self.asks,
        )
        sealed = {}
        for name in self.manifest.clients:
            own = attrs.evolve(facts, contributor=name)
            query = seal_query(own, features, None, self.member(self.asks), self.manifest)
            sealed[name] = base64.b64encode(query.to_bytes()).decode()
        return json.dumps(
            {
                "queries": facts.queries,
                "quorum": facts.quorum,
                "patience": 0.0,
                "expires": facts.expires,
                "sealed": sealed,
                **changes,
            }
        ).encode()

    def send(
        self, name: str, method: str, path: str, body: bytes = b"", *, sent=None, claims=None
    ) -> httpx.Response:
        """One request by hand.

        Args:
            name: member that signs.
            method, path, body: as they are signed.
            sent: other bytes (or an iterator of them) to send in place of the body.
            claims: members of the claims to change before they are signed.
        """
        target = f"/v1/{self.manifest.fingerprint}{path}"
        member = self.member(name)
        request = new_request(member, RECIPIENT, self.manifest.fingerprint, method, target, body)
        token = signed(member, attrs.evolve(request, **(claims or {})))
        return self.post(method, target, token, body if sent is None else sent)

    def post(self, method: str, target: str, token: str, content) -> httpx.Response:
        return self._http.request(
            method,
            self.running.url() + target,
            content=content,
            headers={"Authorization": f"{SCHEME} {token}"},
        )

"""A querier: seals a batch to every contributor, waits, and reads the answers."""

import base64
import contextlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

import fhe
from fhe.audit import Audit
from fhe.engines import answer_of
from fhe.envelope import PRIVATE, load_json, write_atomic
from secure_fl.errors import InputError, ServiceError
from secure_fl.heads.manifest import Manifest
from secure_fl.service.channel import Channel
from secure_fl.service.declining import open_reason
from secure_fl.service.members import Member
from secure_fl.service.sealed_query import BATCH, Facts, seal_query

WAIT = 20.0
"""Seconds that one call waits for news."""

OnStatus = Callable[[Mapping[str, Any]], None]
Spend = Callable[[bytes], Audit]
log = logging.getLogger("securefl.service")


def ignored(status: Mapping[str, Any]) -> None:
    """Hears nothing."""


@frozen(kw_only=True)
class BatchTerms:
    """How a batch is to be answered.

    Attributes:
        quorum: contributors that an answer needs at least; None for all.
        patience: seconds to wait for more than the quorum.
        lifetime: seconds until the batch expires.
        without: a client that is not asked, or "".
        degree: of the rule masked, contributors that each masks with; 0 for all others.
    """

    quorum: int | None = None
    patience: float = 60.0
    lifetime: float = 3600.0
    without: str = ""
    degree: int = 0


@frozen
class Answered:
    """The answers of a batch.

    Attributes:
        classes: codes, shape (queries,), known answers taken out.
        present: clients that they rest on.
    """

    classes: NDArray[np.int64]
    present: tuple[str, ...]


@frozen
class Received:
    """An answer as it came; nothing of it is read yet.

    Attributes:
        content: the evaluator's bytes.
        present: clients that it rests on, as the evaluator says.
    """

    content: bytes
    present: tuple[str, ...]


Keep = Callable[[Received], None]


@frozen
class Querier:
    """A party that asks.

    Attributes:
        member: its name, one of the federation's queriers, and its secrets.
        manifest: of the federation.
        public: its public key, that contributors encrypt under; None of the rule masked.
        channel: to the evaluator.
    """

    member: Member
    manifest: Manifest
    public: fhe.AnyPublicKey | None
    channel: Channel

    def open(
        self,
        batch: str,
        features: NDArray[np.float32],
        audit: Audit | None,
        terms: BatchTerms,
        *,
        agreed: bytes = b"",
        salt: bytes = b"",
    ) -> None:
        """Opens a batch at the evaluator, with a sealed query for every client that is asked.

        Args:
            batch: a name that was not used before.
            features: scaled queries, shape (queries, n_features).
            audit: known answers to mix in; its seed is sealed to the contributors.
            terms: of the batch.
            agreed: of the rule masked, the digest of what contributors are told.
            salt: of the rule masked, part of that.

        Raises:
            InputError: a name or quorum that cannot be.
            ServiceError: the evaluator refused or cannot be reached.
        """
        clients = [name for name in self.manifest.clients if name != terms.without]
        quorum = len(clients) if terms.quorum is None else terms.quorum
        if not 1 <= quorum <= len(clients):
            raise InputError(f"quorum {quorum}: there are {len(clients)} contributors")
        if not BATCH.fullmatch(batch):
            raise InputError(f"batch {batch!r}: use letters, digits, '.', '_' and '-', at most 64")
        queries = len(features) + (audit.known if audit else 0)
        self._refuse_too_many(queries, audit)
        expires = time.time() + terms.lifetime

        def sealed(name: str) -> bytes:
            facts = Facts(
                federation=self.manifest.fingerprint,
                batch=batch,
                contributor=name,
                public=agreed.hex() if self.public is None else self.public.fingerprint,
                queries=queries,
                quorum=quorum,
                expires=expires,
                degree=terms.degree,
                querier=self.member.name,
            )
            query = seal_query(facts, features, audit, self.member, self.manifest, salt)
            return query.to_bytes()

        opening = {
            "queries": queries,
            "quorum": quorum,
            "patience": terms.patience,
            "expires": expires,
        }
        if isinstance(self.public, fhe.BatchedPublicKey):
            self._open_apart(batch, {**opening, "apart": clients}, sealed)
            return
        together = {name: base64.b64encode(sealed(name)).decode() for name in clients}
        body = json.dumps({**opening, "sealed": together}).encode()
        self.channel.expect("PUT", f"/batches/{batch}", body, what=f"batch {batch}")

    def _refuse_too_many(self, queries: int, audit: Audit | None) -> None:
        if not isinstance(self.public, fhe.BatchedPublicKey):
            return
        most, known = self.public.parameters.degree, audit.known if audit else 0
        if queries > most:
            raise InputError(
                f"batch: {queries} queries, {known} known answers among them; a batch under these"
                f" keys has at most {most}, so ask at most {most - known} at once with so many"
                " known answers"
            )

    def _open_apart(
        self, batch: str, opening: Mapping[str, Any], sealed: Callable[[str], bytes]
    ) -> None:
        """Opens a batch whose sealed queries are sent one by one, each made when it is its turn."""
        path, what = f"/batches/{batch}", f"batch {batch}"
        self.channel.expect("PUT", path, json.dumps(opening).encode(), what=what)
        try:
            with tempfile.TemporaryDirectory(prefix="securefl-") as folder:
                for name in opening["apart"]:
                    file = Path(folder) / "query"
                    write_atomic(file, sealed(name), mode=PRIVATE)
                    self.channel.expect("PUT", f"{path}/sealed/{name}", file, what=what)
        except BaseException:
            # A part of the sealed queries is no batch, and keeps the evaluator's room.
            with contextlib.suppress(ServiceError):
                self.channel.call("DELETE", path)
            raise

    def fetch(
        self,
        batch: str,
        secret: fhe.AnySecretKeys,
        audit: Audit | Spend | None,
        *,
        on_status: OnStatus,
        queries: int | None = None,
    ) -> Answered:
        """Waits for a batch that was opened, closes it, and only then reads its answers.

        Args:
            batch: its name.
            secret: keys that read.
            audit: known answers that were mixed in, or what gives them for the bytes of an answer
                (`fhe.audit.spend_audit`, say), before anything is read of it; None without.
            on_status: hears the batch's status whenever it changes.
            queries: how many were asked, without the known answers; None takes the answer's word.

        Raises:
            ServiceError: the batch failed, or the evaluator cannot be reached or sends nonsense.
            FormatError: the answer is to more or fewer queries.
            AnswerError: a known answer is wrong.
        """
        return self.read(batch, self.wait(batch, on_status), secret, audit, queries=queries)

    def wait(self, batch: str, on_status: OnStatus, keep: Keep = lambda received: None) -> Received:
        """Waits for a batch that was opened, fetches its answer and closes it.

        The evaluator hears nothing after this, and up to here nothing that depends on the secret
        key: whether an answer can be read is found when it is too late to tell.

        Args:
            batch: its name.
            on_status: as `fetch`.
            keep: keeps the answer, before it is closed at the evaluator.

        Raises:
            ServiceError: the batch failed, or the evaluator cannot be reached.
        """
        path, what = f"/batches/{batch}", f"batch {batch}"
        status = _status(self.channel.expect("GET", path, what=what))
        on_status(status)
        while status["state"] in ("collecting", "queued", "evaluating"):
            found = _status(self.channel.expect("GET", f"{path}?wait={WAIT:.0f}", what=what))
            if found != status:
                on_status(found)
            status = found
        if status["state"] != "answered":
            reasons = [f"{name}: {why}" for name, why in self.refusals(status, batch).items()]
            said = "; ".join((f"{status['state']}: {status['reason']:.200}", *reasons))
            raise ServiceError(f"{what}: {said}")
        content = self.channel.expect("GET", f"{path}/answer", what=what)
        received = Received(content, tuple(map(str, status["present"])))
        keep(received)
        try:
            self.channel.expect("DELETE", path, what=what)
        except ServiceError as error:
            # The answer is here; there it is erased in time.
            log.warning("%s", error)
        return received

    def refusals(self, status: Mapping[str, Any], batch: str) -> dict[str, str]:
        """Why contributors declined a batch, by name, each in its own words.

        Args:
            status: of the batch, from the evaluator.
            batch: its name.
        """
        found = {}
        for name in self.manifest.clients:
            if name not in status["refusals"]:
                continue
            try:
                sealed = base64.b64decode(status["refusals"][name], validate=True)
                reason = open_reason(sealed, self.member, self.manifest, batch, name)
            except (InputError, ValueError, TypeError):
                reason = "declined; the evaluator passed on a reason that it did not sign"
            found[name] = reason
        return found

    def read(
        self,
        batch: str,
        received: Received,
        secret: fhe.AnySecretKeys,
        audit: Audit | Spend | None,
        *,
        queries: int | None = None,
    ) -> Answered:
        """Decrypts what was received and takes out the known answers.

        Args:
            batch: its name.
            received: from `wait`.
            secret: keys that read.
            audit: as `fetch`.
            queries: that were asked, without the known answers; None takes the answer's word.

        Raises:
            ServiceError: the answer of another batch.
            FormatError: the answer is to more or fewer queries.
            AnswerError: a known answer is wrong, or a class does not exist; the keys are to be
                retired (`fhe.retirement`).
        """
        if audit is not None and not isinstance(audit, Audit):
            audit = audit(received.content)
        source = "the evaluator's answer"
        answer = answer_of(received.content, secret.parameters, source=source)
        unknown = set(received.present) - set(self.manifest.clients)
        if unknown or (answer.federation, answer.batch) != (self.manifest.fingerprint, batch):
            raise ServiceError(f"batch {batch}: the evaluator sent the answer of another batch")
        if queries is not None and audit is not None:
            queries += audit.known
        classes = fhe.read_answer(answer, secret, queries=queries)
        if audit is not None:
            positions = [self.manifest.client_index(name) for name in received.present]
            classes = audit.check(classes, secret.parameters, present=positions)
        return Answered(classes, received.present)


_STATUS = {
    "state": str,
    "reason": str,
    "done": int,
    "total": int,
    "present": list,
    "clients": dict,
    "refusals": dict,
}


def _status(content: bytes) -> dict[str, Any]:
    try:
        found = load_json(content)
        if {name: type(value) for name, value in found.items()} == _STATUS:
            return dict(found)
    except (ValueError, AttributeError):
        pass
    raise ServiceError("the evaluator's status of the batch cannot be read")

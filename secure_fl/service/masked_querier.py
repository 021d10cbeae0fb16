"""The querier of a masked sum: binds what contributors are told, and opens the sum alone.

It has no key that opens a contribution. The evaluator hands over the masked sum and the survivors'
shares, which are sealed to the querier; with fewer of them than the threshold it opens nothing.
"""

import os
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from fhe.audit import Audit
from fhe.errors import FormatError as EnvelopeError
from secure_fl.errors import FederationError, FormatError, InputError, ServiceError
from secure_fl.federation import wire
from secure_fl.federation.secagg import ProtocolServer
from secure_fl.federation.secagg.messages import check_version
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.heads.masked import coding_of
from secure_fl.masked import Opened, Told
from secure_fl.service.desk import Desk, MaskedBatch
from secure_fl.service.masked_offer import Keys
from secure_fl.service.masked_words import (
    ANSWER,
    audit_parameters,
    known_secret,
    most_queries,
    open_shares,
    refuse_known,
    sum_parameters,
)
from secure_fl.service.querier import BatchTerms, OnStatus, Querier, Received, ignored

SALT = 32
UNSAID = 2
"""Version of secure sums of releases whose answers do not say theirs."""
_MEMBERS = {"protocol", "setup", "place", "sum", "clients", "shares"}


@frozen
class MaskedAnswered:
    """The answers of a batch.

    Attributes:
        opened: what the sum shows, shape (queries,) each, known answers taken out.
        present: contributors whose rows are in the sum.
    """

    opened: Opened
    present: tuple[str, ...]

    @property
    def classes(self) -> NDArray[np.int64]:
        """Class indices, shape (queries,)."""
        return self.opened.classes

    @property
    def codes(self) -> NDArray[np.int64]:
        """Smallest codes, shape (queries,); none of votes."""
        return self.opened.codes


def ask_masked(
    querier: Querier,
    desk: Desk,
    features: NDArray[np.float32],
    *,
    batch: str,
    known: Audit | None,
    terms: BatchTerms | None,
    on_status: OnStatus = ignored,
) -> MaskedAnswered:
    """Opens a batch, waits for its answer, closes it, and only then reads it.

    Args:
        querier: with a channel to the evaluator; its public key is None.
        desk: its memory.
        features: scaled queries, shape (queries, n_features).
        batch: its name, that was not used before.
        known: answers to mix in; None for none.
        terms: of the batch; None for one that was opened before.
        on_status: hears the batch's status whenever it changes.

    Raises:
        InputError: more queries than a batch has, or a batch that is not remembered here.
        ServiceError: the batch failed, or the evaluator cannot be reached or sends nonsense.
        ProtocolError, QuorumError: the sum does not open.
        AnswerError: a known answer is wrong.
    """
    queries = len(features) + (known.known if known else 0)
    with querier.channel:
        if terms is not None:
            opened = _open(querier, desk, features, queries, batch, known, terms)
        else:
            opened = desk.masked(batch)
        kept = desk.answer(batch) if terms is None else None

        def keep(received: Received) -> None:
            desk.keep_answer(batch, received.content, received.present)

        received = querier.wait(batch, on_status, keep) if kept is None else Received(*kept)
    found = _read(querier, batch, received.content, queries, opened, known)
    desk.forget(batch)
    return found


def _open(
    querier: Querier,
    desk: Desk,
    features: NDArray[np.float32],
    queries: int,
    batch: str,
    known: Audit | None,
    terms: BatchTerms,
) -> MaskedBatch:
    manifest = querier.manifest
    if known is not None:
        refuse_known(manifest)
    if queries > most_queries(manifest):
        raise InputError(
            f"batch {batch}: {queries} queries, known answers among them, expected at most"
            f" {most_queries(manifest)} under the rule {manifest.rule}; ask in parts (--rows)"
        )
    clients = len(manifest.clients)
    quorum = default_threshold(clients) if terms.quorum is None else terms.quorum
    if quorum > clients - bool(terms.without):
        raise InputError(
            f"batch {batch}: without {terms.without!r}, {clients - 1} of {clients} contributors are"
            f" left, and the quorum is {quorum}; take a smaller one (--quorum)"
        )
    salt = os.urandom(SALT)
    asks = querier.member.name
    told = Told(manifest.fingerprint, batch, features, salt, known_secret(known), asks)
    agreed = told.agreed(coding_of(manifest, quorum), 0, queries)
    # A quorum or ring that no sum has is refused before anybody is asked.
    sum_parameters(manifest, batch, quorum, agreed, terms.degree)
    opened = MaskedBatch(agreed, quorum, terms.degree)
    desk.keep_masked(batch, opened)
    whole = evolve(terms, quorum=quorum)
    querier.open(batch, features, known, whole, agreed=agreed, salt=salt)
    return opened


def _read(
    querier: Querier,
    batch: str,
    content: bytes,
    queries: int,
    opened: MaskedBatch,
    known: Audit | None,
) -> MaskedAnswered:
    manifest = querier.manifest
    terms = opened.quorum, opened.agreed, opened.degree
    coding = coding_of(manifest, opened.quorum)
    found = _answer(content, batch)
    # Not believed: a sum of other keys does not open by these.
    keys = {"setup": found["setup"], "place": found["place"]}
    parameters = sum_parameters(manifest, batch, *terms, **keys)
    server = ProtocolServer.opener(parameters, found["sum"], queries * coding.words)
    for client, sealed in zip(found["clients"], found["shares"], strict=True):
        try:
            message = open_shares(bytes.fromhex(sealed), querier.member, manifest, batch, client)
        except (InputError, ValueError, KeyError):
            # Without these the others' may still be enough.
            continue
        server.receive(client, message)
    shown = coding.open(server.total())
    if known is not None:
        positions = [manifest.client_index(name) for name in server.survivors]
        codes = np.delete(shown.codes, known.positions(queries))
        classes = known.check(shown.classes, audit_parameters(manifest), present=positions)
        shown = Opened(classes, codes)
    return MaskedAnswered(shown, server.survivors)


def _answer(content: bytes, batch: str) -> dict[str, Any]:
    source = "the evaluator's answer"
    try:
        found = wire.decode(content, kind=ANSWER, source=source)
    except (EnvelopeError, FederationError) as error:
        raise ServiceError(f"batch {batch}: {error}") from None
    if isinstance(found, dict):
        check_version(found.get("protocol", UNSAID), source)
    if not isinstance(found, dict) or set(found) != _MEMBERS:
        raise ServiceError(f"batch {batch}: {source} has not the members of one")
    try:
        Keys(found["setup"], found["place"]).new(batch)
    except FormatError as error:
        raise ServiceError(f"batch {batch}: {source}: {error}") from None
    lists = found["clients"], found["shares"]
    texts = all(isinstance(x, list) and all(isinstance(t, str) for t in x) for x in lists)
    if not texts or len(lists[0]) != len(lists[1]):
        raise ServiceError(f"batch {batch}: {source} has not an opening a client")
    return found

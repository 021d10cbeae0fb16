"""What a querier or a client brings: checked against the federation, then kept."""

import base64
import binascii
import re
import time

from pydantic import ValidationError

import fhe
from secure_fl.errors import InputError
from secure_fl.service.batch import Batch
from secure_fl.service.gate import Caller, Refusal
from secure_fl.service.limits import Limits
from secure_fl.service.masked_words import most_queries, sum_parameters
from secure_fl.service.registry import Federation, Registered
from secure_fl.service.schema import Opening
from secure_fl.service.sealed_query import Facts, SealedQuery
from secure_fl.service.store import Apart, Store


def open_batch(
    store: Store,
    limits: Limits,
    caller: Caller[Federation],
    batch: str,
    content: bytes,
    digest: str,
) -> int:
    """Keeps a batch of the calling querier; 201, or 200 where the same request opened it before."""
    federation = caller.federation.manifest.fingerprint
    known = store.find(federation, batch)
    if known is None:
        opening, sealed, (agreed, degree) = _read_opening(limits, caller, batch, content)
        done = store.open(
            federation,
            batch,
            digest,
            sealed,
            queries=opening.queries,
            quorum=opening.quorum,
            patient_until=time.time() + opening.patience,
            expires=opening.expires,
            queue=limits.queue,
            agreed=agreed,
            degree=degree,
            querier=caller.name,
            apart=_apart(limits, caller, opening),
        )
        if done == "opened":
            return 201
        if done == "full":
            raise Refusal(
                429, "queue", "too many batches wait, or have all the room", retry_after=30
            )
        known = store.find(federation, batch)
    # Of another querier's batch no more is said than that its name is taken.
    if known is None or (known.querier, known.opening) != (caller.name, digest):
        raise Refusal(409, "state", "a batch of this name exists; choose another name")
    return 200


def _read_opening(
    limits: Limits, caller: Caller[Federation], batch: str, content: bytes
) -> tuple[Opening, dict[str, bytes], tuple[str, int]]:
    """What a querier asks for, the sealed queries by client, a masked sum's digest and degree.

    Raises:
        Refusal: they do not fit the federation, the limits or each other.
    """
    manifest, now = caller.federation.manifest, time.time()
    try:
        opening = Opening.model_validate_json(content)
        sealed = {
            name: base64.b64decode(text, validate=True) for name, text in opening.sealed.items()
        }
    except (ValidationError, binascii.Error, UnicodeEncodeError, ValueError):
        raise Refusal(422, "invalid", "not what opens a batch; see /openapi.json") from None
    federation = caller.federation
    batched = _registered(caller) is not None and federation.batched(caller.name)
    if opening.sealed if batched else opening.apart:
        raise Refusal(422, "invalid", "sealed queries come apart where the engine is bgv, and only")
    asked = opening.apart if batched else list(sealed)
    if not set(asked) <= set(manifest.clients) or not opening.quorum <= len(set(asked)):
        raise Refusal(422, "invalid", "not a sealed query for each of a quorum of clients")
    most = federation.most_queries(caller.name, limits.queries)
    if opening.queries > most:
        raise Refusal(413, "size", f"a batch has at most {most} queries")
    if not now < opening.expires <= now + limits.lifetime:
        raise Refusal(422, "invalid", f"must expire within {limits.lifetime:.0f} s")
    if federation.masked and opening.queries > most_queries(manifest):
        most = most_queries(manifest)
        raise Refusal(413, "size", f"a batch of the rule masked has at most {most} queries here")
    sums = set()
    for name, data in sealed.items():
        try:
            facts = SealedQuery.from_bytes(data, manifest).facts
        except (fhe.InputError, InputError):
            raise Refusal(422, "invalid", "a sealed query cannot be read") from None
        terms = (batch, name, opening.queries, opening.quorum, opening.expires)
        check_facts(facts, terms, caller)
        sums.add((facts.public, facts.degree))
    if not federation.masked:
        return opening, sealed, ("", 0)
    ((agreed, degree), *others) = sums
    if others or not re.fullmatch("[0-9a-f]{64}", agreed):
        raise Refusal(422, "invalid", "not one digest of what contributors are told, or degree")
    try:
        sum_parameters(manifest, batch, opening.quorum, bytes.fromhex(agreed), degree)
    except InputError as error:
        raise Refusal(422, "invalid", str(error)) from None
    return opening, sealed, (agreed, degree)


def _registered(caller: Caller[Federation]) -> Registered | None:
    """The calling querier's keys; None of a rule that has none.

    Raises:
        Refusal: they are not here.
    """
    if caller.federation.masked:
        return None
    try:
        return caller.federation.registered(caller.name)
    except InputError as error:
        raise Refusal(409, "keys", str(error)) from None


def check_facts(
    facts: Facts, terms: tuple[str, str, int, int, float], caller: Caller[Federation]
) -> None:
    """Refuses a sealed query of another batch or querier.

    Args:
        facts: that their querier signed.
        terms: the batch's name, its contributor, queries, quorum and expiry.
        caller: the querier whose batch it is.

    Raises:
        Refusal: so, or the querier's keys are not here.
    """
    if facts.querier != caller.name:
        raise Refusal(422, "invalid", "a sealed query is another querier's")
    found = (facts.batch, facts.contributor, facts.queries, facts.quorum, facts.expires)
    if found != terms:
        raise Refusal(422, "invalid", "a sealed query is not of this batch")
    own = _registered(caller)
    if own is not None and facts.public != own.public.fingerprint:
        raise Refusal(422, "invalid", "another public key than the one registered here")


def _apart(limits: Limits, caller: Caller[Federation], opening: Opening) -> Apart | None:
    """What is to come apart; None where everything is in the opening.

    Raises:
        Refusal: this evaluator will never have room for it.
    """
    federation = caller.federation
    if not federation.batched(caller.name):
        return None
    clients, queries = tuple(dict.fromkeys(opening.apart)), opening.queries
    each = federation.sealed_bytes(queries) + federation.contribution_bytes(caller.name, queries)
    size = len(clients) * each
    if size > limits.room:
        raise Refusal(
            413,
            "size",
            f"a batch of {len(clients)} contributors has up to {size / 1e9:.2f} GB, this evaluator"
            f" has room for {limits.room / 1e9:.2f} of each querier's (--room)",
        )
    return Apart(clients=clients, size=size, room=limits.room, patience=opening.patience)


def accept_contribution(
    store: Store, caller: Caller[Federation], batch: Batch, content: bytes
) -> int:
    """Keeps a contribution; 201, or 200 where it was there before."""
    try:
        contribution = fhe.Contribution.from_bytes(content, source="contribution")
        caller.federation.check(contribution, caller.name, batch)
    except (fhe.InputError, InputError) as error:
        raise Refusal(422, "invalid", str(error)) from None
    if store.accept(batch, caller.name, content):
        return 201
    if store.contribution(batch, caller.name) == content:
        return 200
    raise Refusal(409, "state", "this client is not asked any more")

"""A batch of queries as the evaluator's store has it."""

from collections.abc import Mapping

from attrs import frozen


@frozen(kw_only=True)
class Batch:
    """A batch as the store has it.

    Attributes:
        id: the store's own number; the order of arrival.
        federation: fingerprint of the manifest.
        name: of the batch.
        opening: digest of the request that opened it.
        queries: in all.
        quorum: contributors that an answer needs.
        state: see the module.
        reason: why it failed, in words.
        done: blocks of queries that are evaluated.
        total: blocks in all, 0 before the evaluation.
        present: clients that the answer rests on, by name.
        clients: what each client did: "asked", "sent" or "declined".
        refusals: of those that declined and said why, sealed to the querier.
        patient_until: seconds since 1970, after which the quorum suffices.
        expires: seconds since 1970.
        agreed: of the rule masked, the digest of what contributors were told; else "".
    """

    id: int
    federation: str
    name: str
    opening: str
    queries: int
    quorum: int
    state: str
    reason: str
    done: int
    total: int
    present: tuple[str, ...]
    clients: Mapping[str, str]
    refusals: Mapping[str, bytes]
    patient_until: float
    expires: float
    agreed: str

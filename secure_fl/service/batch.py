"""A batch of queries as the evaluator's store has it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from attrs import frozen


@frozen(kw_only=True)
class Batch:
    """A batch as the store has it.

    Attributes:
        id: the store's own number; the order of arrival.
        federation: fingerprint of the manifest.
        name: of the batch.
        querier: that opened it, and to whom alone it answers.
        opening: digest of the request that opened it.
        queries: in all.
        quorum: contributors that an answer needs.
        state: see the module.
        reason: why it failed, in words.
        done: blocks of queries that are evaluated.
        total: blocks in all, 0 before the evaluation.
        present: clients that the answer rests on, by name.
        clients: what each client did: "announced", "asked", "sent" or "declined".
        refusals: of those that declined and said why, sealed to the querier.
        patient_until: seconds since 1970, after which the quorum suffices.
        expires: seconds since 1970.
        agreed: of the rule masked, the digest of what contributors were told; else "".
        degree: of the rule masked, contributors that each masks with; 0 for all others.
        setup: of the rule masked, the batch that made the keys of its sum; "" while that is open.
        place: of its sum among those of the set-up.
    """

    id: int
    federation: str
    name: str
    querier: str
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
    degree: int
    setup: str
    place: int

    @classmethod
    def of(cls, row: Iterable[Any], parts: Iterable[tuple[str, str, bytes | None]]) -> Self:
        """A batch from its row.

        Args:
            row: the columns `COLUMNS`.
            parts: of every client that was asked, its name, state and refusal.
        """
        found = dict(zip(COLUMNS, row, strict=True))
        found["name"] = found.pop("batch")
        found["present"] = tuple(json.loads(found["present"]))
        parts = list(parts)
        return cls(
            **found,
            clients={client: state for client, state, _ in parts},
            refusals={client: words for client, _, words in parts if words is not None},
        )


COLUMNS = (
    *("id", "federation", "batch", "querier", "opening", "queries", "quorum", "state", "reason"),
    *("done", "total", "present", "patient_until", "expires", "agreed", "degree"),
    *("setup", "place"),
)
"""Of the store's table of batches."""

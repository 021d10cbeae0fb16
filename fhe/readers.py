"""Who can read what, and on what it rests, in words; the same for every engine."""

from collections.abc import Mapping
from typing import Any

READERS = (
    "The querier, holding secret.key, reads answers, and every contribution if it is handed one.",
    "Contributors, holding public.key, read nothing, not even what they sent.",
    "The evaluator, holding evaluation.key and public.key, reads nothing.",
    "Querier and evaluator together read every contribution: one integer per client and query,"
    " the smallest code and its class.",
    "Never publish decrypted answers next to their ciphertexts.",
)


def key_json(facts: Mapping[str, Any], security: str, public_key: str) -> dict[str, Any]:
    """Facts about keys as JSON types, with what they rest on and who reads what."""
    return {
        **facts,
        "lattices": list(facts["lattices"]),
        "security": security,
        "public_key": public_key,
        "who_reads_what": list(READERS),
    }


def key_lines(facts: Mapping[str, Any], security: str, public_key: str) -> tuple[str, ...]:
    """The sentences that end a description of keys: lattices, size, what they rest on, readers."""
    return (
        *facts["lattices"],
        f"evaluation key: {facts['evaluation_bytes']:,} bytes",
        f"security: {security}",
        f"public key: {public_key}",
        *READERS,
    )

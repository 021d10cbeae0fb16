"""What keys of a batched rule are for, in words."""

from dataclasses import dataclass
from typing import Any

from fhe.readers import key_json, key_lines

from .chain import BUDGET, DISTANCE
from .keys import BatchedEvaluationKeys
from .messages import set_bytes

SECURITY = (
    "128 bits against known lattice attacks, by the tables of the homomorphic encryption standard"
    " as SEAL enforces them; rests on ring learning with errors with ternary secrets"
)
PUBLIC_KEY = (
    "contributions are the scheme's own encryptions under a public key; answers are re-randomised"
    f" and flooded, so that their noise is within 2^-{DISTANCE} of noise that does not depend on"
    " the inputs, if the querier made its public key as it should"
)


@dataclass(frozen=True)
class BatchedKeyFacts:
    """What is known of keys without opening the secret one."""

    fingerprint: str
    parameters: dict[str, Any]
    evaluation_bytes: int
    slots: int
    bytes_a_query: float
    milliseconds: float
    modulus_bits: float
    lattices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON types."""
        return key_json(vars(self), SECURITY, PUBLIC_KEY)

    def to_text(self) -> str:
        """The facts in sentences."""
        p = self.parameters
        lines = [
            f"key {self.fingerprint}",
            f"engine bgv: {p['contributors']} contributors, {p['classes']} classes,"
            f" {p['bits']}-bit codes, up to {self.slots:,} queries at once",
            "a batch takes as long as the next full one: about"
            f" {self.milliseconds * self.slots / 1000:,.0f} core-seconds for up to"
            f" {self.slots:,} queries, {self.milliseconds:.2f} ms a query",
            f"a full batch takes {self.bytes_a_query / 1000:.2f} kB a query of every contributor",
            "a batch is wrong by noise with probability at most 2^-40",
            *key_lines(vars(self), SECURITY, PUBLIC_KEY),
        ]
        return "\n".join(lines)


def describe_batched(keys: BatchedEvaluationKeys) -> BatchedKeyFacts:
    """The facts of a batched rule's keys."""
    p = keys.parameters
    chain = p.chain
    lattice = (
        f"modulus of {chain.bits:.1f} bits at degree {chain.degree:,}, at most"
        f" {BUDGET[chain.degree]} at 128 bits; {len(chain.levels)} levels; answers are flooded by"
        f" {chain.flood} bits"
    )
    return BatchedKeyFacts(
        keys.fingerprint,
        p.to_json(),
        len(keys.content),
        p.degree,
        set_bytes(p) / p.degree,
        p.milliseconds,
        chain.bits,
        (lattice,),
    )

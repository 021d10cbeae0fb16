"""An answer that tells its class and nothing else of the inputs.

The querier holds the secret, so it sees an answer's (c0, c1) and, by decrypting, its noise: both
depend on the contributions. To the answer are added

- a fresh encryption of 0: c1 becomes c1 + a u + t e1 with fresh u and e1, which cannot be told
  from uniform, whatever c1 was, by the scheme's own assumption (RLWE with the secret u, under the
  querier's public key, honestly made);
- t U, every coefficient of U uniform in [0, 2^flood), from the operating system.

Given c1, the querier learns the noise e + U, with e of the circuit and of the encryption of 0. A
uniform integer of 2^flood values is within |e_k| / 2^flood of the same shifted by e_k, in
statistical distance, so all of U within ||e||_1 / 2^flood <= sqrt(n) ||e||_2 / 2^flood. `chain`
chooses flood such that this is at most 2^-40 for the bound of ||e||_2, and the modulus such that
the sum decrypts.
"""

import secrets
from typing import Any

import numpy as np

from .ciphertexts import Ciphertexts, times_modulus
from .library import seal
from .packing import Residues
from .scheme import Scheme

_LIMB = 14
"""Bits of U that are made at a time: below t / 2, so that a plaintext takes them as they are."""


def flood(answer: Any, ops: Ciphertexts, scheme: Scheme) -> Residues:
    """The residues of an answer at level 0, re-randomised and flooded; shape (2, primes, n)."""
    rerandomised = scheme.residues(ops.add(answer, ops.fresh_zero(0)))
    primes = np.array(scheme.chain.primes(0), np.uint64)[:, None]
    noise = np.zeros_like(rerandomised[0])
    limbs = uniform_limbs(scheme.chain.degree, scheme.chain.flood)
    # From the most significant one down: U = (...(U_k 2^14 + U_(k - 1)) 2^14 + ...).
    for limb in limbs:
        values = scheme.transformed(_plaintext(limb), 0)
        noise = ((noise << np.uint64(_LIMB)) % primes + values) % primes
    rerandomised[0] = (rerandomised[0] + times_modulus(noise, primes)) % primes
    return rerandomised


def uniform_limbs(count: int, bits: int) -> list[Residues]:
    """Uniform integers of so many bits in limbs of 14, most significant first: (count,) each."""
    widths = [bits % _LIMB] * bool(bits % _LIMB) + [_LIMB] * (bits // _LIMB)
    found = []
    for width in widths:
        drawn = np.frombuffer(secrets.token_bytes(2 * count), "<u2").astype(np.uint64)
        found.append(drawn & np.uint64((1 << width) - 1))
    return found


def _plaintext(coefficients: Residues) -> Any:
    terms = (f"{int(c):x}x^{i}" if i else f"{int(c):x}" for i, c in enumerate(coefficients))
    return seal().Plaintext(" + ".join(reversed(list(terms))))

"""A public key for contributors: module-LWE, the construction that TFHE-rs calls compact.

The circuit's inputs are LWE ciphertexts under s in {0, 1}^(k N), the flattened key of a GLWE scheme
over R = Z_{2^64}[X]/(X^N + 1). With chi a Gaussian of deviation sigma, rounded to integers; sigma
is `NOISE_FACTOR` times what the library states for a fresh encryption of that dimension:

    public key     A uniform in R^(k x k), from a seed;  B = A s + E,  E from chi
    ciphertext     r binary;  (c1, c2) = (A^T r + e1, <B, r> + e2 + m),  e1, e2 from chi

    phase          c2 - <c1, s> = m + <E, r> + e2 - <e1, s>

Digits are the coefficients of m. Coefficient j of the phase is linear in the bits of s, so the
evaluator rewrites (c1, c2) as one LWE ciphertext a digit without any key (sample extraction).

Assumption: module-LWE with a binary secret is as hard at rank k and degree N as the library takes
GLWE to be, at the same dimension k N and at least that deviation. It is used twice: (A, B) hides s,
and the k + 1 samples of a ciphertext hide r, hence m. The library's evaluation keys hold GLWE
samples under the same s already. `LibraryError` refuses a dimension or deviation below the
library's 128-bit curve. Ciphertexts are IND-CPA, not CCA: they can be altered in transit, as those
of the library can.

The choice of sigma and what its noise does to look-ups: `public_noise`.

This part is ours, not the library's, and wants a review by somebody else. Running times depend on
the weight of secrets, so let nobody time encryption or key generation closely.
"""

import hashlib
import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .code import Ints
from .compiled import compiled_rule
from .envelope import read_envelope, write_envelope
from .errors import FormatError, InputError
from .frames import operand_frames
from .keys import SecretKeys, key_parameters
from .lwe_layout import (
    InputType,
    check_rows,
    input_type,
    secret_bits,
)
from .operands import integers_of
from .parameters import RuleParameters
from .public_noise import check_failure, check_security, deviation_of, noise_variance
from .retirement import refuse_retired
from .ring import (
    Words,
    draw_binary,
    draw_rounded_gaussian,
    expand,
    extraction_row,
    times_binary,
)

PUBLIC_KIND = "fhe public key"
PUBLIC_FILE = "public.key"
PUBLIC_VERSION = 4
"""Keys of versions 1 and 2 fit none of today's circuits; version 3 had the noise of the library's
own keys, and carried what describes ciphertexts to the evaluator's library."""
_SEED = 32
_MAX_PUBLIC = 1 << 20


@dataclass(frozen=True)
class PublicKey:
    """What a contributor holds: it encrypts, and opens nothing, not even what it encrypted.

    Attributes:
        parameters: of the rule.
        key: fingerprint of the evaluation keys that go with it.
        content: seed of A, 32 bytes, and B as 64-bit words.
    """

    parameters: RuleParameters
    key: str
    content: bytes

    @cached_property
    def fingerprint(self) -> str:
        """Ties ciphertexts to this key and to its evaluation keys, 64 hexadecimal digits."""
        digest = hashlib.sha256(f"{self.parameters.fingerprint()}{self.key}".encode())
        digest.update(self.content)
        return digest.hexdigest()

    @cached_property
    def kind(self) -> InputType:
        """What the circuit expects; compiles it.

        Raises:
            LibraryError: parameters that are not secure, or too noisy.
        """
        return _checked_kind(self.parameters)

    @cached_property
    def matrix(self) -> Words:
        """A, shape (k, k, N)."""
        k, degree = self.kind.glwe_dimension, self.kind.degree
        return expand(self.content[:_SEED], (k, k, degree))

    @cached_property
    def vector(self) -> Words:
        """B, shape (k, N)."""
        k, degree = self.kind.glwe_dimension, self.kind.degree
        words = np.frombuffer(self.content, "<u8", k * degree, _SEED)
        return words.astype(np.uint64).reshape(k, degree)


@dataclass(frozen=True)
class RingCiphertexts:
    """Digits under a public key.

    Attributes:
        public: the public key's fingerprint.
        shape: of the digits (queries, columns).
        content: for N digits (fewer in the last one) the words of c1, shape (k, N), then as many
            of c2 as there are digits.
    """

    public: str
    shape: tuple[int, int]
    content: bytes


def make_public_key(keys: SecretKeys) -> PublicKey:
    """A fresh public key of the querier; checks the library's byte layout first.

    Raises:
        LibraryError: the layout differs, or the parameters are not secure or too noisy.
    """
    kind = _checked_kind(keys.parameters)
    operand_frames(keys.client, keys.parameters)
    secret = secret_bits(keys.client, kind)
    seed = secrets.token_bytes(_SEED)
    k, degree = kind.glwe_dimension, kind.degree
    matrix = expand(seed, (k, k, degree))
    vector = hide_secret(matrix, secret, deviation_of(kind))
    content = seed + vector.astype("<u8").tobytes()
    made = PublicKey(keys.parameters, keys.evaluation.fingerprint, content)
    _check_round_trip(made, secret)
    return made


def encrypt_digits(digits: Ints, public: PublicKey) -> RingCiphertexts:
    """Encrypts digits; the randomness is used once and not kept.

    Args:
        digits: shape (queries, columns), as `RuleParameters.encode` gives them.
        public: the querier's.

    Raises:
        InputError: another shape, or a digit that does not fit.
        LibraryError: the rule's parameters are not secure or too noisy.
    """
    kind, columns = public.kind, public.parameters.columns
    if digits.ndim != 2 or len(digits) == 0 or digits.shape[1] != columns:
        raise InputError(f"digits: shape {digits.shape}, expected (queries, {columns})")
    top = public.parameters.base - 1
    if digits.min() < 0 or digits.max() > top:
        raise InputError(f"digits: a value outside 0..{top}; encode with RuleParameters.encode")
    flat = digits.ravel().astype(np.uint64) << np.uint64(kind.shift)
    parts = []
    for start in range(0, len(flat), kind.degree):
        message = flat[start : start + kind.degree]
        mask, body = encrypt_zero(public.matrix, public.vector, deviation_of(kind))
        parts += [mask.ravel(), body[: len(message)] + message]
    content = np.concatenate(parts).astype("<u8").tobytes()
    return RingCiphertexts(public.fingerprint, (digits.shape[0], digits.shape[1]), content)


def hide_secret(matrix: Words, secret: Words, deviation: float) -> Words:
    """B = A s + E with fresh errors: shape (k, N) from A (k, k, N) and s (k, N)."""
    vector = draw_rounded_gaussian(deviation, secret.shape)
    for v, row in enumerate(matrix):
        for each, bits in zip(row, secret, strict=True):
            vector[v] += times_binary(each, bits)
    return vector


def encrypt_zero(matrix: Words, vector: Words, deviation: float) -> tuple[Words, Words]:
    """(A^T r + e1, <B, r> + e2) with fresh r, e1 and e2, shapes (k, N) and (N,)."""
    chosen = draw_binary(vector.shape)
    mask = draw_rounded_gaussian(deviation, vector.shape)
    body = draw_rounded_gaussian(deviation, vector.shape[1:])
    for v, bits in enumerate(chosen):
        body += times_binary(vector[v], bits)
        for u, each in enumerate(matrix[v]):
            mask[u] += times_binary(each, bits)
    return mask, body


def extract(
    ciphertexts: RingCiphertexts, public: PublicKey, *, who: str, queries: range | None = None
) -> Words:
    """One LWE ciphertext a digit, without any secret: shape (queries x columns, k N + 1).

    Args:
        ciphertexts: of all digits.
        public: that they are under.
        who: sent them, for messages.
        queries: whose digits are wanted; None wants all.

    Raises:
        InputError: under another public key; names `who`.
        FormatError: not as many words as the digits need; names `who`.
    """
    check_size(ciphertexts, public, who=who)
    kind, (total, columns) = public.kind, ciphertexts.shape
    wanted = range(total) if queries is None else queries
    first, end, count = wanted.start * columns, wanted.stop * columns, total * columns
    words = np.frombuffer(ciphertexts.content, "<u8").astype(np.uint64)
    rows = np.empty((end - first, kind.dimension + 1), np.uint64)
    for ring in range(first // kind.degree, -(-end // kind.degree)):
        start = ring * kind.degree
        position = ring * (kind.dimension + kind.degree)
        mask = words[position : position + kind.dimension].reshape(-1, kind.degree)
        bodies = words[position + kind.dimension :]
        for j in range(max(first, start), min(end, count, start + kind.degree)):
            rows[j - first, :-1] = extraction_row(mask, j - start)
            rows[j - first, -1] = bodies[j - start]
    return rows


def check_size(ciphertexts: RingCiphertexts, public: PublicKey, *, who: str) -> None:
    """Refuses what cannot be ciphertexts under the public key; costs nothing.

    Raises:
        InputError, FormatError: as `extract`.
    """
    if ciphertexts.public != public.fingerprint:
        raise InputError(
            f"{who}: under public key {ciphertexts.public[:16]}, expected"
            f" {public.fingerprint[:16]}; encrypt again with the federation's public key"
        )
    expected = ciphertext_bytes(public, ciphertexts.shape[0])
    if ciphertexts.shape[0] < 1 or ciphertexts.shape[1] != public.parameters.columns:
        raise FormatError(f"{who}: digits of shape {ciphertexts.shape}; get it again")
    if len(ciphertexts.content) != expected:
        raise FormatError(
            f"{who}: {len(ciphertexts.content)} bytes of ciphertext, expected {expected};"
            " get it again"
        )


def ciphertext_bytes(public: PublicKey, queries: int) -> int:
    """Bytes of a contribution's ciphertexts to so many queries."""
    count = queries * public.parameters.columns
    rings = -(-count // public.kind.degree)
    return 8 * (rings * public.kind.dimension + count)


def to_integers(
    ciphertexts: RingCiphertexts, public: PublicKey, *, who: str, queries: range | None = None
) -> Words:
    """LWE ciphertexts of a contributor's integers, in the order in which the rule takes them.

    Shape (numbers x queries, digits of an integer, k N + 1); of all queries, or those wanted.

    Raises:
        InputError, FormatError: as `extract`.
    """
    p = public.parameters
    rows = extract(ciphertexts, public, who=who, queries=queries)
    return integers_of(rows.reshape(-1, p.columns, rows.shape[1]), p)


def save_public_key(folder: Path, public: PublicKey) -> int:
    """Writes `public.key`; returns its bytes."""
    header = {
        "parameters": public.parameters.to_json(),
        "key": public.key,
        "public": public.fingerprint,
        "version": PUBLIC_VERSION,
    }
    return write_envelope(folder / PUBLIC_FILE, PUBLIC_KIND, header, public.content)


def load_public_key(folder: Path) -> PublicKey:
    """Reads `public.key`; compiles the circuit.

    Raises:
        RetiredError: the folder's keys met a wrong answer.
        VersionError: of another version; names both.
        FormatError: not such a file, or one whose fingerprint does not fit its content.
    """
    refuse_retired(folder)
    path = folder / PUBLIC_FILE
    envelope = read_envelope(path, PUBLIC_KIND, max_payload=_MAX_PUBLIC)
    header, parameters = envelope.header, key_parameters(envelope, path, PUBLIC_VERSION)
    members = {"parameters", "key", "public", "version"}
    if set(header) != members or not isinstance(header["key"], str):
        raise FormatError(f"{path}: header members are missing or unknown; get it again")
    public = PublicKey(parameters, header["key"], envelope.payload)
    if header["public"] != public.fingerprint:
        raise FormatError(f"{path}: its fingerprint does not fit its key; get it again")
    expected = _SEED + 8 * public.kind.dimension
    if len(public.content) != expected:
        raise FormatError(
            f"{path}: a key of {len(public.content)} bytes, expected {expected}; get it again"
        )
    return public


def _checked_kind(parameters: RuleParameters) -> InputType:
    rule = compiled_rule(parameters)
    kind = input_type(rule.specs)
    check_security(kind)
    check_failure(rule, kind)
    return kind


def _check_round_trip(public: PublicKey, secret: Words) -> None:
    shape = (public.parameters.block, public.parameters.columns)
    digits = np.arange(shape[0] * shape[1]).reshape(shape) % public.parameters.base
    found = extract(encrypt_digits(digits, public), public, who="public key")
    limit = 2.0**6 * math.sqrt(noise_variance(public.kind))
    check_rows(found, digits.ravel(), secret.ravel(), public.kind, limit)

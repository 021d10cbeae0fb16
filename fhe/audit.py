"""Known answers: queries mixed into a batch whose right answers the querier knows.

Querier and contributors share a seed that the evaluator does not have. It picks the positions of
the known queries and draws every contributor's codes there, so the querier can compute the right
answers without seeing a real measure, and nothing on the wire tells a known query from a real one.
An evaluator that answers m of n queries wrongly escapes k known ones with the probability
C(n - k, m) / C(n, m), which `escape_probability` gives.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from .batched.parameters import BatchedParameters
from .code import Ints
from .envelope import PRIVATE, read_envelope, write_envelope
from .errors import AnswerError, FormatError, InputError
from .parameters import RuleParameters

_Parameters: TypeAlias = RuleParameters | BatchedParameters

KIND = "fhe audit secret"
_SEED_BYTES = 32
MAX_KNOWN = 10_000


@attrs.frozen
class Audit:
    """The secret of one batch's known answers.

    Use one for one batch: an evaluator that learns the positions can spare them.

    Attributes:
        seed: 32 bytes of the operating system's randomness; never to the evaluator.
        known: queries with known answers, k, 1 to 10,000.
    """

    seed: bytes = attrs.field(repr=False)
    known: int

    def __attrs_post_init__(self) -> None:
        if len(self.seed) != _SEED_BYTES:
            raise InputError(f"audit: seed of {len(self.seed)} bytes, expected {_SEED_BYTES}")
        if not 1 <= self.known <= MAX_KNOWN:
            raise InputError(f"audit: {self.known} known answers, expected 1 to {MAX_KNOWN}")

    def positions(self, queries: int) -> Ints:
        """Places of the known queries in a batch of that many in all, ascending, shape (k,)."""
        if queries <= self.known:
            raise InputError(f"audit: {self.known} known answers in a batch of {queries} in all")
        keys = np.frombuffer(self._stream("positions", 8 * queries), np.uint64)
        return np.sort(np.argsort(keys, kind="stable")[: self.known]).astype(np.int64)

    def codes(self, contributor: int, parameters: _Parameters) -> Ints:
        """A contributor's codes at the known queries, uniform, shape (k, classes)."""
        count = self.known * parameters.classes
        stream = self._stream(f"codes of {contributor}", 4 * count)
        # 2^bits divides 2^32, so the remainder is uniform.
        values = np.frombuffer(stream, np.uint32).astype(np.int64) % 2**parameters.bits
        return values.reshape(self.known, parameters.classes)

    def mix(self, codes: Ints, contributor: int, parameters: _Parameters) -> Ints:
        """A contributor's real codes (q, classes) with the known ones between: (q + k, classes)."""
        total = len(codes) + self.known
        mixed = np.empty((total, parameters.classes), np.int64)
        known = np.zeros(total, bool)
        known[self.positions(total)] = True
        mixed[known] = self.codes(contributor, parameters)
        mixed[~known] = codes
        return mixed

    def check(
        self, classes: Ints, parameters: _Parameters, *, present: Sequence[int] | None = None
    ) -> Ints:
        """The real answers (q,) of a batch (q + k,), if every known one is right.

        Args:
            classes: of the batch, known ones among them.
            parameters: of the rule.
            present: positions of the contributors that the answer rests on; None for all.

        Raises:
            AnswerError: a known answer is wrong; the whole batch must not be used.
        """
        positions = self.positions(len(classes))
        packing = parameters.packing
        there = range(parameters.contributors) if present is None else present
        packed = [packing.pack(self.codes(i, parameters)) for i in there]
        expected = packing.class_of(np.min(packed, axis=0))
        wrong = int(np.sum(classes[positions] != expected))
        if wrong:
            raise AnswerError(
                f"audit: {wrong} of {self.known} known answers are wrong; the evaluator cannot be"
                " trusted, use no answer of this batch"
            )
        return np.delete(classes, positions)

    def _stream(self, label: str, size: int) -> bytes:
        """A ChaCha20 key stream under a key of its own for each label."""
        key = hmac.digest(self.seed, label.encode(), hashlib.sha256)
        cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
        return cipher.encryptor().update(bytes(size))


def new_audit(known: int) -> Audit:
    """A fresh secret for one batch.

    Raises:
        InputError: `known` out of range.
    """
    return Audit(secrets.token_bytes(_SEED_BYTES), known)


def escape_probability(queries: int, known: int, wrong: int) -> float:
    """Chance that an evaluator with `wrong` of `queries` answers wrong is not noticed.

    Args:
        queries: of the batch in all.
        known: known ones among them.
        wrong: wrong answers, at places chosen without knowing the known ones.
    """
    return math.comb(queries - known, wrong) / math.comb(queries, wrong)


def save_audit(path: Path, audit: Audit) -> None:
    """Writes the secret, mode 0600, for querier and contributors."""
    write_envelope(path, KIND, {"known": audit.known}, audit.seed, mode=PRIVATE)


def load_audit(path: Path) -> Audit:
    """Reads the secret.

    Raises:
        FormatError: not such a file.
    """
    envelope = read_envelope(path, KIND, max_payload=_SEED_BYTES)
    known = envelope.header.get("known")
    if type(known) is not int or set(envelope.header) != {"known"}:
        raise FormatError(f"{path}: header members are missing or unknown; get it again")
    return Audit(envelope.payload, known)

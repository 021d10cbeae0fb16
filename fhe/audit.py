"""Known answers: queries mixed into a batch whose right answers the querier knows.

Querier and contributors share a seed that the evaluator does not have. It picks the positions of
the known queries and draws every contributor's codes there, so the querier can compute the right
answers without seeing a real measure, and nothing on the wire tells a known query from a real one.
An evaluator that answers m of n queries wrongly escapes k known ones with the probability
C(n - k, m) / C(n, m).
"""

import contextlib
import fcntl
import hashlib
import hmac
import math
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from .batched.parameters import BatchedParameters
from .code import Ints
from .envelope import PRIVATE, read_envelope, write_envelope, write_error
from .errors import AnswerError, FormatError, InputError
from .parameters import RuleParameters

_Parameters: TypeAlias = RuleParameters | BatchedParameters

KIND = "fhe audit secret"
_SEED_BYTES = 32
MAX_KNOWN = 32_768
"""As many as the largest batch of a service has queries."""
LEAK_BITS = 32.0
"""Leaving 96 of the key's 128 bits at worst: what is leaked can at best be saved from guessing."""
KEY_ANSWERS = 10_000
"""Answers under one key; a contributor's limit of a day."""


@attrs.frozen
class Audit:
    """The secret of one batch's known answers.

    Use one for one batch: an evaluator that learns the positions can spare them.

    Attributes:
        seed: 32 bytes of the operating system's randomness; never to the evaluator.
        known: queries with known answers, k, 1 to 32,768.
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


def leaked_bits(answers: int, share: float, classes: int) -> float:
    """The most that a cheating evaluator learns, on average, before a known answer exposes it.

    It alters answers and sees all that are read, so its knowledge is which of them came out
    otherwise, and how. The alterations M that miss every known answer before one hits are
    geometric with the mean a = (1 - share) / share; their entropy is at most
    H(M) + E log2 C(N, M) + a log2(C - 1), and by the concavity of m log2(e N / m)

        log2(e (a + 1)) + a log2(e N / a) + a log2(C - 1).

    It holds while the evaluator does not know the places, and stops at the first wrong answer,
    with which the keys are retired.

    Args:
        answers: N, under one key in all.
        share: of known answers among all of a batch, above 0, below 1.
        classes: C, at least 2.

    Returns:
        Bits of anything that it may want to know, of the secret key too.
    """
    passing = min((1 - share) / share, float(answers))
    which = passing * math.log2(math.e * answers / passing)
    return math.log2(math.e * (passing + 1)) + which + passing * math.log2(max(1, classes - 1))


def known_for(
    real: int, classes: int, *, bits: float = LEAK_BITS, answers: int = KEY_ANSWERS
) -> int:
    """Known answers to mix into a batch, so that `leaked_bits` stays within a bound.

    Args:
        real: queries of the batch, at least 1.
        classes: of the rule.
        bits: that may leak before detection, above 4.
        answers: under one key in all, real ones and known ones; this batch's real ones at least.

    Raises:
        InputError: a bound that no share keeps.
    """
    answers = max(answers, real)
    if not leaked_bits(answers, 1 - 1e-6, classes) < bits < math.inf:
        raise InputError(f"audit: {bits} leaked bits, expected a bound of at least 4")
    low, high = 1e-6, 1 - 1e-6
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if leaked_bits(answers, middle, classes) <= bits else (middle, high)
        )
    return min(MAX_KNOWN, math.ceil(real * high / (1 - high)))


@attrs.frozen
class AuditFile:
    """A secret on disk, for one batch and one answer of it.

    An evaluator that sees whether a batch was refused learns a place by each reaction; a secret
    that served twice would tell it where to be honest the second time.

    Attributes:
        audit: the secret.
        batch: name of its batch; "" in files of earlier versions, which name none.
        answer: digest of the answer that it was checked against, or "".
    """

    audit: Audit
    batch: str = ""
    answer: str = ""


def save_audit(path: Path, audit: Audit, batch: str = "", answer: str = "") -> None:
    """Writes the secret, mode 0600, for querier and contributors.

    Args:
        path: of the file.
        audit: the secret.
        batch: that it is for.
        answer: digest of the answer that it was spent on.
    """
    header: dict[str, object] = {"known": audit.known}
    header |= {key: value for key, value in (("batch", batch), ("answer", answer)) if value}
    write_envelope(path, KIND, header, audit.seed, mode=PRIVATE)


def load_audit(path: Path) -> Audit:
    """Reads the secret.

    Raises:
        FormatError: not such a file.
    """
    return read_audit(path).audit


def read_audit(path: Path) -> AuditFile:
    """Reads the secret, and what it is for.

    Raises:
        FormatError: not such a file.
    """
    envelope = read_envelope(path, KIND, max_payload=_SEED_BYTES)
    header = dict(envelope.header)
    known = header.pop("known", None)
    batch, answer = header.pop("batch", ""), header.pop("answer", "")
    if type(known) is not int or header or not isinstance(batch, str) or not _digest(answer):
        raise FormatError(f"{path}: header members are missing or unknown; get it again")
    return AuditFile(Audit(envelope.payload, known), batch, answer)


def _digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("([0-9a-f]{64})?", value) is not None


def audit_for(path: Path, batch: str, known: int | None = None) -> Audit:
    """The secret of a batch: a new one where there is no file, else the file's, if it is of it.

    Args:
        path: of the file; a new secret is not written yet (`save_audit`).
        batch: name of the batch; every client's is the same.
        known: known answers of a new one.

    Raises:
        InputError: the file is another batch's, or was spent, or there is none and no number.
        FormatError: not such a file.
    """
    if not path.exists():
        if known is None:
            raise InputError(f"{path}: not found; say how many known answers a new one has")
        return new_audit(known)
    found = read_audit(path)
    if found.batch != batch:
        raise InputError(
            f"{path}: the secret of {_of(found.batch)}, this is batch {batch!r}; a secret serves"
            " one batch, choose another file (or name the batch, where this is it)"
        )
    if found.answer:
        raise InputError(
            f"{path}: an answer of {_of(batch)} was checked with it already; encrypt a new batch"
            " with another file"
        )
    return found.audit


def spend_audit(path: Path, batch: str, answer: bytes) -> Audit:
    """The secret, for the check of one answer; to be called before anything is read of it.

    The file remembers the answer. The same one may be checked again, no other one.

    Args:
        path: of the file.
        batch: that the answer says it is of.
        answer: its bytes.

    Raises:
        InputError: the file is another batch's, or served another answer.
        FormatError: not such a file.
    """
    digest = hashlib.sha256(answer).hexdigest()
    with _alone(path):
        found = read_audit(path)
        if found.batch not in ("", batch):
            raise InputError(
                f"{path}: the secret of {_of(found.batch)}, the answer is of batch {batch!r}; take"
                " the file that the batch was encrypted with"
            )
        if found.answer not in ("", digest):
            raise InputError(
                f"{path}: another answer was checked with it already, and each check tells the"
                " evaluator something; encrypt again with another file"
            )
        if not found.answer:
            save_audit(path, found.audit, batch, digest)
    return found.audit


def _of(batch: str) -> str:
    return f"batch {batch!r}" if batch else "a batch that it does not name (an earlier version's)"


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps other processes from a file that is read and replaced."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError as problem:
            raise write_error(path, problem) from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Somebody may have replaced it meanwhile: then the lock is on what is no more there.
            if os.path.samestat(os.fstat(handle), path.stat()):
                yield
                return
        finally:
            os.close(handle)

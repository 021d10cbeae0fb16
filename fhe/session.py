"""The encrypted rule and the encrypted minimum in one process, without messages and files.

For trying out, measuring and teaching: everything is computed on ciphertexts and decrypted once,
at the end. But one process that holds the secret key, the evaluation keys and the codes hides
nothing from anybody. Real parties each run their own role: the querier `generate_keys`,
`make_public_key` and `read_answer`, a contributor `contribute`, the evaluator `evaluate`; their
messages carry the names of federation and batch that nobody needs here.
"""

import secrets
from typing import Any

import numpy as np

from .code import MAX_BITS, Ints, from_digits, to_digits
from .contributor import contribute
from .errors import AnswerError, InputError
from .evaluator import evaluate, evaluate_minimum
from .keys import generate_keys
from .lwe_layout import input_type, messages, secret_bits
from .parameters import RuleParameters
from .public_key import RingCiphertexts, encrypt_digits, make_public_key
from .querier import read_answer
from .ring import Words

_LEAST_BITS, _MOST_COLUMNS = 4, 256
_HALVES = 2
"""Rows lie as the queries of two classes, the fewest that the paper's rule has."""


class EncryptedRule:
    """The global rule on ciphertexts, all roles in one process (kahm.txt, 3.9).

    The keys are made once, which takes seconds, and serve every call. One process that holds
    everything proves nothing about secrecy: between real parties use `generate_keys`,
    `make_public_key`, `contribute`, `evaluate` and `read_answer`, each where its role is.

    Attributes:
        parameters: the rule's.
    """

    def __init__(
        self,
        *,
        contributors: int,
        classes: int,
        bits: int = 8,
        failure_exponent: int = 128,
        rule: str = "tournament",
    ) -> None:
        """Compiles the circuits, or finds them in the cache, and makes the keys.

        Args:
            contributors: 1 to 256.
            classes: 2 to 65,536.
            bits: of the codes, 4 to 16. 8 tell 256 measures apart: at fewer the ties cost answers,
                every further one costs time.
            failure_exponent: noise makes a decision wrong with probability at most 2^-this; 40, 64
                or 128.
            rule: "tournament", or "paper" at about `classes` times the work.

        Raises:
            InputError: an argument is out of its range.
            LibraryError: the compiler found no secure parameters.
        """
        self.parameters = RuleParameters(
            contributors=contributors,
            classes=classes,
            bits=bits,
            failure_exponent=failure_exponent,
            rule=rule,
        )
        self._keys = generate_keys(self.parameters)
        self._public = make_public_key(self._keys)

    def __call__(self, codes: Any) -> Ints:
        """The class of each query: that of the smallest code of all contributors.

        Args:
            codes: integers 0 to 2^bits - 1, shape (queries, contributors, classes).

        Returns:
            Shape (queries,); the lowest class wins a tie.

        Raises:
            InputError: another shape or type, or a code out of range.
        """
        p = self.parameters
        found = _integers(codes, "codes", ("queries", p.contributors, p.classes), p.bits)
        batch = secrets.token_hex(8)
        contributions = [
            contribute(
                found[:, i],
                self._public,
                contributor=i,
                name=f"contributor {i}",
                federation="one process",
                batch=batch,
            )
            for i in range(p.contributors)
        ]
        answer = evaluate(contributions, self._keys.evaluation, self._public)
        return read_answer(answer, self._keys, queries=len(found))


class EncryptedMinimum:
    """The minimum of each row of a table, on ciphertexts, all roles in one process.

    The keys are made once, which takes seconds, and serve tables of any number of rows. One process
    that holds everything proves nothing about secrecy; between real parties a minimum is part of
    the rule, see `EncryptedRule`.

    Attributes:
        columns: of the tables.
        bits: of the integers.
    """

    def __init__(self, *, columns: int, bits: int = 8, failure_exponent: int = 128) -> None:
        """Compiles the circuits, or finds them in the cache, and makes the keys.

        Args:
            columns: of the tables, 1 to 256.
            bits: of the integers, 4 to 16.
            failure_exponent: noise makes a row's minimum wrong with probability at most 2^-this;
                40, 64 or 128.

        Raises:
            InputError: an argument is out of its range.
            LibraryError: the compiler found no secure parameters.
        """
        if not 1 <= columns <= _MOST_COLUMNS:
            raise InputError(f"table: {columns} columns, expected 1 to {_MOST_COLUMNS}")
        if not _LEAST_BITS <= bits <= MAX_BITS:
            raise InputError(f"bits: found {bits}, expected {_LEAST_BITS} to {MAX_BITS}")
        self.columns, self.bits = columns, bits
        # Its minima over contributors are those over columns, and keep all digits of the integers.
        self._keys = generate_keys(
            RuleParameters(
                contributors=columns,
                classes=_HALVES,
                bits=bits,
                failure_exponent=failure_exponent,
                rule="paper",
            )
        )
        self._public = make_public_key(self._keys)

    def __call__(self, table: Any) -> Ints:
        """The smallest integer of each row.

        Args:
            table: integers 0 to 2^bits - 1, shape (rows, columns), at least one row.

        Returns:
            Shape (rows,).

        Raises:
            InputError: another shape or type, or an integer out of range.
        """
        found = _integers(table, "table", ("rows", self.columns), self.bits)
        encrypted = [self._encrypted(column) for column in found.T]
        smallest = evaluate_minimum(encrypted, len(found), self._keys.evaluation, self._public)
        return self._decrypted(smallest)

    def _encrypted(self, column: Ints) -> RingCiphertexts:
        """A column's digits, laid out as two halves of queries, under the public key alone."""
        p = self._public.parameters
        filled = np.append(column, np.zeros(len(column) % _HALVES, np.int64))
        digits = to_digits(filled, p.number_digits, p.base)
        halves = digits.reshape(_HALVES, -1, p.number_digits).swapaxes(0, 1)
        return encrypt_digits(halves.reshape(len(halves), p.columns), self._public)

    def _decrypted(self, smallest: Words) -> Ints:
        kind = input_type(self._keys.client.specs)
        bits = secret_bits(self._keys.client, kind).ravel()
        found = messages(smallest.reshape(-1, smallest.shape[-1]), bits, kind).astype(np.int64)
        minima = from_digits(found.reshape(smallest.shape[:-1]), self._public.parameters.base)
        wrong = np.flatnonzero((minima < 0) | (minima >= 2**self.bits))
        if len(wrong):
            raise AnswerError(
                f"table: row {wrong[0]} has the minimum {minima[wrong[0]]}, integers have"
                f" {self.bits} bits; trust none of these"
            )
        return minima


def encrypted_minimum(table: Any, *, bits: int = 8, failure_exponent: int = 128) -> Ints:
    """The minimum of each row of a table, really taken on ciphertexts, with keys for this call.

    Fresh keys take seconds: for several tables make an `EncryptedMinimum`. As there, one process
    that holds everything proves nothing about secrecy.

    Args:
        table: integers 0 to 2^bits - 1, shape (rows, columns), columns 1 to 256.
        bits: of the integers, 4 to 16.
        failure_exponent: as `EncryptedMinimum`.

    Returns:
        Shape (rows,).

    Raises:
        InputError: an argument cannot be used; before any key is made.
        LibraryError: the compiler found no secure parameters.
    """
    found = _integers(table, "table", ("rows", "columns"), bits)
    return EncryptedMinimum(columns=found.shape[1], bits=bits, failure_exponent=failure_exponent)(
        found
    )


def _integers(value: Any, name: str, shape: tuple[int | str, ...], bits: int) -> Ints:
    """An array of integers of so many bits and of the shape; a word is any size but 0.

    Raises:
        InputError: it is not; a float is never rounded.
    """
    found = np.asarray(value)
    fits = found.ndim == len(shape) and all(
        size > 0 if isinstance(wanted, str) else size == wanted
        for size, wanted in zip(found.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, shape))
        raise InputError(f"{name}: shape {found.shape}, expected ({wanted}), none of them 0")
    if found.dtype.kind not in "iu":
        raise InputError(
            f"{name}: of type {found.dtype}, expected integers; `encode_measures` makes them of"
            " measures"
        )
    if found.min() < 0 or found.max() >= 2**bits:
        raise InputError(
            f"{name}: found {found.min()} to {found.max()}, expected 0 to {2**bits - 1}, which is"
            f" what {bits} bits hold; give more bits or smaller integers"
        )
    return found.astype(np.int64)

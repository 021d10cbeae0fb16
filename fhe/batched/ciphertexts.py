"""The batched circuit on ciphertexts: SEAL's operations, with the evaluation keys alone."""

import secrets
from typing import Any

import numpy as np

from .chain import MODULUS
from .library import seal
from .packing import Residues
from .scheme import Scheme

MOST_CONSTANTS, MOST_FACTORS = 16, 48
"""That are kept for the next value: up to 10 MB, and 5 MB, each. Others are made every time, which
takes about 5 ms."""


class Centre:
    """Gives back what SEAL's rounding takes off on the average (`noise`).

    t N is added to both polynomials after every drop, N with the coefficients 0 and 1 of a
    Rudin-Shapiro sequence. It is a multiple of t, so the message stays.
    """

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._ciphertexts: dict[int, Any] = {}

    def __call__(self, ciphertext: Any, level: int) -> Any:
        """Adds it to a ciphertext that lost a prime, in place."""
        if level not in self._ciphertexts:
            self._ciphertexts[level] = self._made(level)
        self._scheme.evaluator.add_inplace(ciphertext, self._ciphertexts[level])
        return ciphertext

    def _made(self, level: int) -> Any:
        scheme = self._scheme
        pattern = np.flatnonzero(rudin_shapiro(scheme.chain.degree))[::-1]
        plain = seal().Plaintext(" + ".join(f"1x^{i}" if i else "1" for i in pattern))
        values = scheme.transformed(plain, level)
        primes = np.array(scheme.chain.primes(level), np.uint64)[:, None]
        product = times_modulus(values, primes)
        return scheme.ciphertext(np.stack([product, product]), level)


def times_modulus(residues: Residues, primes: Residues) -> Residues:
    """t times residues modulo primes of at most 55 bits; shapes (primes, n) and (primes, 1)."""
    # By t = 2^16 + 1 in two steps: a word has no room for one of 16.
    shifted = (residues << np.uint64(8)) % primes
    return ((shifted << np.uint64(8)) + residues) % primes


def rudin_shapiro(count: int) -> Residues:
    """0 or 1 by the parity of pairs of ones in i's binary digits; 1 for an even one."""
    numbers = np.arange(count)
    parity = np.zeros(count, np.int64)
    pairs = numbers & (numbers >> 1)
    while pairs.any():
        parity ^= pairs & 1
        pairs >>= 1
    return (1 - parity).astype(np.uint64)


class Ciphertexts:
    """Arithmetic on the library's ciphertexts.

    Args:
        scheme: of the rule.
        keys: the library's relinearisation keys.
        encryptor: under the public key.
    """

    def __init__(self, scheme: Scheme, keys: Any, encryptor: Any) -> None:
        self._scheme, self._keys, self._encryptor = scheme, keys, encryptor
        self._evaluator = scheme.evaluator
        self.centre = Centre(scheme)
        self._factors: dict[tuple[int, int], Any] = {}
        self._constants: dict[tuple[int, int], Any] = {}
        self._zeros: dict[int, Any] = {}

    def forget(self) -> None:
        """Frees the constants that were made: another round uses other levels."""
        self._factors.clear()
        self._constants.clear()
        self._zeros.clear()

    def level(self, a: Any) -> int:
        """Primes that a ciphertext can lose."""
        return int(a.coeff_modulus_size()) - len(self._scheme.chain.base)

    def add(self, a: Any, b: Any) -> Any:
        """a + b."""
        return self._evaluator.add(a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        """a - b."""
        return self._evaluator.sub(a, b)

    def plus(self, a: Any, constant: int) -> Any:
        """a + constant."""
        key = (self.level(a), constant % MODULUS)
        if key not in self._constants:
            if len(self._constants) == MOST_CONSTANTS:
                return self._evaluator.add_plain(a, seal().Plaintext(f"{key[1]:x}"))
            self._constants[key] = self._constant(*key)
        return self._evaluator.add(a, self._constants[key])

    def _constant(self, level: int, constant: int) -> Any:
        """A ciphertext of a constant that hides nothing: (constant, 0), the same at every root."""
        primes = self._scheme.chain.primes(level)
        centred = constant - MODULUS if constant > MODULUS // 2 else constant
        residues = np.zeros((2, len(primes), self._scheme.chain.degree), np.uint64)
        residues[0] = np.array([centred % prime for prime in primes], np.uint64)[:, None]
        return self._scheme.ciphertext(residues, level)

    def times(self, a: Any, constant: int) -> Any:
        """a * constant."""
        if constant == -1:
            return self._evaluator.negate(a)
        key = (self.level(a), constant % MODULUS)
        factor = self._factors.get(key)
        if factor is None:
            plain = seal().Plaintext(f"{key[1]:x}")
            factor = self._evaluator.transform_to_ntt(plain, a.parms_id())
            if len(self._factors) < MOST_FACTORS:
                self._factors[key] = factor
        return self._evaluator.multiply_plain(a, factor)

    def multiply(self, a: Any, b: Any) -> Any:
        """a * b."""
        return self._evaluator.square(a) if a is b else self._evaluator.multiply(a, b)

    def relinearize(self, a: Any) -> Any:
        """The same, of two polynomials."""
        return a if a.size() == 2 else self._evaluator.relinearize(a, self._keys)

    def drop(self, a: Any) -> Any:
        """The same, one prime less."""
        prime = self._scheme.chain.levels[self.level(a) - 1]
        found = self._evaluator.mod_switch_to_next(a)
        level = self.level(found)
        if prime % MODULUS != 1:
            # The library would keep account of the slots' factor by itself, and even terms of a sum
            # out at the price of noise; the circuit does it for nothing.
            found = self._scheme.ciphertext(self._scheme.residues(found), level)
        return self.centre(found, level)

    def mask(self, a: Any) -> Any:
        """Times a uniform polynomial, which is uniform in every slot."""
        plain = uniform_plaintext(self._scheme.chain.degree, self._scheme)
        return self._evaluator.multiply_plain(
            a, self._evaluator.transform_to_ntt(plain, a.parms_id())
        )

    def accumulate(self, total: Any | None, a: Any) -> Any:
        """total + a.

        A sum begins with an encryption of 0 that contributors do not know: the library refuses a
        ciphertext whose second polynomial is zero, and theirs could be made to cancel.
        """
        if total is None:
            return self._evaluator.add(a, self._zero(self.level(a)))
        self._evaluator.add_inplace(total, a)
        return total

    def _zero(self, level: int) -> Any:
        if level not in self._zeros:
            self._zeros[level] = self.fresh_zero(level)
        return self._zeros[level]

    def fresh_zero(self, level: int) -> Any:
        """An encryption of 0 that was never used."""
        found = self._encryptor.encrypt_zero(self._scheme.identifier(level))
        return self.centre(found, level)


def uniform_plaintext(degree: int, scheme: Scheme) -> Any:
    """A plaintext of independent uniform coefficients, from the operating system."""
    return scheme.encoder.encode(uniform(degree, MODULUS).astype(np.uint64))


def uniform(count: int, modulus: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Independent uniform integers below a modulus of at most 32 bits, by rejection."""
    found = np.empty(0, np.int64)
    limit = 2**32 - 2**32 % modulus
    while len(found) < count:
        drawn = np.frombuffer(secrets.token_bytes(4 * (count - len(found))), "<u4")
        found = np.concatenate([found, drawn[drawn < limit].astype(np.int64) % modulus])
    return found

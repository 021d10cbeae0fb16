"""What a ciphertext holds under the secret key, computed beside the library: c0 + c1 s modulo q."""

import numpy as np

from fhe.batched.keys import ternary
from fhe.batched.library import seal
from fhe.batched.scheme import scheme_of

LIMB = 15


def negacyclic(a, b):
    """a b modulo X^n + 1, for integers whose products' sums stay below 2^50."""
    n = len(a)
    twist = np.exp(1j * np.pi * np.arange(n) / n)
    found = np.fft.ifft(np.fft.fft(a * twist) * np.fft.fft(b * twist)) / twist
    return np.rint(found.real).astype(np.int64)


def phase(ciphertext, keys):
    """Coefficients of c0 + c1 s, of least absolute value modulo the ciphertext's modulus."""
    scheme = scheme_of(keys.parameters.chain)
    secret = ternary(scheme, keys.library_secret)
    plain = seal().Ciphertext(ciphertext)
    scheme.evaluator.transform_from_ntt_inplace(plain)
    residues = scheme.residues(plain)
    level = residues.shape[1] - len(scheme.chain.base)
    total, modulus = 0, 1
    for prime, c0, c1 in zip(scheme.chain.primes(level), *residues, strict=True):
        limbs = [(c1 >> np.uint64(shift)) & np.uint64(2**LIMB - 1) for shift in range(0, 60, LIMB)]
        product = sum(
            negacyclic(limb.astype(np.int64), secret).astype(object) << (LIMB * i)
            for i, limb in enumerate(limbs)
        )
        found = (product + c0.astype(object)) % prime
        # The Chinese remainder theorem, a prime at a time.
        total = total + modulus * ((found - total) * pow(modulus, -1, prime) % prime)
        modulus *= prime
    return np.array([each - modulus if each > modulus // 2 else each for each in total], object)


def at_roots(coefficients):
    """Absolute values at the roots of X^n + 1."""
    n = len(coefficients)
    twist = np.exp(1j * np.pi * np.arange(n) / n)
    return np.abs(np.fft.fft(coefficients.astype(np.float64) * twist))

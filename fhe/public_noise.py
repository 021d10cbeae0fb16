"""The noise of public keys: how much there is, and what it does to a circuit's look-ups.

sigma: TFHE-rs takes 3.1 times the library's deviation at k N = 2048 (its curve for 132 bits). More
noise is never less secure and costs nothing but room in the failure probability, of which there is
plenty (2^-44 of a look-up's failure at most, 2^-20 is allowed), so it is 64 times here. That guards
r, and so every contribution by itself; s stays guarded by the noise of the library's evaluation
keys. `python -m benchmarks.lwe_hardness` estimates both.

Noise: with r and s fair bits its variance is sigma^2 (k N / 2 + k N / 2 + 1), about 45 sigma at
k N = 2048; at most sigma^2 (2 k N + 1) whatever r and s are. That is over the keys: for one key a
quarter of it, <E, 1/2 (1 + X + ...)>, stays the same in every ciphertext and has few degrees of
freedom, so a single key's noise scatters around the formula. The noise exceeds a fresh
encryption's, for which the circuit was compiled, so the failure probability is computed anew.
Every table look-up first rounds its ciphertext to 2 N steps, whose variance
V = (n / 2 + 1) / (12 (2 N)^2) alone bounds the total from below (n: dimension of the small key).
Input noise enters a look-up of the rules as a - b: weights whose magnitudes add up to 2, correlated
at worst (2^2 times the variance), and scaled by at most 2^2 where the compiler aligns widths (2^4):
AMPLIFICATION = 2^6.
A Gaussian tail of probability f grows, when the variance grows by
the share d, by a factor of at most exp(d (ln(1 / f) + 1)). `failure_growth` gives the exponent;
over 2^-20 is refused.
"""

import math

from .compiled import CompiledRule
from .errors import LibraryError
from .lwe_layout import WORD_BITS, InputType, read_specs

NOISE_FACTOR = 2.0**6
AMPLIFICATION = 2.0**6
MAX_GROWTH = 2.0**-20

# log2 of the smallest deviation at 128 bits by dimension, as concrete-python 2.11 places every key
# of its circuits: a line through the stated variances, and a floor of four steps of 2^-64.
_SLOPE, _BIAS, _FLOOR = -0.02569677871148461, 2.675931372549024, -62.0


def variance_of(kind: InputType) -> float:
    """Of chi, a fraction of the torus squared: NOISE_FACTOR^2 times the library's."""
    return kind.variance * NOISE_FACTOR**2


def deviation_of(kind: InputType) -> float:
    """Of chi, in steps of 2^-64 of the torus."""
    return math.sqrt(variance_of(kind)) * 2.0**WORD_BITS


def check_security(kind: InputType) -> None:
    """Refuses less noise than the library's curve of 128 bits asks for at the dimension.

    Raises:
        LibraryError: so.
    """
    least = max(_SLOPE * kind.dimension + _BIAS, _FLOOR)
    found = math.log2(kind.variance) / 2 if kind.variance > 0 else -math.inf
    if found < least - 1e-6:
        raise LibraryError(
            f"concrete-python: input noise 2^{found:.2f} at dimension {kind.dimension}, 128 bits"
            f" need 2^{least:.2f}; no public key was made"
        )


def noise_variance(kind: InputType) -> float:
    """Of a ciphertext's phase, r and s fair bits; a fraction of the torus squared."""
    return variance_of(kind) * (kind.dimension + 1)


def failure_growth(rule: CompiledRule, kind: InputType) -> float:
    """Bound of ln(failure with the noise of the public key / failure compiled for) of a look-up."""
    steps = min(
        (each["params"]["inputLweDimension"] / 2 + 1)
        / (12 * (2 * each["params"]["polynomialSize"]) ** 2)
        for each in read_specs(rule.specs)["keyset"]["lweBootstrapKeys"]
    )
    worst = variance_of(kind) * (2 * kind.dimension + 1)
    share = AMPLIFICATION * worst / steps
    return float(share * (1 - math.log(rule.failure)))


def check_failure(rule: CompiledRule, kind: InputType) -> None:
    """Refuses noise that the circuit was not compiled for.

    Raises:
        LibraryError: a look-up's failure would grow by more than the share MAX_GROWTH.
    """
    growth = failure_growth(rule, kind)
    if not growth <= MAX_GROWTH:
        raise LibraryError(
            f"public key: its noise raises a look-up's failure by the factor"
            f" e^{growth:.3g}, at most e^{MAX_GROWTH:.3g} is allowed; use other rule parameters"
        )

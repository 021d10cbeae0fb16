"""What integer Gaussian noise is worth: continuous noise of a variance smaller by `SPREAD`.

Proof that holds for integer vectors of any dimension, for every shift and for adaptive composition.
Write f_v(k) for exp(-k^2 / (2 v)). For any real m, Poisson summation gives

    sum over integers j of f_s(j - m) = sqrt(2 pi s) (1 + e),   |e| <= eta(s),        (*)
    eta(s) = 2 sum over j >= 1 of exp(-2 pi^2 s j^2).

1. Parts. The convolution of f_a and f_b at k is f_(a+b)(k) times such a sum with
   s = a b / (a + b) (complete the square). So the law of a sum of n discrete Gaussians of variance
   parameter v is, pointwise, that of one discrete Gaussian of parameter n v up to factors
   (1 + eta(s_i)) / (1 - eta(s_i)) or their inverse, s_i = v i / (i + 1) >= v / 2, i = 1..n-1.
2. Rounding. Take y = x + N(0, w - t) for an integer x and draw an integer k with probability
   proportional to f_t(k - y). By (*) the normaliser is constant up to eta(t), and what is left
   integrates to f_w(k - x): the law of k is, pointwise and up to (1 + eta(t)) / (1 - eta(t)), that
   of x plus a discrete Gaussian of parameter w. And k depends on x only through y: it is
   post-processing of the Gaussian mechanism of variance w - t.

So an integer vector x under n parts of parameter v in each of d entries is, up to a factor e^(+-c)
of every probability, post-processing of x under N(0, n v - t), with
c <= 4 d (eta(t) + n eta(v / 2)). Of several sums, each of which may depend on those before, the
factors multiply. If the continuous mechanisms keep (epsilon, delta), the discrete ones keep
(epsilon + 2 c, e^c delta). With t = `SPREAD` and v >= `SMALLEST_SIGMA`^2 and up to 2^40 entries in
all and 2^20 parts c is below 1e-20: far below what accountants round up by. More parts, of anybody
who follows the protocol, are independent of x and add nothing to epsilon.
"""

import math

from dp.errors import InputError

SPREAD = 4.0
"""t, in squared grid steps; eta is below 1e-33."""
SMALLEST_SIGMA = 4.0
"""Of a part, in grid steps; eta(v / 2) is below 1e-67."""


def continuous_multiplier(sensitivity: float, sigma: float, parts: int = 1) -> float:
    """Noise multiplier of continuous Gaussian noise that is no more private than the parts' sum.

    Args:
        sensitivity: L2 norm by which what is protected moves the integers, in steps, > 0.
        sigma: parameter of each part, in steps, at least `SMALLEST_SIGMA`.
        parts: that are surely in the sum, at least 1.

    Raises:
        InputError: a smaller sigma: the proof does not cover it.
    """
    if sigma < SMALLEST_SIGMA:
        raise InputError(
            f"noise: {sigma:.3g} grid steps, at least {SMALLEST_SIGMA:g} are needed; take a finer"
            " grid"
        )
    return math.sqrt(parts * sigma**2 - SPREAD) / sensitivity

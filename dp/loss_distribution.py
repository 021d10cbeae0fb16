"""Epsilon of composed Gaussian events from above: an exact curve, and a rounded loss distribution.

Where every record takes part, k draws of multiplier s are one Gaussian of squared shift k / s^2
whose curve is known (Balle and Wang 2018, theorem 8). On Poisson samples the privacy loss of a step
is put on a grid so that its curve only rises, and losses are added up by one Fourier transform. The
error of everything that is done in floating point or left out is bounded and added:

1. Grid (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the dots"): mass between two
   points goes to both so that the masses under either data set are kept. A curve is convex in
   e^epsilon, so the chords lie above it; above in each step is above in the composition (Zhu, Dong,
   Wang 2022, theorem 10, both directions apart).
2. Mass is integrated by Gauss and Legendre's rule of 5 points over cells of at most 1/32 of the
   densities' scale, which is relatively exact to 1e-11; masses are raised by `RAISED` a step.
3. Losses whose probability is below a share of delta count as a failure; so does what falls beyond
   the window of the transform.
4. Masses are tilted by e^(t loss) before the transform and back after it, t near the best order, so
   that its error is relative to what is looked for, however small delta is. In the mean square it
   is at most c log2(N) u times the norm (Higham 2002, theorem 24.2), to the power k at most k times
   that; the window's ends only add mass to it (a circular convolution wraps, it loses nothing).
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Array = NDArray[np.float64]
Step = tuple[float, float, int]
"""Noise multiplier, sampling rate, times."""

UNIT = float(np.finfo(float).eps)
CELL = 1 / 32
RAISED = 1e-10
LEFT_OUT = 1e-6
"""Share of delta that is given to losses that are not looked at."""
FINENESS = 0.06
"""Grid step over the losses' standard deviation: adds a relative 1e-3 to their variance at most."""
COARSEST = 0.02
MOST_LOSSES = 2**18
SHARPEST = -math.log(1e-15)
MOST_POINTS = 2**22
TRANSFORM_ERROR = 16 * UNIT
"""Per log2 of the length; the constant of the theorem is below 8 for any radix in use."""


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """An upper bound on log delta(epsilon) of one Gaussian whose mean moves by mu deviations.

    delta = Q(x) - e^epsilon Q(x + mu) with x = epsilon / mu - mu / 2, as a difference of Mills'
    ratios, which loses no digits where delta is small. Rounding errors are added.

    Args:
        mu: above 0.
        epsilon: at least 0.
    """
    from scipy.special import erfcx, log_ndtr

    x = epsilon / mu - mu / 2
    slack = 8 * UNIT * (1 + max(epsilon / mu, mu) ** 2)
    if x < -4:
        return min(0.0, float(log_ndtr(-x)) + slack)
    ratio = [math.sqrt(math.pi / 2) * float(erfcx(each / math.sqrt(2))) for each in (x, x + mu)]
    difference = ratio[0] - ratio[1] + 16 * UNIT * ratio[0]
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    return min(0.0, log_density + math.log(difference) + slack)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon, from above, of one Gaussian whose mean moves by mu deviations.

    Args:
        mu: at least 0.
        delta: in (0, 1).
    """
    mu = float(mu) * (1 + 4 * UNIT)
    if mu == 0:
        return 0.0
    upper = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1e-12
    return _least_epsilon(lambda epsilon: gaussian_log_delta(mu, epsilon), math.log(delta), upper)


def _least_epsilon(log_delta: Callable[[float], float], target: float, upper: float) -> float:
    """Where a falling function passes the target, from above, to a relative 1e-9 of `upper`."""
    if log_delta(0.0) <= target:
        return 0.0
    low, high = 0.0, upper
    while log_delta(high) > target:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) > target else (low, middle)
    return high


@frozen(eq=False, slots=False)
class Losses:
    """A step's losses on the grid, in one direction.

    Attributes:
        first: index of the first mass; the loss is the index times the grid's step.
        masses: shape (points,).
        failure: probability of what is not in the masses.
        times: that the step is taken.
    """

    first: int
    masses: Array
    failure: float
    times: int

    def log_moment(self, tilt: float, width: float) -> float:
        """log of the mean of e^(tilt loss)."""
        exponent = self._log_masses + tilt * width * self._indices
        top = float(exponent.max())
        return top + math.log(float(np.exp(exponent - top).sum()))

    def tilted(self, tilt: float, width: float) -> Array:
        """Masses times e^(tilt loss), of sum 1 up to rounding."""
        exponent = self._log_masses + tilt * width * self._indices
        scaled: Array = np.exp(exponent - self.log_moment(tilt, width))
        return scaled

    @cached_property
    def _log_masses(self) -> Array:
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.masses)
        return logs

    @cached_property
    def _indices(self) -> Array:
        return np.arange(self.first, self.first + len(self.masses), dtype=float)


def loss_of(z: Array, sigma: float, rate: float) -> Array:
    """log of the mixture's density over the plain Gaussian's at z."""
    exponent = (2 * z - 1) / (2 * sigma**2)
    if rate == 1:
        return exponent
    # Where the exponential overflows, the plain part is far below a rounding error.
    small = np.log1p(rate * np.expm1(np.minimum(exponent, 600.0)))
    return np.where(exponent > 600, exponent + math.log(rate), small)


def _drawn_at(loss: Array, sigma: float, rate: float) -> Array:
    """The z of that loss; -inf below all losses."""
    if rate == 1:
        return sigma**2 * loss + 0.5
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inside = np.log1p(np.expm1(np.minimum(loss, 600.0)) / rate)
    exponent = np.where(loss > 600, loss - math.log(rate), inside)
    return np.where(np.isnan(exponent), -np.inf, sigma**2 * exponent + 0.5)


def grid_losses(step: Step, width: float, cut: float, *, removed: bool) -> Losses:
    """The losses of one sampled step on multiples of `width`, never below the true curve.

    Args:
        step: noise multiplier, sampling rate and times.
        width: of the grid, above 0.
        cut: probability that may be left out at either end.
        removed: whether the record is in the data that is drawn from, or in the other.
    """
    from scipy.special import ndtri, roots_legendre

    sigma, rate, times = step
    reach = sigma * -float(ndtri(cut))
    low, high = -reach, reach + removed
    ends = loss_of(np.array([low, high]), sigma, rate)
    grid = np.arange(math.floor(ends[0] / width), math.ceil(ends[1] / width) + 1) * width
    cell = min(sigma, sigma**2) * CELL
    even = np.linspace(low, high, math.ceil((high - low) / cell) + 1)
    edges = np.concatenate([even, np.clip(_drawn_at(grid, sigma, rate), low, high)])
    edges = np.unique(edges)
    nodes, weights = roots_legendre(5)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + nodes)).ravel()
    mass = (half * weights).ravel() * _density(z, sigma, rate if removed else 0.0)
    loss = loss_of(z, sigma, rate)
    losses = _split(loss if removed else -loss, mass * (1 + RAISED), width)
    # Of the ends one has the least losses: counting it as a failure is never too little.
    return Losses(*losses, 2 * cut, times)


def _density(z: Array, sigma: float, rate: float) -> Array:
    plain = np.exp(-np.square(z / sigma) / 2)
    if rate:
        plain = (1 - rate) * plain + rate * np.exp(-np.square((z - 1) / sigma) / 2)
    scaled: Array = plain / (sigma * math.sqrt(2 * math.pi))
    return scaled


def _split(loss: Array, mass: Array, width: float) -> tuple[int, Array]:
    """Each mass on both neighbours on the grid, so that it and its part of e^-loss are kept."""
    below = np.floor(loss / width)
    share = np.expm1(below * width - loss) / math.expm1(-width)
    # Upwards: more than the rounding error of a loss over the grid's step.
    share = np.clip(share + 1e-8, 0.0, 1.0)
    first = int(below.min())
    index = (below - first).astype(np.intp)
    size = int(index.max()) + 2
    split: Array = np.bincount(index + 1, mass * share, size).astype(float)
    split += np.bincount(index, mass * (1 - share), size)
    return first, split


def sampled_epsilon(steps: Sequence[Step], delta: float) -> float | None:
    """Epsilon of sampled Gaussian steps for a record added or removed, from above.

    Args:
        steps: noise multipliers, sampling rates and times, at least one.
        delta: in (0, 1).

    Returns:
        None where the grid would have more than 2^22 points, or delta is below 1e-290.
    """
    total = sum(times for _, _, times in steps)
    cut = LEFT_OUT * delta / (4 * total)
    if cut < 1e-300:
        return None
    found = []
    for removed in (True, False):
        width = _width(steps, cut, removed=removed)
        if width is None:
            return None
        losses = [grid_losses(step, width, cut, removed=removed) for step in steps]
        epsilon = _composed(losses, width, delta)
        if epsilon is None:
            return None
        found.append(epsilon)
    return max(found)


def _width(steps: Sequence[Step], cut: float, *, removed: bool) -> float | None:
    """Fine beside the losses' deviation; None where a step has too many points."""
    from scipy.special import ndtri

    variance, widest = 0.0, 0.0
    for sigma, rate, times in steps:
        reach = sigma * -float(ndtri(cut))
        if reach > 2**14 * min(sigma, sigma**2):
            return None
        z = np.linspace(-reach, reach + removed, 4001)
        loss = loss_of(z, sigma, rate)
        weight = _density(z, sigma, rate if removed else 0.0)
        mean = float((weight * loss).sum() / weight.sum())
        variance += times * float((weight * np.square(loss - mean)).sum() / weight.sum())
        widest = max(widest, float(loss[-1] - loss[0]))
    deviation = math.sqrt(variance / sum(times for _, _, times in steps))
    width = max(min(FINENESS * deviation, COARSEST), widest / MOST_LOSSES)
    return width if width > 0 else None


def _composed(losses: Sequence[Losses], width: float, delta: float) -> float | None:
    """Epsilon of the sum of all losses, in one direction."""
    from scipy.fft import irfft, next_fast_len, rfft

    def moment(tilt: float) -> float:
        return sum(each.times * each.log_moment(tilt, width) for each in losses)

    tilt = _best_tilt(moment, delta)
    tilted = [each.tilted(tilt, width) for each in losses]
    log_scale = moment(tilt)
    low, high = _window(losses, tilted, tilt, width, moment)
    start = math.floor(low / width)
    size = next_fast_len(math.ceil(high / width) - start + 2, real=True)
    if size > MOST_POINTS:
        return None
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    transform = TRANSFORM_ERROR * math.log2(size)
    total = sum(each.times for each in losses)
    error = transform + 4 * UNIT * (1 + math.pi * total)
    for each, masses in zip(losses, tilted, strict=True):
        places = np.arange(each.first, each.first + len(masses)) % size
        wrapped = np.bincount(places, masses, size)
        frequencies = rfft(wrapped)
        with np.errstate(divide="ignore"):
            size_of = np.exp(each.times * np.log(np.abs(frequencies)))
        spectrum *= size_of * np.exp(1j * each.times * np.angle(frequencies))
        error += each.times * transform * float(np.linalg.norm(wrapped))
    sums = np.maximum(np.roll(irfft(spectrum, size), -(start % size)), 0.0)
    at = (start + np.arange(size)) * width
    failure = math.fsum(each.times * each.failure for each in losses)
    beyond = math.exp(-SHARPEST)

    def log_delta(epsilon: float) -> float:
        above = at[np.searchsorted(at, epsilon, side="right") :] - epsilon
        # Relative to the first that counts: far above epsilon all weights would be 0.
        least = float(above[0]) if len(above) else high - epsilon
        weight = np.exp(-tilt * (above - least)) * -np.expm1(-above)
        mass = float(sums[size - len(above) :] @ weight)
        mass += error * float(np.linalg.norm(weight))
        mass += beyond * math.exp(min(0.0, tilt * (epsilon + least - high)))
        found = log_scale - tilt * (epsilon + least) + math.log(mass) + 1e-8
        return float(np.logaddexp(found, math.log(failure)))

    upper = float(max((log_scale - math.log(delta)) / tilt, width)) * (1 + 1e-6) + 1e-9
    epsilon = _least_epsilon(log_delta, math.log(delta), upper)
    largest = max(max(-each.first, each.first + len(each.masses)) for each in losses) * width
    return epsilon + total * 16 * UNIT * (1 + largest) if epsilon else 0.0


def _best_tilt(moment: Callable[[float], float], delta: float) -> float:
    """Near the tilt of Chernoff's least bound; any tilt is valid."""
    from scipy.optimize import minimize_scalar

    def epsilon(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        return (moment(tilt) - math.log(delta)) / tilt

    coarse = min(np.linspace(math.log(1e-2), math.log(1e6), 12), key=epsilon)
    found = minimize_scalar(
        epsilon, bounds=(coarse - 2, coarse + 2), method="bounded", options={"xatol": 0.02}
    )
    return math.exp(float(found.x))


def _window(
    losses: Sequence[Losses],
    tilted: Sequence[Array],
    tilt: float,
    width: float,
    moment: Callable[[float], float],
) -> tuple[float, float]:
    """Sums of losses outside have less than 1e-15 of the tilted mass, by Chernoff's bound."""
    variance = 0.0
    for each, masses in zip(losses, tilted, strict=True):
        at = np.arange(len(masses)) * width
        mean = float(masses @ at)
        variance += each.times * float(masses @ np.square(at - mean))
    deviation = math.sqrt(max(variance, width**2))
    here, low, high = moment(tilt), -math.inf, math.inf
    for sharpness in (1.0, 3.0, 6.0, 9.0):
        step = sharpness / deviation
        high = min(high, (moment(tilt + step) - here + SHARPEST) / step)
        low = max(low, -(moment(tilt - step) - here + SHARPEST) / step)
    return low, high

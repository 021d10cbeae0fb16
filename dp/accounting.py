"""What several private events cost together, in one unit.

An event is either a promise (epsilon, delta) or Gaussian noise of a known multiplier, on all
records or on a Poisson sample of them. Promises compose by the best of the basic, the advanced and
the exact rule; Gaussian events by their exact curve, by a privacy loss distribution whose errors
are bounded and added, or by Renyi divergences. Every value is an upper bound on the true epsilon.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp.errors import InputError
from dp.loss_distribution import Step, gaussian_epsilon, sampled_epsilon
from dp.mechanisms import check_delta, check_epsilon

Array: TypeAlias = NDArray[np.float64]

MOST_ATOMS = 400_000
"""Distinct privacy losses that the exact rule enumerates before it leaves the others to win."""
SAFETY = 1 + 1e-9
"""Above the rounding error of the sums in double precision."""
ROUNDING = 1e-12
"""Relative, above the rounding errors of a closed form in double precision."""
EXACT, SUMMED, RENYI = "exact Gaussian curve", "privacy loss distribution", "Renyi divergences"
"""Rules of Gaussian events."""


@frozen
class Promise:
    """One (epsilon, delta) event."""

    epsilon: float
    delta: float

    def __attrs_post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)


@frozen
class Gaussian:
    """Gaussian noise events.

    Attributes:
        noise_multiplier: sigma over the L2 sensitivity, above 0.
        sample_rate: of Poisson sampling, in (0, 1]; 1 when every record takes part.
        steps: times the noise is drawn, at least 1.
        discrete: integer noise whose bound is the concentrated (RDP) one only, such as discrete
            Gaussian noise of few grid steps, or of books kept before `dp.gaussian_parts`. That of
            `dp.rounded_gaussian` and of `dp.gaussian_parts` costs what continuous noise costs.
        whole_orders: its bound is proven at whole Renyi orders alone, as Skellam noise's is; only
            with `discrete`.
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    steps: int = 1
    discrete: bool = False
    whole_orders: bool = False

    def __attrs_post_init__(self) -> None:
        if self.whole_orders and not self.discrete:
            raise InputError("whole orders: found with continuous noise, expected discrete noise")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise InputError(
                f"noise multiplier: found {self.noise_multiplier!r}, expected a number above 0"
            )
        if not 0 < self.sample_rate <= 1:
            raise InputError(f"sample rate: found {self.sample_rate!r}, expected it in (0, 1]")
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps: found {self.steps!r}, expected a whole number of at least 1")


@frozen
class Composition:
    """What events cost together.

    Attributes:
        epsilon: at least 0; infinite when delta is too small for the events.
        delta: at which epsilon holds.
        rule: the composition rule or accountant that gave the number.
    """

    epsilon: float
    delta: float
    rule: str


def compose_promises(promises: Sequence[Promise], delta: float) -> Composition:
    """The best of basic, advanced and exact composition.

    Kairouz, Oh, Viswanath (2015), theorems 3.3 to 3.5: k promises are no worse than k randomised
    responses with losses +-epsilon_i, each of which fails altogether with probability delta_i.

    Args:
        promises: of mechanisms that may be chosen adaptively.
        delta: in [0, 1).
    """
    if not promises:
        return Composition(0.0, delta, "no event")
    failure = -math.expm1(sum(math.log1p(-p.delta) for p in promises))
    basic = sum(p.epsilon for p in promises)
    if failure > delta * (1 + 1e-12):
        return Composition(math.inf, delta, f"delta {delta:g} is below that of the events")
    found = [Composition(basic, delta, "basic")]
    # Less than the rounding error of the failure is none.
    slack = (delta - failure * (1 + ROUNDING)) / (1 - failure)
    if slack > 0 and len(promises) > 1:
        found.append(Composition(_advanced(promises, slack), delta, "advanced"))
        losses = _losses(promises)
        if losses is not None:
            found.append(Composition(_exact(*losses, slack, basic), delta, "exact"))
    return min(found, key=lambda each: each.epsilon)


def _advanced(promises: Sequence[Promise], slack: float) -> float:
    mean = sum(p.epsilon * math.tanh(p.epsilon / 2) for p in promises)
    square = sum(p.epsilon**2 for p in promises)
    return mean + math.sqrt(2 * math.log(1 / slack) * square)


def _losses(promises: Sequence[Promise]) -> tuple[Array, Array] | None:
    """Values and probabilities of the summed loss, or None when there are too many values."""
    from scipy.stats import binom

    values, weights = np.zeros(1), np.ones(1)
    for epsilon, count in Counter(p.epsilon for p in promises).items():
        if len(values) * (count + 1) > MOST_ATOMS:
            return None
        ups = np.arange(count + 1)
        own = binom.pmf(ups, count, 1 / (1 + math.exp(-epsilon)))
        values = np.add.outer(values, (2 * ups - count) * epsilon).ravel()
        weights = np.multiply.outer(weights, own).ravel()
    return values, weights


def _exact(values: Array, weights: Array, slack: float, upper: float) -> float:
    """The least epsilon with E[(1 - e^(epsilon - loss))+] <= slack, found by bisection."""

    def excess(epsilon: float) -> float:
        above = values > epsilon
        return float(np.sum(weights[above] * -np.expm1(epsilon - values[above])))

    low, high = 0.0, upper
    if excess(low) <= slack / SAFETY:
        return 0.0
    while high - low > 1e-9 * upper:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > slack / SAFETY else (low, middle)
    return high * SAFETY


def _merged(events: Sequence[Gaussian]) -> tuple[Gaussian, ...]:
    """Equal events as one of more steps, in a fixed order: composition does not depend on it."""
    steps: Counter[tuple[float, float, bool, bool]] = Counter()
    for e in events:
        steps[e.noise_multiplier, e.sample_rate, e.discrete, e.whole_orders] += e.steps
    return tuple(Gaussian(s, q, n, d, w) for (s, q, d, w), n in sorted(steps.items()))


def rdp_epsilon(events: Sequence[Gaussian], delta: float) -> float:
    """Epsilon by Renyi divergences (Mironov 2017), for continuous and discrete noise.

    The order's conversion is proposition 12 of Canonne, Kamath, Steinke (2020); the least over many
    orders is taken, each of which is valid. On a sample the bound for discrete noise is proven at
    whole orders only: there the divergence of the mixture is a sum of moments (Mironov, Talwar,
    Zhang 2019, section 3.3), each at most that of continuous noise.
    """
    return _rdp(_merged(events), delta)


@lru_cache(maxsize=1024)
def _rdp(events: tuple[Gaussian, ...], delta: float) -> float:
    orders = np.array([*range(2, 64), *(2**k for k in range(6, 14))], dtype=float)
    if not any(e.whole_orders or (e.discrete and e.sample_rate < 1) for e in events):
        orders = np.union1d(orders, 1 + np.arange(1, 100) / 10)
    if not any(e.whole_orders or e.sample_rate < 1 for e in events):
        orders = np.union1d(orders, 1 + np.geomspace(1e-4, 1e6, 2001))
    total = sum(e.steps * _step_rdp(e.noise_multiplier, e.sample_rate, orders) for e in events)
    epsilons = total + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    least = float(np.nanmin(np.where(np.isfinite(epsilons), epsilons, math.inf)))
    return max(0.0, least + ROUNDING * abs(least))


def _step_rdp(noise_multiplier: float, sample_rate: float, orders: Array) -> Array:
    """Divergence of a step at each order, above its rounding errors."""
    if sample_rate == 1:
        return orders / (2 * noise_multiplier**2) * (1 + ROUNDING)
    from opacus.accountants.analysis import rdp

    found: Any = rdp.compute_rdp(
        q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=orders.tolist()
    )
    # A log of a sum near 1 whose terms come from logs of factorials: off by their size in units
    # of the last place, which is much where noise is large.
    slack = 64 * np.finfo(float).eps * orders * (np.log(orders) + 4) / (orders - 1)
    above: Array = np.maximum(np.asarray(found), 0.0) * (1 + ROUNDING) + slack
    return above


@lru_cache(maxsize=1024)
def _sampled(steps: tuple[Step, ...], delta: float) -> float | None:
    return sampled_epsilon(steps, delta)


def compose_gaussians(events: Sequence[Gaussian], delta: float) -> Composition:
    """Gaussian events together: never below the exact epsilon.

    Continuous noise on all records has an exact curve; on samples a privacy loss distribution is
    rounded up (`dp.loss_distribution`), or the Renyi bound counts where that has too many values;
    for discrete noise the Renyi bound.
    """
    if not events:
        return Composition(0.0, delta, "no event")
    if delta == 0:
        return Composition(math.inf, delta, "Gaussian noise needs delta above 0")
    merged = _merged(events)
    if any(e.discrete for e in merged):
        return Composition(_rdp(merged, delta), delta, RENYI)
    if all(e.sample_rate == 1 for e in merged):
        mu = math.sqrt(math.fsum(e.steps / e.noise_multiplier**2 for e in merged))
        return Composition(gaussian_epsilon(mu, delta), delta, EXACT)
    steps = tuple((e.noise_multiplier, e.sample_rate, e.steps) for e in merged)
    found = _sampled(steps, delta)
    if found is None:
        rule = f"{RENYI} (too many privacy losses to add up)"
        return Composition(_rdp(merged, delta), delta, rule)
    return Composition(found, delta, SUMMED)


def compose(
    promises: Sequence[Promise], gaussians: Sequence[Gaussian], delta: float
) -> Composition:
    """Promises and Gaussian events of one unit together.

    When there are both, Gaussian events get half of the delta that the promises leave and the two
    epsilons add up.
    """
    if not gaussians:
        return compose_promises(promises, delta)
    if not promises:
        return compose_gaussians(gaussians, delta)
    failure = -math.expm1(sum(math.log1p(-p.delta) for p in promises))
    half = (delta - failure) / 2
    if half <= 0:
        return Composition(math.inf, delta, f"delta {delta:g} leaves none for Gaussian events")
    first = compose_promises(promises, delta - half)
    second = compose_gaussians(gaussians, half)
    return Composition(
        first.epsilon + second.epsilon, delta, f"basic over: {first.rule}; {second.rule}"
    )

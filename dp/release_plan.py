"""The public choices of a release, checked before any private value is touched (kahm.txt, 3.8)."""

import math
from fractions import Fraction
from typing import Literal, TypeAlias

from attrs import frozen

from dp.accounting import Gaussian, Promise
from dp.adjacency import Element, Record
from dp.errors import InputError
from dp.events import Event
from dp.gaussian_parts import SMALLEST_SIGMA, continuous_multiplier
from dp.grid import Grid
from dp.mechanisms import GaussianNoise, Mechanism, Noise, make_mechanism
from dp.samplers import DiscreteGaussian

Smoothing: TypeAlias = Literal["sure", "none", "oracle"] | int
SMOOTHINGS = ("sure", "none", "oracle")


@frozen
class Plan:
    """All public choices of a release, checked; made before any private value is touched."""

    mechanism: Mechanism
    adjacency: Element | Record
    grid: Grid
    smoothing: Smoothing

    @property
    def guarantee(self) -> bool:
        """Whether the release is private at all."""
        return self.smoothing != "oracle"

    def squared_row_steps(self, n_columns: int) -> int:
        """Squared L2 distance, in steps, by which a replaced row can move; Record only."""
        assert isinstance(self.adjacency, Record)
        moved = 4 * self.largest_row
        # Shrinking towards 0 keeps entries inside the bounds only where they enclose 0.
        if self.grid.first <= 0 <= self.grid.last:
            moved = min(moved, n_columns * self.grid.levels**2)
        return moved

    @property
    def largest_row(self) -> int:
        """Largest squared L2 norm of a clipped row, in squared steps; Record only."""
        assert isinstance(self.adjacency, Record)
        return math.floor((Fraction(self.adjacency.norm) / Fraction(self.grid.step)) ** 2)

    def noise(self, n_columns: int) -> Noise:
        """The noise of every entry."""
        if isinstance(self.adjacency, Element):
            return self.mechanism.noise(self.grid.sensitivity(self.adjacency.distance))
        assert isinstance(self.mechanism, GaussianNoise)
        return self.mechanism.row_noise(self.squared_row_steps(n_columns))

    def variance(self, n_columns: int) -> float:
        """Of the noise of one entry, in squared units of the features."""
        return float(self.noise(n_columns).variance * self.grid.step**2)

    def event(self, n_columns: int, purpose: str) -> Event:
        """What the release books, whatever the number of its rows."""
        noise = self.noise(n_columns)
        gaussian = None
        if isinstance(noise, DiscreteGaussian):
            sigma, moved = float(noise.sigma), self.sensitivity(n_columns)
            coarse = sigma < SMALLEST_SIGMA
            multiplier = sigma / moved if coarse else continuous_multiplier(moved, sigma)
            gaussian = Gaussian(multiplier, discrete=coarse)
        promise = Promise(self.mechanism.epsilon, self.mechanism.delta)
        return Event(purpose, self.adjacency, promise, gaussian)

    def sensitivity(self, n_columns: int) -> float:
        """In steps; the L2 distance of a row for records."""
        if isinstance(self.adjacency, Element):
            return float(self.grid.sensitivity(self.adjacency.distance))
        return math.sqrt(self.squared_row_steps(n_columns))


def default_mechanism(adjacency: object) -> str:
    """The paper's noise for single elements, the only one that protects whole rows for records."""
    return "gaussian" if isinstance(adjacency, Record) else "optimal"


def make_plan(
    *,
    epsilon: object,
    delta: object,
    adjacency: object,
    bounds: object,
    grid: object,
    mechanism: str | None,
    smoothing: Smoothing,
) -> Plan:
    """Checks the public choices of a release; arguments as `release` has them."""
    mechanism = mechanism or default_mechanism(adjacency)
    chosen = make_mechanism(mechanism, epsilon, delta)
    if not isinstance(adjacency, Element | Record):
        raise InputError(
            f"adjacency: found {adjacency!r}, a release needs Element(distance) or Record(norm)"
        )
    if isinstance(adjacency, Record) and not isinstance(chosen, GaussianNoise):
        raise InputError(
            f"mechanism: {mechanism!r} protects single elements; records need 'gaussian'"
        )
    checked = Grid.make(bounds, grid)
    if isinstance(adjacency, Record) and adjacency.norm < checked.step:
        raise InputError(
            f"grid: step {checked.step:g} is larger than the row norm {adjacency.norm:g};"
            " take a smaller step"
        )
    fixed = isinstance(smoothing, int) and not isinstance(smoothing, bool) and smoothing >= 0
    if not fixed and smoothing not in SMOOTHINGS:
        raise InputError(
            f"smoothing: found {smoothing!r}, expected 'sure', 'none', 'oracle' or a number of"
            " passes of at least 0"
        )
    return Plan(chosen, adjacency, checked, smoothing)

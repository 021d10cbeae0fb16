"""Keeps a round from increasing the global objective, by sums alone.

The server has the global gradient g of every round. A trial of the round's step d adds the global
value and gradient there, which the next round needs anyway. From both it sees how much the
gradient shrank (the contraction factor) and how long the step should have been.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from secure_fl.federation import Federation, broadcastable
from secure_fl.objectives import Objective
from secure_fl.objectives.base import Array
from secure_fl.trainers.linear._client import local_value_and_gradient

SUFFICIENT = 1e-4
"""Share of the decrease that the slope promises (Nocedal and Wright, section 3.1)."""
OVERSHOOT = 0.5
"""Slope upwards at a trial, as a share of the slope downwards at the start, up to which the trial
stands; beyond it a shorter one is worth its sum."""
LONGEST = 100.0
"""Cap on a quadratic's step: noise in the sums can hide its curvature."""
TRIALS = 12
"""Each trial is at most half as long as the one before."""
ROUNDING = 1e-14
"""A relative increase of the objective that is taken for rounding of its sum."""


@broadcastable
@dataclass(frozen=True, eq=False)
class Point:
    """The global objective at one model.

    Attributes:
        value: mean over the participants' records.
        gradient: of the weights' shape.
        complete: whether the sum holds all clients of the federation.
    """

    value: float
    gradient: Array
    complete: bool = True


@dataclass(frozen=True, eq=False)
class Move:
    """What a guarded round did.

    Attributes:
        weights: the new model.
        point: the objective there.
        step: length taken, as a multiple of the direction; 0 when no trial decreased the
            objective.
        contraction: norm of the gradient after the whole direction over its norm before; 1 and
            more means that the undamped method would not converge from here. nan where the
            direction does not descend.
    """

    weights: Array
    point: Point
    step: float
    contraction: float


Evaluate: TypeAlias = Callable[[Array], Point]


def evaluate(fed: Federation, objective: Objective, weights: Array) -> Point:
    """One sum: the global value and gradient over this round's participants."""
    total = fed.mean(local_value_and_gradient, objective, weights)
    complete = len(fed.survivors) == len(fed)
    return Point(float(total["value"]), total["gradient"], complete)


def guarded_move(
    at: Evaluate,
    weights: Array,
    here: Point,
    direction: Array,
    *,
    quadratic: bool,
    first: float = 1.0,
) -> Move:
    """Subtracts as much of a direction as decreases the objective.

    A quadratic needs one trial: its gradient is linear along the direction, so the two gradients
    give the best length, and value and gradient there, exactly. Others are searched by
    safeguarded cubic interpolation (Nocedal and Wright, section 3.5).

    Args:
        at: the objective at given weights; called at most TRIALS times.
        weights: current model.
        here: the objective there.
        direction: to subtract, shape of the weights.
        quadratic: whether the objective is.
        first: length of the first trial, > 0.
    """
    slope = float(np.vdot(here.gradient, direction))
    if not slope > 0:
        return Move(weights, here, 0.0, math.nan)
    trial = at(weights - first * direction)
    contraction = _contraction(here, trial, first)
    if quadratic:
        return _best_of_quadratic(weights, here, direction, trial, first, contraction)
    best = Move(weights, here, 0.0, contraction)
    length = first
    for left in reversed(range(TRIALS)):
        end_slope = float(np.vdot(trial.gradient, direction))
        enough = here.value - SUFFICIENT * length * slope + ROUNDING * abs(here.value)
        better = best.step == 0 or trial.value < best.point.value
        if trial.value <= enough and better:
            best = Move(weights - length * direction, trial, length, contraction)
        settled = best.step > length or end_slope >= -OVERSHOOT * slope
        if left == 0 or (best.step > 0 and settled):
            break
        length = _shorter(length, here, trial, slope, end_slope)
        trial = at(weights - length * direction)
    return best


def _best_of_quadratic(
    weights: Array, here: Point, direction: Array, trial: Point, first: float, contraction: float
) -> Move:
    slope = float(np.vdot(here.gradient, direction))
    change = (trial.gradient - here.gradient) / first
    bend = -float(np.vdot(change, direction))
    if not bend > 0:
        return Move(weights - first * direction, trial, first, contraction)
    best = min(slope / bend, LONGEST)
    point = Point(here.value - best * slope + 0.5 * best**2 * bend, here.gradient + best * change)
    return Move(weights - best * direction, point, best, contraction)


def _contraction(here: Point, trial: Point, length: float) -> float:
    whole = here.gradient + (trial.gradient - here.gradient) / length
    before = float(np.linalg.norm(here.gradient))
    return float(np.linalg.norm(whole)) / before


def _shorter(length: float, here: Point, trial: Point, slope: float, end_slope: float) -> float:
    """Minimiser of the cubic through both values and slopes, within a tenth and a half."""
    # Derivatives along the step are -slope at 0 and -end_slope at `length`.
    first = -slope - end_slope - 3.0 * (here.value - trial.value) / -length
    inner = first**2 - slope * end_slope
    best = math.nan
    if inner >= 0:
        second = math.sqrt(inner)
        bottom = -end_slope + slope + 2.0 * second
        if bottom != 0:
            best = length - length * (-end_slope + second - first) / bottom
    if not math.isfinite(best):
        best = 0.5 * length
    return min(max(best, 0.1 * length), 0.5 * length)

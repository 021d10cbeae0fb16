"""FedNL's curves: which states are kept, and what the pictures show of them."""

import math

import numpy as np
import pytest

from benchmarks._fednl_curves import BITS, GOAL, MOST, ROUNDS, Curve, Panel
from benchmarks._logistic import synthetic
from benchmarks.fednl_peers import Went, _figure
from secure_fl.federation import Federation
from secure_fl.report import figures
from secure_fl.trainers.fednl import LogisticRidge, RankR, fednl


def falling(length, factor=0.5):
    curve = Curve()
    for i in range(length):
        curve.bits.append(100.0 * i)
        curve.both.append(300.0 * i)
        curve.gaps.append(factor**i)
    return curve


@pytest.mark.parametrize("length", [1, 2, 3, 40, 5000])
def test_points_are_some_of_the_states_the_first_and_the_last_among_them(length):
    curve = falling(length)
    points = curve.points()
    places = [point[0] for point in points]
    assert (places[0], places[-1]) == (0, length - 1)
    assert places == sorted(set(places))
    assert len(points) <= MOST
    assert points == [(i, curve.bits[i], curve.both[i], curve.gaps[i]) for i in places]


def test_a_long_run_keeps_its_beginning():
    assert sum(point[0] < 50 for point in falling(5000).points()) >= 8


def test_bits_to_the_goal_are_those_of_the_first_state_there():
    curve = falling(40)
    first = next(i for i, gap in enumerate(curve.gaps) if gap <= GOAL)
    assert curve.bits_to(GOAL) == 100.0 * first
    assert curve.bits_to(GOAL, both=True) == 300.0 * first
    assert curve.bits_to(1e-30) == math.inf


class Ended:
    """A state whose method says what a node received."""

    bits, bits_down = 10.0, 7.0


def test_bits_both_ways_are_the_meters_or_what_the_method_says():
    """The meter's are 64 a number that a client received: here the broadcast of a first round."""
    clients, d = synthetic(0.0, 0.0, np.random.default_rng(0))
    fed, curve, ended = Federation(clients[:3]), Curve(), Curve()
    states = fed.rounds(fednl(fed, LogisticRidge(0.1), d=d, rounds=1, compressor=RankR(1)))
    for state in states:
        curve.add(fed, state, 1.0)
        ended.add(fed, Ended(), 0.0)
    down = 64 * fed.meter.total().floats_down / 3
    assert down >= 64 * d
    assert curve.both[-1] == pytest.approx(state.bits + down)
    assert ended.both == [17.0] * len(ended.both)
    assert set(ended.gaps) == {1e-16}


def test_a_picture_goes_little_further_than_ours_need():
    """A peer that needs a hundred times as much must not press ours into the axis."""
    shown = {}

    def draw(axes):
        panel.draw(axes)
        shown["right"] = axes.get_xlim()[1]

    ours, theirs = falling(40).points(), [(i, 1e5 * i, 0.0, 0.5**i) for i in range(40)]
    reached = next(point[1] for point in ours if point[-1] <= GOAL)
    panel = Panel("a", BITS, {"FedNL": ours, "GD": theirs})
    assert figures.inline(draw, "p") is not None
    assert shown["right"] == pytest.approx(1.3 * reached / 1e6)
    panel = Panel("a", ROUNDS, {"GD": theirs})
    assert figures.inline(draw, "p") is not None
    assert shown["right"] == next(i for i in range(40) if 0.5**i <= GOAL)


def test_a_run_to_the_goal_says_whether_it_got_there():
    assert Went(30, 1.5, falling(31)).cells == (True, 30, 3000.0, 9000.0, 1.5, 0.5**30)
    assert Went(5, 1.5, falling(6)).cells[0] is False


@pytest.mark.parametrize(
    ("title", "figure"),
    [
        ("FedNL-BC, Top-d", "7"),
        ("DORE", "7"),
        ("Artemis, 0.2 n", "9, 0.2 n"),
        ("FedNL-PP, 0.2 n", "9, 0.2 n"),
        ("FedNS, k = 4 d", "second-order peers"),
    ],
)
def test_peers_stand_in_the_figures_of_the_paper(title, figure):
    assert _figure(title) == figure

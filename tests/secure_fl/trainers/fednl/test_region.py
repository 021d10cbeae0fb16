"""The region of FedNL's local theory: inside it the theorem's rate holds, outside it is told."""

import logging
import math

import numpy as np
import pytest

from secure_fl.federation import Client, Federation
from secure_fl.trainers.fednl import (
    Identity,
    Lipschitz,
    LogisticRidge,
    RandK,
    RankR,
    TopK,
    fednl,
    optimum,
    region,
)
from secure_fl.trainers.fednl.region import outside, told
from tests.secure_fl.trainers.fednl.problems import random_clients

D, MU = 5, 0.1


def made():
    return random_clients(3, 20, D, seed=2, density=1.0)


def lipschitz():
    """Of a logistic Hessian: the largest mean of |a|^3 / (6 sqrt 3) of a client bounds all."""
    cubes = max(
        float(np.mean(np.linalg.norm(client.features.toarray(), axis=1) ** 3)) for client in made()
    )
    bound = cubes / (6 * math.sqrt(3))
    return Lipschitz(bound, bound, bound)


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("compressor", [Identity(), RankR(1), TopK(4)])
def test_from_inside_the_region_every_round_halves_the_squared_distance(option, compressor):
    """Theorem 3.6 (7) with the conditions of lemma 3.7."""
    objective = LogisticRidge(MU)
    best, _ = optimum(Federation(made()), objective, d=D)
    found = region(compressor, lipschitz(), d=D, mu=MU, option=option)
    # H_i^0 is the Hessian at x^0: within L_F times the distance of that at x*.
    radius = 0.99 * min(found.lemma, found.estimates / lipschitz().frobenius)
    assert radius > 1e-7
    away = np.random.default_rng(0).normal(size=D)
    x0 = best + radius * away / np.linalg.norm(away)
    fed = Federation(made())
    for state in fed.rounds(
        fednl(fed, objective, d=D, rounds=6, option=option, compressor=compressor, x0=x0)
    ):
        squared = np.sum((state.weights - best) ** 2)
        assert squared <= 0.5**state.round * radius**2 + 1e-18


def test_the_radii_are_those_of_the_paper():
    """By hand: mu = 1, L_* = 2, L_F = 3, L_inf = 1; delta = 1/4 at rate 1 has A, B = 1/16, 41/2."""
    constants = Lipschitz(2.0, 3.0, 1.0)
    one = region(TopK(1), constants, d=2, mu=1.0, option=1, rate="one")
    assert TopK(1).on_matrices(2).delta == 0.25
    assert one.theorem == pytest.approx(1 / math.sqrt(2 * 4))
    assert one.lemma == pytest.approx(1 / 6 * math.sqrt((1 / 16) / (20.5 * 2)))
    assert one.estimates == pytest.approx(1 / (2 * math.sqrt(2)))
    two = region(TopK(1), constants, d=2, mu=1.0, option=2, rate="contractive")
    alpha = 1 - math.sqrt(0.75)
    assert two.theorem == pytest.approx(1 / math.sqrt(2 * 8**2))
    assert two.lemma == pytest.approx(1 / 6 * math.sqrt(alpha**2 / (alpha * 8)))
    free = region(RandK(1), constants, d=2, mu=1.0, option=1)
    assert free.lemma == pytest.approx(1 / math.sqrt(4 + 4 * 2 * 4))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"mu": 0.0}, "mu 0"),
        ({"option": 3}, "option 3"),
        ({"rate": 0.3}, "covers the rates 1 and"),
        ({"rate": 0.9, "compressor": RandK(1)}, "no rate of 0.9"),
    ],
)
def test_what_the_theory_does_not_cover_is_refused(options, part):
    given = {"compressor": TopK(1), "mu": 1.0, "option": 1, "d": 2} | options
    with pytest.raises(ValueError, match=part):
        region(given.pop("compressor"), Lipschitz(1.0, 1.0, 1.0), **given)


def run(scale, caplog):
    """Rows whose labels follow a direction as clearly as `scale` says."""
    rng = np.random.default_rng(1)
    clients = []
    for i in range(3):
        A = rng.normal(size=(40, D))
        b = np.where(A[:, 0] * scale + rng.normal(size=40) * (1 - scale) > 0, 1.0, -1.0)
        clients.append(Client(f"c{i}", scale * A, b))
    fed, objective = Federation(clients), LogisticRidge(1.0 if scale < 0.5 else 1e-3)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        states = fed.rounds(told(fednl(fed, objective, d=D, rounds=3), objective.penalty, option=1))
        first, second = next(states), next(states)
        list(states)
    best, _ = optimum(Federation(clients), objective, d=D)
    found = outside(first.hessian, second.gradient_norm, objective.penalty, 1)
    return found, float(np.linalg.norm(best)), caplog.text


def test_a_start_that_is_surely_outside_is_told_once_and_the_others_are_not(caplog):
    found, distance, text = run(1.0, caplog)
    assert found is not None
    assert found.radius < found.distance <= distance
    assert text.count("take fednl-ls") == 1
    found, _, text = run(0.01, caplog)
    assert found is None
    assert not text

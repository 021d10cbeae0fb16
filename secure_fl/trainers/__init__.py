"""Trainers: plain generators of a federation, one algorithm a file."""

from secure_fl.trainers._local import LocalTraining
from secure_fl.trainers._newton import NewtonState
from secure_fl.trainers.class_texts import text_prior, texts_of
from secure_fl.trainers.dkrr import dkrr
from secure_fl.trainers.fedavg import AveragingState, fedavg
from secure_fl.trainers.fednewton import fednewton
from secure_fl.trainers.fednewton_head import fednewton_head
from secure_fl.trainers.fedprox import fedprox
from secure_fl.trainers.kahm_record_private import (
    RecordPrivateState,
    discriminant_machines,
    kahm_record_private,
)
from secure_fl.trainers.krr import krr
from secure_fl.trainers.lbfgs import LBFGS
from secure_fl.trainers.localnewton import localnewton
from secure_fl.trainers.noisy_gradient import NoisyGradientState, noisy_gradient
from secure_fl.trainers.oneshot import oneshot
from secure_fl.trainers.private_ridge import PrivateRidgeState, private_ridge
from secure_fl.trainers.server import Adam, Averaging, Momentum, ServerOptimizer
from secure_fl.trainers.solvers import ConjugateGradient, Diagonal, Exact, LowRank, Solver

__all__ = [
    "LBFGS",
    "Adam",
    "Averaging",
    "AveragingState",
    "ConjugateGradient",
    "Diagonal",
    "Exact",
    "LocalTraining",
    "LowRank",
    "Momentum",
    "NewtonState",
    "NoisyGradientState",
    "PrivateRidgeState",
    "RecordPrivateState",
    "ServerOptimizer",
    "Solver",
    "discriminant_machines",
    "dkrr",
    "fedavg",
    "fednewton",
    "fednewton_head",
    "fedprox",
    "kahm_record_private",
    "krr",
    "localnewton",
    "noisy_gradient",
    "oneshot",
    "private_ridge",
    "text_prior",
    "texts_of",
]

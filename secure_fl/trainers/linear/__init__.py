"""Trainers: plain generators of a federation, one algorithm a file."""

from secure_fl.trainers.linear._local import LocalTraining
from secure_fl.trainers.linear._newton import NewtonState
from secure_fl.trainers.linear.class_texts import text_prior, texts_of
from secure_fl.trainers.linear.dkrr import dkrr
from secure_fl.trainers.linear.fedavg import AveragingState, fedavg
from secure_fl.trainers.linear.fednew import FedNewState, fednew
from secure_fl.trainers.linear.fednewton import fednewton
from secure_fl.trainers.linear.fednewton_head import fednewton_head
from secure_fl.trainers.linear.fedprox import fedprox
from secure_fl.trainers.linear.fedsophia import Sophia, fedsophia
from secure_fl.trainers.linear.kahm_record_private import (
    RecordPrivateState,
    discriminant_machines,
    kahm_record_private,
)
from secure_fl.trainers.linear.krr import krr
from secure_fl.trainers.linear.lbfgs import LBFGS
from secure_fl.trainers.linear.localnewton import localnewton
from secure_fl.trainers.linear.noisy_gradient import NoisyGradientState, noisy_gradient
from secure_fl.trainers.linear.oneshot import oneshot
from secure_fl.trainers.linear.private_ridge import PrivateRidgeState, private_ridge
from secure_fl.trainers.linear.server import Adam, Averaging, Momentum, ServerOptimizer
from secure_fl.trainers.linear.solvers import ConjugateGradient, Diagonal, Exact, LowRank, Solver
from secure_fl.trainers.linear.theory import Similarity, similarity

__all__ = [
    "LBFGS",
    "Adam",
    "Averaging",
    "AveragingState",
    "ConjugateGradient",
    "Diagonal",
    "Exact",
    "FedNewState",
    "LocalTraining",
    "LowRank",
    "Momentum",
    "NewtonState",
    "NoisyGradientState",
    "PrivateRidgeState",
    "RecordPrivateState",
    "ServerOptimizer",
    "Similarity",
    "Solver",
    "Sophia",
    "discriminant_machines",
    "dkrr",
    "fedavg",
    "fednew",
    "fednewton",
    "fednewton_head",
    "fedprox",
    "fedsophia",
    "kahm_record_private",
    "krr",
    "localnewton",
    "noisy_gradient",
    "oneshot",
    "private_ridge",
    "similarity",
    "text_prior",
    "texts_of",
]

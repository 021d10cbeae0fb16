"""FedNL: Newton-type federated learning from compressed differences of Hessians."""

from secure_fl.trainers.fednl.artemis import ArtemisState, artemis
from secure_fl.trainers.fednl.compressors import Class, Compressor, Identity, Scaled, learning_rate
from secure_fl.trainers.fednl.dingo import DingoState, dingo
from secure_fl.trainers.fednl.dore import DoreState, dore
from secure_fl.trainers.fednl.fednl import fednl
from secure_fl.trainers.fednl.fednl_all import AllState, fednl_all
from secure_fl.trainers.fednl.fednl_bc import BidirectionalState, fednl_bc
from secure_fl.trainers.fednl.fednl_cr import fednl_cr, hessian_lipschitz
from secure_fl.trainers.fednl.fednl_ls import fednl_ls
from secure_fl.trainers.fednl.fednl_pp import PartialState, fednl_pp
from secure_fl.trainers.fednl.fedns import SketchState, fedns
from secure_fl.trainers.fednl.first_order import (
    FirstOrderState,
    Smoothness,
    adiana,
    diana,
    gradient_descent,
    gradient_descent_ls,
    shifted_local_gd,
    smoothness,
)
from secure_fl.trainers.fednl.learning import mean_curve, mean_slope, mean_value
from secure_fl.trainers.fednl.low_rank import PowerSGD, RankR
from secure_fl.trainers.fednl.newton import newton, newton_star, newton_zero, optimum
from secure_fl.trainers.fednl.newton_learn import newton_learn
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.quantisers import Dithering, Natural
from secure_fl.trainers.fednl.region import Lipschitz, Region, region
from secure_fl.trainers.fednl.shed import ShedState, shed
from secure_fl.trainers.fednl.sparsifiers import RandK, SharedRandK, TopK
from secure_fl.trainers.fednl.states import NewtonState

__all__ = [
    "AllState",
    "ArtemisState",
    "BidirectionalState",
    "Class",
    "Compressor",
    "DingoState",
    "Dithering",
    "DoreState",
    "FirstOrderState",
    "Identity",
    "Lipschitz",
    "LogisticRidge",
    "Natural",
    "NewtonState",
    "PartialState",
    "PowerSGD",
    "RandK",
    "RankR",
    "Region",
    "Scaled",
    "SharedRandK",
    "ShedState",
    "SketchState",
    "Smoothness",
    "TopK",
    "adiana",
    "artemis",
    "diana",
    "dingo",
    "dore",
    "fednl",
    "fednl_all",
    "fednl_bc",
    "fednl_cr",
    "fednl_ls",
    "fednl_pp",
    "fedns",
    "gradient_descent",
    "gradient_descent_ls",
    "hessian_lipschitz",
    "learning_rate",
    "mean_curve",
    "mean_slope",
    "mean_value",
    "newton",
    "newton_learn",
    "newton_star",
    "newton_zero",
    "optimum",
    "region",
    "shed",
    "shifted_local_gd",
    "smoothness",
]

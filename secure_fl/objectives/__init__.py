"""Objectives of linear models, with exact derivatives, and fixed feature maps before them."""

from secure_fl.objectives.base import Objective
from secure_fl.objectives.features import RandomFourierFeatures, with_constant
from secure_fl.objectives.regression import RegressionLoss, r_squared, rmse
from secure_fl.objectives.softmax import SoftmaxLoss
from secure_fl.objectives.squared import SquaredLoss

__all__ = [
    "Objective",
    "RandomFourierFeatures",
    "RegressionLoss",
    "SoftmaxLoss",
    "SquaredLoss",
    "r_squared",
    "rmse",
    "with_constant",
]

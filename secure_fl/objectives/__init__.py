"""Objectives of linear models, with exact derivatives, and fixed feature maps before them."""

from secure_fl.objectives.base import Objective
from secure_fl.objectives.features import RandomFourierFeatures, with_constant
from secure_fl.objectives.softmax import SoftmaxLoss
from secure_fl.objectives.squared import SquaredLoss

__all__ = [
    "Objective",
    "RandomFourierFeatures",
    "SoftmaxLoss",
    "SquaredLoss",
    "with_constant",
]

"""Networks trained by a federation. Imports torch: import this package late."""

from secure_fl.networks.local import LocalTraining
from secure_fl.networks.models import (
    ConvNet,
    FourierModel,
    LinearModel,
    Model,
    Network,
    Perceptron,
    accuracy,
    flatten,
    load,
)
from secure_fl.networks.regularizers import Regularization, squared_mmd, trace_norm
from secure_fl.networks.trainers.fedavg import NetworkState, fedavg
from secure_fl.networks.trainers.fedavgr import fedavgr

__all__ = [
    "ConvNet",
    "FourierModel",
    "LinearModel",
    "LocalTraining",
    "Model",
    "Network",
    "NetworkState",
    "Perceptron",
    "Regularization",
    "accuracy",
    "fedavg",
    "fedavgr",
    "flatten",
    "load",
    "squared_mmd",
    "trace_norm",
]

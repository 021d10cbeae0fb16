"""Networks trained by a federation. Imports torch: import this package late."""

from secure_fl.trainers.networks.augmentation import Shifts
from secure_fl.trainers.networks.device import choose_device, deterministic
from secure_fl.trainers.networks.fedavg import NetworkState, fedavg
from secure_fl.trainers.networks.fedavgr import fedavgr
from secure_fl.trainers.networks.fedpm import fedpm
from secure_fl.trainers.networks.fedrco import (
    SecondOrder,
    events,
    fedrco,
    interpolated,
    personal_accuracy,
    seconds,
)
from secure_fl.trainers.networks.fl_hc import ClusteredState, clustered_accuracy, fl_hc
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import (
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
from secure_fl.trainers.networks.monitor import Monitor, Thresholds
from secure_fl.trainers.networks.personalised import fine_tuned, local_only
from secure_fl.trainers.networks.promise import DPSGD
from secure_fl.trainers.networks.record_privacy import (
    Plan,
    economical_batch,
    make_plan,
    privacy_spent,
)
from secure_fl.trainers.networks.regularizers import (
    Regularization,
    squared_mmd,
    squared_mmd_by_class,
    trace_norm,
)
from secure_fl.trainers.networks.selection import coordinate_search, cross_validated, folds
from secure_fl.trainers.networks.trajectory import keep_trajectory, trajectory

__all__ = [
    "DPSGD",
    "ClusteredState",
    "ConvNet",
    "FourierModel",
    "LinearModel",
    "LocalTraining",
    "Model",
    "Monitor",
    "Network",
    "NetworkState",
    "Perceptron",
    "Plan",
    "Regularization",
    "SecondOrder",
    "Shifts",
    "Thresholds",
    "accuracy",
    "choose_device",
    "clustered_accuracy",
    "coordinate_search",
    "cross_validated",
    "deterministic",
    "economical_batch",
    "events",
    "fedavg",
    "fedavgr",
    "fedpm",
    "fedrco",
    "fine_tuned",
    "fl_hc",
    "flatten",
    "folds",
    "interpolated",
    "keep_trajectory",
    "load",
    "local_only",
    "make_plan",
    "personal_accuracy",
    "privacy_spent",
    "seconds",
    "squared_mmd",
    "squared_mmd_by_class",
    "trace_norm",
    "trajectory",
]

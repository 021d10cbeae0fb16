"""Clients that compute on their own records, and a server that learns sums over them."""

from secure_fl.errors import (
    DivergedError,
    FederationError,
    PrivacyError,
    QuorumError,
    StepError,
)
from secure_fl.federation.client import Client
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.cohort import Cohort, LowRankRows, SparseRows, Stack, batched_step
from secure_fl.federation.handle import Federation
from secure_fl.federation.metering import Meter, Traffic
from secure_fl.federation.participation import (
    AllClients,
    DropOuts,
    FixedNumber,
    FixedProbability,
    NoDropOuts,
    Participation,
    RandomDropOuts,
    ScriptedDropOuts,
    Stage,
)
from secure_fl.federation.privacy import ClientPrivacy, calibrate
from secure_fl.federation.secagg import ProtocolError
from secure_fl.federation.secagg.parameters import ring_degree
from secure_fl.federation.secure import SecureAggregation
from secure_fl.federation.steps import broadcastable, client_step
from secure_fl.federation.trees import LowRank, SparseArray, Tree

__all__ = [
    "AllClients",
    "Client",
    "ClientPrivacy",
    "Cohort",
    "DivergedError",
    "DropOuts",
    "Federation",
    "FederationError",
    "FixedNumber",
    "FixedProbability",
    "LowRank",
    "LowRankRows",
    "Meter",
    "NoDropOuts",
    "PackedCodes",
    "Participation",
    "PrivacyError",
    "ProtocolError",
    "QuorumError",
    "RandomDropOuts",
    "ScriptedDropOuts",
    "SecureAggregation",
    "SparseArray",
    "SparseRows",
    "Stack",
    "Stage",
    "StepError",
    "Traffic",
    "Tree",
    "batched_step",
    "broadcastable",
    "calibrate",
    "client_step",
    "ring_degree",
]

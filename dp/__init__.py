"""Differentially private release of matrices, with a statement and a ledger."""

from dp.accounting import Composition, Gaussian, Promise, compose
from dp.adjacency import Adjacency, Element, Membership, Record
from dp.audit import Audit, audit
from dp.calibration import noise_multiplier
from dp.errors import BudgetError, InputError, LedgerError, StorageError
from dp.events import Budget, Event, check_budget
from dp.joint_ledger import JointLedger
from dp.ledger import Ledger, announced_here, book, spent_here
from dp.mechanisms import (
    MECHANISMS,
    GaussianNoise,
    GeometricNoise,
    OptimalNoise,
    StaircaseNoise,
)
from dp.parts import Part
from dp.release import BatchRelease, Prepared, Release, prepare_batches, release, release_batches
from dp.release_ledger import ReleaseLedger, open_ledger
from dp.smoothing import smooth
from dp.statement import Statement

__all__ = [
    "MECHANISMS",
    "Adjacency",
    "Audit",
    "BatchRelease",
    "Budget",
    "BudgetError",
    "Composition",
    "Element",
    "Event",
    "Gaussian",
    "GaussianNoise",
    "GeometricNoise",
    "InputError",
    "JointLedger",
    "Ledger",
    "LedgerError",
    "Membership",
    "OptimalNoise",
    "Part",
    "Prepared",
    "Promise",
    "Record",
    "Release",
    "ReleaseLedger",
    "StaircaseNoise",
    "Statement",
    "StorageError",
    "announced_here",
    "audit",
    "book",
    "check_budget",
    "compose",
    "noise_multiplier",
    "open_ledger",
    "prepare_batches",
    "release",
    "release_batches",
    "smooth",
    "spent_here",
]

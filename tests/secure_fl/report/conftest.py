"""Runs whose records can be told from everything else on a page."""

from pathlib import Path

import numpy as np
import pytest

import dp
from secure_fl.data import Dataset, write_clients
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import make_manifest
from secure_fl.heads.released import train_private_heads
from secure_fl.heads.run_folder import create_run
from secure_fl.privacy.promises import ReleasePromise

CLASSES = ("benign", "malign")
NAMES = ("north", "south")


def draw_clients(seed=0, n=30, d=6, noise=0.05):
    """Two classes around two centres, with six digits a feature that occur nowhere else."""
    rng = np.random.default_rng(seed)
    found = []
    for name in NAMES:
        y = np.arange(n) % 2
        X = np.clip(0.35 + 0.3 * y[:, None] + noise * rng.standard_normal((n, d)), 0, 1)
        found.append((name, X.astype(np.float32), y.astype(np.int64)))
    return found


def manifest(**changes):
    fields = {"classes": CLASSES, "clients": NAMES, "n_features": 6, "bits": 8}
    return make_manifest(**{**fields, **changes})


@pytest.fixture(scope="session")
def clear_run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("clear") / "run"
    facts = manifest()
    create_run(path, train_heads(draw_clients(), facts), facts)
    return path


@pytest.fixture(scope="session")
def private_run(tmp_path_factory) -> Path:
    """A run with releases; its ledgers lie beside it, in `ledgers`."""
    path = tmp_path_factory.mktemp("private") / "run"
    facts = manifest(unit="element")
    plan = ReleasePromise(
        epsilon=4.0,
        delta=1e-5,
        adjacency=dp.Element(0.5),
        bounds=(0.0, 1.0),
        grid=2**-8,
        budget=dp.Budget(6.0, 1e-4, dp.Element(0.5)),
    )
    heads, statements = train_private_heads(draw_clients(), facts, plan, path.parent / "ledgers")
    create_run(path, heads, facts, statements)
    return path


@pytest.fixture(scope="session")
def test_file(tmp_path_factory) -> Path:
    """Labelled records that no client has, noisy enough to be confused."""
    folder = tmp_path_factory.mktemp("queries") / "files"
    (_, X, y), _ = draw_clients(seed=7, noise=0.4)
    write_clients(folder, [Dataset(X, y, CLASSES, "test", "drawn")])
    return folder / "test.npz"

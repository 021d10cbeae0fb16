"""Records that come and go: the head is, byte for byte, the one that was fitted at once."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kahm import BATCHINGS, MEASURES
from secure_fl.heads.forgetting import forget
from secure_fl.heads.head import head_path, load_head
from secure_fl.heads.index import load_index
from secure_fl.heads.updating import update
from tests.secure_fl.heads.living import CLIENT, dataset, fitted_at_once, manifest, train

LARGE = 2.0**27 + 1
"""Needs float64 to stay within 1e-5."""


@st.composite
def arrivals(draw):
    """X and y of one to three arrivals; few values, so that records repeat and batches are flat."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        n = draw(st.integers(1, 14))
        X = rng.normal(size=(n, 3)) if draw(st.booleans()) else rng.integers(0, 2, (n, 3)) * 1.0
        kind = draw(st.sampled_from(["single", "double", "wide"]))
        if kind == "wide":
            X[rng.integers(n)] = LARGE
        found.append((X.astype(np.float32) if kind == "single" else X, rng.integers(0, 3, n)))
    return found


def history(folder, facts, parts):
    run = train(folder / "run", facts, *parts[0])
    for X, y in parts[1:]:
        update(run, CLIENT, dataset(X, y), again=True)
    return run


@settings(deadline=None, max_examples=30)
@given(arrivals(), st.sampled_from(MEASURES), st.sampled_from(BATCHINGS), st.data())
def test_a_head_that_lived_is_the_head_fitted_at_once(parts, measure, batching, data):
    facts = manifest(measure=measure, batching=batching)
    n = sum(len(X) for X, _ in parts)
    gone = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = history(folder, facts, parts)
        head = head_path(run, CLIENT)
        assert head.read_bytes() == fitted_at_once(folder / "all", facts, parts)
        cut = data.draw(st.integers(0, len(gone)))
        for some in (gone[:cut], gone[cut:]):
            if some:
                forget(run, CLIENT, rows=some)
        assert head.read_bytes() == fitted_at_once(folder / "left", facts, parts, gone)
        queries = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
        measures = load_head(run, CLIENT, facts).measures(queries, facts)
        assert np.all((measures >= 0) & (measures <= 1))

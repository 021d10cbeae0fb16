"""Keys of a small batched rule: at the smallest degree that is secure, in seconds."""

import itertools

import numpy as np
import pytest

import fhe

LEVELS = (3, 4, 12)
"""Codes whose high halves differ, agree, and differ again at step 4."""


@pytest.fixture(scope="session")
def rule():
    return fhe.BatchedParameters(
        contributors=3, classes=3, bits=4, degree=16384, step=4, high_columns=2, low_columns=4
    )


@pytest.fixture(scope="session")
def keys(rule):
    return fhe.generate_keys(rule)


@pytest.fixture(scope="session")
def public(keys):
    return fhe.make_public_key(keys)


@pytest.fixture(scope="session")
def tables():
    """All tables of 3 clients, 3 classes and 3 levels: more than one set of slots holds."""
    found = np.array(list(itertools.product(LEVELS, repeat=9)), np.int64)
    return found.reshape(-1, 3, 3)


@pytest.fixture(scope="session")
def sent(tables, public):
    return send(tables, public)


@pytest.fixture(scope="session")
def answer(sent, keys, public):
    return fhe.evaluate(sent, keys.evaluation, public)


@pytest.fixture(scope="session")
def few(public):
    """Contributions of five queries."""
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    return send(codes, public)


def send(codes, public, batch="b", federation="f"):
    return [
        fhe.contribute(
            codes[:, i], public, contributor=i, name=f"c{i}", federation=federation, batch=batch
        )
        for i in range(codes.shape[1])
    ]

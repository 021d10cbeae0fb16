"""Keys shared by the encrypted tests: drawing them takes seconds."""

import pytest

import fhe


@pytest.fixture(scope="session")
def parameters():
    return fhe.RuleParameters(contributors=3, classes=5, bits=6, block=4, failure_exponent=40)


@pytest.fixture(scope="session")
def keys(parameters):
    return fhe.generate_keys(parameters)


@pytest.fixture(scope="session")
def other_keys(parameters):
    return fhe.generate_keys(parameters)


@pytest.fixture(scope="session")
def public(keys):
    return fhe.make_public_key(keys)

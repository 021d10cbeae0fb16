"""A fixed number of changed samples of every parser of foreign bytes: parsed, or a typed error."""

import pytest

from tests.fuzz.inputs import try_inputs
from tests.fuzz.parsers import PARSERS

INPUTS, SLOW = 120, 4
MOST = 300_000_000
"""Bytes that an input may take; opening a sealed key takes scrypt's 128 MiB by itself."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
def test_changed_samples_are_parsed_or_refused_with_a_typed_error(name):
    parser = PARSERS[name]
    found = try_inputs(parser, count=SLOW if parser.slow else INPUTS, seconds=60)
    assert not found.bare
    assert found.peak <= MOST
    assert found.refused > 0

"""Files of old versions, written by the releases that introduced them, load for ever or say why."""

from pathlib import Path

import numpy as np
import pytest

import fhe
from fhe.audit import load_audit
from fhe.envelope import read_header
from fhe.errors import VersionError
from kahm import KAHM
from secure_fl.heads.head import head_path, load_head
from secure_fl.heads.manifest import load_manifest

V1 = Path(__file__).parent / "golden" / "v1"
V2 = Path(__file__).parent / "golden" / "v2"
V3 = Path(__file__).parent / "golden" / "v3"
V4 = Path(__file__).parent / "golden" / "v4"
V5 = Path(__file__).parent / "golden" / "v5"
FILES = ("contribution", "answer", "audit", "clients/a/head")
POSITIONS = (0, 6, 9)
CODES = ((1, 8, 4), (3, 11, 5), (1, 9, 7))


RULE = fhe.RuleParameters(contributors=2, classes=3, bits=4, block=1, failure_exponent=40)


def test_the_contribution_loads():
    found = fhe.Contribution.load(V3 / "contribution")
    assert (found.name, found.contributor, found.batch, found.queries) == ("c0", 0, "b1", 1)
    assert found.parameters == RULE
    assert len(found.public) == 64


@pytest.mark.parametrize(("folder", "version"), [(V1, 1), (V2, 2)])
def test_contributions_of_older_circuits_are_refused_with_both_versions_named(folder, version):
    message = f"contribution of version {version}, this package reads version 3"
    with pytest.raises(VersionError, match=message):
        fhe.Contribution.load(folder / "contribution")


def test_the_public_key_loads():
    found = fhe.load_public_key(V5)
    assert found.parameters == RULE
    assert found.vector.shape == (found.kind.glwe_dimension, found.kind.degree)


@pytest.mark.parametrize(("folder", "version"), [(V2, 1), (V3, 3)])
def test_an_older_public_key_is_refused_with_both_versions_named(folder, version):
    """Version 3 described ciphertexts to the evaluator's library."""
    message = f"a key of version {version}, this package reads version 4"
    with pytest.raises(VersionError, match=message):
        fhe.load_public_key(folder)


def test_an_answer_that_held_the_librarys_objects_is_refused_with_both_versions_named():
    message = "answer of version 1, this package reads version 2"
    with pytest.raises(VersionError, match=message):
        fhe.Answer.load(V1 / "answer")


def test_the_answer_loads():
    found = fhe.Answer.load(V4 / "answer")
    assert (found.batch, found.queries, found.parameters) == ("b1", 1, RULE)


def test_the_audit_secret_draws_the_same_positions_and_codes():
    audit = load_audit(V1 / "audit")
    assert audit.known == 3
    np.testing.assert_array_equal(audit.positions(10), POSITIONS)
    np.testing.assert_array_equal(audit.codes(1, RULE), CODES)


def test_the_run_folder_gives_the_same_measures():
    facts = load_manifest(V1)
    head = load_head(V1, "a", facts)
    X = np.arange(18, dtype=np.float32).reshape(6, 3) ** 1.5
    expected = np.stack([KAHM.fit(X[c::2]).measure(X) for c in (0, 1)], axis=1)
    np.testing.assert_allclose(head.measures(X, facts), expected, atol=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_another_format_version_is_refused_with_both_named(name, tmp_path):
    content = bytearray((V1 / name).read_bytes())
    content[8:12] = (2).to_bytes(4, "little")
    path = tmp_path / "newer"
    path.write_bytes(content)
    with pytest.raises(VersionError, match="format version 2, this package reads version 1"):
        read_header(path)


def test_the_head_is_where_a_run_keeps_it():
    assert head_path(V1, "a") == V1 / FILES[-1]

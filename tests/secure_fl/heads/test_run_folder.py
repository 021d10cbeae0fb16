"""The manifest and the heads on disk: they come back the same, or are refused by name."""

import json

import numpy as np
import pytest

from fhe.errors import FormatError
from fhe.errors import InputError as FileError
from kahm import KAHM
from secure_fl.errors import InputError
from secure_fl.files import new_folder
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import head_path, load_head, save_head, train_head
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.heads.run_folder import all_measures, create_run, load_run, query_features

RNG = np.random.default_rng(0)


def manifest(**changes):
    fields = {"classes": ("no", "yes"), "clients": ("a", "b"), "n_features": 3, "batch_size": 5}
    return make_manifest(**{**fields, **changes})


@pytest.fixture
def records():
    X = RNG.normal(size=(23, 3)).astype(np.float32)
    return X, np.arange(23) % 2


def test_a_manifest_comes_back_equal(tmp_path):
    saved = manifest(scale=0.1, bits=12, low=0.25, high=0.75)
    save_manifest(tmp_path, saved)
    assert load_manifest(tmp_path) == saved


MEMBERS = tuple((name, f"{i}" * 128) for i, name in enumerate(("a", "b", "querier", "evaluator")))


def test_members_are_part_of_the_fingerprint_and_not_of_the_heads(tmp_path, records):
    """A head is kept when a key changes: fitting it again could cost privacy."""
    alone, together = manifest(), manifest(members=MEMBERS)
    assert alone.fingerprint != together.fingerprint
    assert alone.fingerprint == alone.heads_fingerprint == together.heads_fingerprint
    save_head(tmp_path, train_head("a", *records, alone, np.random.default_rng(0)), alone)
    save_manifest(tmp_path, together)
    assert load_manifest(tmp_path) == together
    assert load_head(tmp_path, "a", load_manifest(tmp_path)).client == "a"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (MEMBERS[:3], "expected those of all clients in their order"),
        (MEMBERS[::-1], "expected those of all clients in their order"),
        ([*MEMBERS[:3], ("evaluator", "ab")], "no keys of 128 hexadecimal digits for 'evaluator'"),
        ([*MEMBERS[:3], ("evaluator",)], "not a list of names with their keys"),
        ([*MEMBERS[:3], ("evaluator", 1)], "not a list of names with their keys"),
        ("ab", "not a list of names with their keys"),
        (5, "not iterable"),
    ],
)
def test_keys_that_are_not_every_partys_are_refused(members, message):
    with pytest.raises(InputError, match=message):
        manifest(members=members)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": 2.0},
        {"bits": 9},
        {"clients": ("b", "a")},
        {"classes": ("yes", "no")},
        {"high": 0.9},
        {"measure": "cosine"},
    ],
)
def test_any_change_changes_the_fingerprint(changes):
    assert manifest(**changes).fingerprint != manifest().fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("only",)}, "classes"),
        ({"classes": ("a", "a")}, "'a' more than once"),
        ({"clients": ()}, "clients"),
        ({"clients": ("a", "a")}, "'a' more than once"),
        ({"clients": ("../a",)}, "use letters"),
        ({"clients": (".hidden",)}, "use letters"),
        ({"n_features": 0}, "n_features"),
        ({"n_features": 2.5}, "n_features"),
        ({"scale": 0.0}, "scale"),
        ({"scale": float("nan")}, "finite"),
        ({"bits": 3}, "bits"),
        ({"bits": 17}, "bits"),
        ({"low": 0.6, "high": 0.5}, "above 'low'"),
        ({"high": 1.5}, "high"),
        ({"measure": "manhattan"}, "measure"),
        ({"batching": "random"}, "batching"),
        ({"rule": "vote"}, "rule"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        manifest(**changes)
    assert "\n" not in str(caught.value)


def _edited(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(scale=3.0), "edited after it was written"),
        (lambda c: c.update(format=2), "format version 2, this securefl reads version 1"),
        (lambda c: c.pop("bits"), "missing or unknown fields bits"),
        (lambda c: c.update(extra=1), "missing or unknown fields extra"),
        (lambda c: c.update(bits="8"), "bits"),
        (lambda c: c.update(classes=7), "federation.json"),
    ],
)
def test_an_edited_manifest_is_refused_with_its_path(tmp_path, change, message):
    path = save_manifest(tmp_path, manifest())
    _edited(path, change)
    with pytest.raises(InputError, match=message) as caught:
        load_manifest(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_foreign_file_is_not_a_manifest(tmp_path, content):
    (tmp_path / "federation.json").write_bytes(content)
    with pytest.raises(InputError, match=r"federation\.json"):
        load_manifest(tmp_path)


def test_a_folder_that_is_no_run_says_what_makes_one(tmp_path):
    with pytest.raises(InputError, match="securefl train"):
        load_manifest(tmp_path)


def test_a_head_comes_back_with_the_same_measures(tmp_path, records):
    facts = manifest()
    head = train_head("a", *records, facts, RNG)
    save_head(tmp_path, head, facts)
    queries = RNG.normal(size=(10, 3)).astype(np.float32)
    loaded = load_head(tmp_path, "a", facts)
    np.testing.assert_array_equal(loaded.measures(queries, facts), head.measures(queries, facts))


def test_a_head_file_is_for_its_owner_alone(tmp_path, records):
    facts = manifest()
    save_head(tmp_path, train_head("a", *records, facts, RNG), facts)
    assert head_path(tmp_path, "a").stat().st_mode & 0o777 == 0o600


def test_a_client_without_a_class_measures_one_for_it(records):
    X, _ = records
    head = train_head("a", X, np.zeros(len(X), int), manifest(), RNG)
    np.testing.assert_array_equal(head.measures(X, manifest())[:, 1], 1.0)


def test_one_record_of_a_class_is_kept():
    """A client that holds a class is never dropped because it holds one record of it."""
    head = train_head("a", np.ones((1, 3), np.float32), np.array([1]), manifest(), RNG)
    assert head.measures(np.ones((1, 3), np.float32), manifest())[0, 1] == 0.0


def test_an_empty_client_is_named():
    with pytest.raises(InputError, match='client "a": 0 records'):
        train_head("a", np.empty((0, 3)), np.empty(0, int), manifest(), RNG)


def test_a_head_of_another_federation_is_refused(tmp_path, records):
    facts = manifest()
    save_head(tmp_path, train_head("a", *records, facts, RNG), facts)
    with pytest.raises(InputError, match="belongs to another federation"):
        load_head(tmp_path, "a", manifest(bits=12))


def test_a_head_moved_to_another_client_is_refused(tmp_path, records):
    facts = manifest()
    save_head(tmp_path, train_head("a", *records, facts, RNG), facts)
    head_path(tmp_path, "b").parent.mkdir(parents=True)
    head_path(tmp_path, "a").rename(head_path(tmp_path, "b"))
    with pytest.raises(InputError, match="head of 'a', expected 'b'"):
        load_head(tmp_path, "b", facts)


@pytest.mark.parametrize("cut", [0, 10, 100, -1])
def test_a_truncated_head_is_refused_with_its_path(tmp_path, records, cut):
    facts = manifest()
    save_head(tmp_path, train_head("a", *records, facts, RNG), facts)
    path = head_path(tmp_path, "a")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FormatError) as caught:
        load_head(tmp_path, "a", facts)
    assert str(path) in str(caught.value)


def test_every_flipped_byte_of_a_head_is_noticed(tmp_path, records):
    facts = manifest()
    save_head(tmp_path, train_head("a", *records, facts, RNG), facts)
    path = head_path(tmp_path, "a")
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        broken = bytearray(content)
        broken[position] ^= 1
        path.write_bytes(broken)
        with pytest.raises((InputError, FileError)):
            load_head(tmp_path, "a", facts)


def test_a_missing_head_is_named(tmp_path):
    with pytest.raises(FileError, match="head"):
        load_head(tmp_path, "a", manifest())


def test_a_failed_run_leaves_no_folder(tmp_path):
    def fail():
        with new_folder(tmp_path / "run") as aside:
            (aside / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_written_over(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("x")
    with pytest.raises(InputError, match="exists already"), new_folder(tmp_path / "run"):
        pass


def test_a_run_gives_the_measures_of_each_client(tmp_path, records):
    facts = manifest()
    X, y = records
    heads = train_heads([("a", X[:12], y[:12]), ("b", X[12:], y[12:])], facts)
    sizes = create_run(tmp_path / "run", heads, facts)
    assert set(sizes) == {"a", "b"}
    loaded_facts, loaded = load_run(tmp_path / "run")
    values = all_measures(loaded, X, loaded_facts)
    expected = KAHM.fit(X[:12][y[:12] == 1]).measure(X)
    np.testing.assert_allclose(values[:, 0, 1], expected, atol=1e-5)


def test_a_machine_may_hold_one_clients_head_only(tmp_path, records):
    facts = manifest()
    create_run(tmp_path / "run", train_heads([("b", *records)], facts), facts)
    assert [head.client for head in load_run(tmp_path / "run")[1]] == ["b"]
    with pytest.raises(FileError, match="a/head"):
        load_run(tmp_path / "run", ["a"])
    with pytest.raises(InputError, match="'c': unknown, the federation has a, b"):
        load_run(tmp_path / "run", ["c"])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((2, 4)), "the federation has 3 features"),
        (np.ones((0, 3)), "0 queries"),
        (np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]]), "query 1 holds NaN"),
    ],
)
def test_bad_queries_are_refused(X, message):
    with pytest.raises(InputError, match=message):
        query_features(X, manifest(), source="q.npz")


def test_queries_are_scaled_like_the_records():
    found = query_features(np.ones((1, 3)), manifest(scale=0.5), source="q.npz")
    np.testing.assert_array_equal(found, 0.5)

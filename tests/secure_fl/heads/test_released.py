"""Heads from releases: no private record reaches a file, and every release is in the books."""

import json

import numpy as np
import pytest

import dp
from fhe.errors import InputError as FileError
from secure_fl.data.samples import digits_split
from secure_fl.errors import InputError
from secure_fl.heads.manifest import make_manifest
from secure_fl.heads.released import open_ledger, train_private_heads
from secure_fl.heads.run_folder import create_run, load_run
from secure_fl.privacy.promises import ReleasePromise

PLAN = ReleasePromise(
    epsilon=8.0, delta=1e-5, adjacency=dp.Element(1.0), bounds=(0.0, 1.0), grid=2.0**-10
)


@pytest.fixture(scope="module")
def clients():
    train, _ = digits_split(np.random.default_rng(0))
    halves = np.array_split(np.random.default_rng(1).permutation(len(train)), 2)
    return [(name, train.X[rows], train.y[rows]) for name, rows in zip("ab", halves, strict=True)]


def manifest(**changes):
    fields = {"classes": tuple("0123456789"), "clients": ("a", "b"), "n_features": 64}
    return make_manifest(**{**fields, "unit": "element", **changes})


@pytest.fixture
def trained(clients, tmp_path):
    heads, statements = train_private_heads(clients, manifest(), PLAN, tmp_path / "ledgers")
    create_run(tmp_path / "run", heads, manifest(), statements)
    return tmp_path


def test_no_file_of_the_run_holds_a_private_record(clients, trained):
    """Every record as it would be stored, in both types; half a row suffices to be found."""
    files = [path.read_bytes() for path in trained.rglob("*") if path.is_file()]
    assert len(files) >= 2 + 2 * 3 + 1  # ledgers, heads with two statements each, the manifest
    for _, X, _ in clients:
        for row in X:
            # The first half of a digit may be all paper, which says nothing about the record.
            for dtype in (np.float32, np.float64):
                needle = row[16:48].astype(dtype).tobytes()
                assert not any(needle in content for content in files)


def test_released_features_lie_on_the_grid(trained):
    _, heads = load_run(trained / "run")
    for head in heads:
        steps = head.bank.records.astype(np.float64) * 2**10
        np.testing.assert_array_equal(steps, np.round(steps))


def test_a_release_still_tells_digits_apart(trained):
    _, test = digits_split(np.random.default_rng(0))
    facts, heads = load_run(trained / "run")
    values = np.stack([head.measures(test.X, facts) for head in heads], axis=1)
    assert np.mean(values.min(axis=1).argmin(axis=1) == test.y) > 0.9


def test_the_statement_stands_beside_the_head_with_its_unit(trained):
    folder = trained / "run" / "clients" / "a"
    statement = json.loads((folder / "statement.json").read_text())
    text = (folder / "statement.txt").read_text()
    assert "per element" in text
    assert "Not protected" in text
    assert "element" in json.dumps(statement)


def test_every_release_is_one_event_of_its_client(trained):
    for name in "ab":
        ledger = dp.Ledger.open(trained / "ledgers" / f"{name}.jsonl")
        assert len(ledger.events) == 1
        assert ledger.get_epsilon(1e-5).epsilon == pytest.approx(8.0)


def test_a_budget_that_is_spent_refuses_before_noise_is_drawn(clients, tmp_path):
    import attrs

    plan = attrs.evolve(PLAN, budget=dp.Budget(10.0, 1e-4, dp.Element(1.0)))
    train_private_heads(clients, manifest(), plan, tmp_path)
    with pytest.raises(dp.BudgetError, match="no noise was drawn"):
        train_private_heads(clients, manifest(), plan, tmp_path)
    assert len(dp.Ledger.open(tmp_path / "a.jsonl").events) == 1


def test_no_client_releases_where_one_may_not(clients, tmp_path):
    """The second client's books are full, so the first must not spend either."""
    import attrs

    full = open_ledger(tmp_path, "b", dp.Budget(10.0, 1e-4, dp.Element(1.0)))
    full.spend(dp.Event("earlier", dp.Element(1.0), dp.Promise(9.0, 1e-5)))
    before = full.path.read_bytes()
    with pytest.raises(dp.BudgetError, match=r"b\.jsonl"):
        train_private_heads(clients, manifest(), PLAN, tmp_path)
    assert full.path.read_bytes() == before
    assert not (tmp_path / "a.jsonl").exists()
    plan = attrs.evolve(PLAN, budget=dp.Budget(4.0, 1e-4, dp.Element(1.0)))
    with pytest.raises(dp.BudgetError, match=r"a\.jsonl"):
        train_private_heads(clients, manifest(), plan, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_records_as_the_unit_keep_files_free_of_records_and_say_so(clients, tmp_path):
    """A whole record replaced: clipped rows, discrete Gaussian noise, one event a client."""
    plan = ReleasePromise(
        epsilon=8.0,
        delta=1e-5,
        adjacency=dp.Record(2.0),
        bounds=(0.0, 1.0),
        grid=2.0**-6,
        mechanism="gaussian",
    )
    facts = manifest(unit="record")
    heads, statements = train_private_heads(clients, facts, plan, tmp_path / "ledgers")
    create_run(tmp_path / "run", heads, facts, statements)
    for name, statement in statements:
        assert "record" in statement.promise
        assert statement.record_level == ()
        (event,) = dp.Ledger.open(tmp_path / "ledgers" / f"{name}.jsonl").events
        assert event.gaussian is not None
        assert event.adjacency == dp.Record(2.0)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for _, X, _ in clients:
        for row in X:
            for dtype in (np.float32, np.float64):
                assert not any(row.astype(dtype).tobytes() in content for content in files)


def test_another_budget_than_the_ledgers_is_refused(tmp_path):
    open_ledger(tmp_path, "a", dp.Budget(10.0, 1e-4, dp.Element(1.0)))
    with pytest.raises(InputError, match="leave the budget out"):
        open_ledger(tmp_path, "a", dp.Budget(20.0, 1e-4, dp.Element(1.0)))


def test_batches_by_clusters_are_refused(clients, tmp_path):
    """Which batch a record is in would depend on the private entries."""
    with pytest.raises(dp.InputError, match="clusters"):
        train_private_heads(clients, manifest(batching="clusters"), PLAN, tmp_path)


def test_an_edited_ledger_is_refused(clients, tmp_path):
    train_private_heads(clients, manifest(), PLAN, tmp_path)
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text().replace("8.0", "0.8"))
    with pytest.raises((dp.LedgerError, FileError), match=r"a\.jsonl"):
        open_ledger(tmp_path, "a", None)

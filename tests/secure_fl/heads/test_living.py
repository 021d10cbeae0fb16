"""Records that come and go: the head is, byte for byte, the one that was fitted at once."""

import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp
from dp.release_plan import make_plan
from kahm import BATCHINGS, MEASURES, Bank
from secure_fl.errors import InputError
from secure_fl.heads.explaining import explain
from secure_fl.heads.forgetting import forget
from secure_fl.heads.head import Head, head_path, load_arrays, load_head, save_head
from secure_fl.heads.index import index_path, load_index, save_index
from secure_fl.heads.released import train_private_heads
from secure_fl.heads.run_folder import create_run
from secure_fl.heads.statements import load_statement
from secure_fl.heads.updating import open_living, update
from secure_fl.privacy.promises import ReleasePromise
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
        X = rng.normal(size=(n, 3))
        if draw(st.booleans()):
            # Near two points, the one far more often: most batches do not spread.
            X[:] = 0.1 * (rng.random((n, 1)) < 0.15) + 1e-5 * rng.random((n, 3))
        kind = draw(st.sampled_from(["single", "double", "wide"]))
        if kind == "wide":
            X[rng.integers(n)] = LARGE
        found.append((X.astype(np.float32) if kind == "single" else X, rng.integers(0, 3, n)))
    return found


def scaled_by_hand(X, facts):
    """What a head is trained on: of the manifest's offsets, spreads and factor, in X's type."""
    if facts.scaling == "none":
        return X
    moved = X.astype(np.float64) - np.array(facts.offsets)
    return (moved * (facts.scale / np.array(facts.spreads))).astype(X.dtype)


def machines_by_hand(run, facts, queries):
    """Measures by machines of the rows in the head's file, under the manifest's lambda."""
    arrays = load_arrays(run, CLIENT, facts)
    bank = Bank.fit(
        arrays.batches(),
        arrays.cells,
        len(facts.classes),
        dtype=arrays.records.dtype.type,
        regularisation=facts.regularisation,
        factor=facts.regularisation_factor,
    )
    return bank.measures(queries, facts.measure)


def history(folder, facts, parts):
    X, y = parts[0]
    run = train(folder / "run", facts, scaled_by_hand(X, facts), y)
    for X, y in parts[1:]:
        update(run, CLIENT, dataset(X, y), again=True)
    return run


SCALED = {
    "scale": 2.0,
    "scaling": "moments",
    "offsets": (0.25, -3.0, 1e-4),
    "spreads": (0.5, 4.0, 1e-5),
    "regularisation": "relative",
    "regularisation_factor": 0.04,
}
"""Of every feature another offset and spread, and machines other than the paper's."""


@settings(max_examples=30)
@given(
    arrivals(),
    st.sampled_from(MEASURES),
    st.sampled_from(BATCHINGS),
    st.sampled_from([{}, SCALED, {"regularisation": "relative-floor"}]),
    st.data(),
)
def test_a_head_that_lived_is_the_head_fitted_at_once(parts, measure, batching, scaled, data):
    facts = manifest(measure=measure, batching=batching, **scaled)
    n = sum(len(X) for X, _ in parts)
    gone = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = history(folder, facts, parts)
        parts = [(scaled_by_hand(X, facts), y) for X, y in parts]
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
        np.testing.assert_array_equal(measures, machines_by_hand(run, facts, queries))


def test_scaled_heads_are_updated_explained_and_forgotten_by_features_as_in_the_file(tmp_path):
    facts = manifest(**{**SCALED, "regularisation": "relative-floor"})
    rng = np.random.default_rng(5)
    near = np.array(SCALED["offsets"]), np.array(SCALED["spreads"])
    parts = [(near[0] + near[1] * rng.normal(size=(n, 3)), np.arange(n) % 3) for n in (14, 10)]
    run = history(tmp_path, facts, parts)
    query = scaled_by_hand(parts[1][0][4:5], facts).astype(np.float32)
    found = explain(run, CLIENT, query[0])
    np.testing.assert_array_equal(found.measures, machines_by_hand(run, facts, query)[0])
    assert found.measure == pytest.approx(found.measures.min(), abs=1e-5)
    gone, _ = forget(run, CLIENT, X=parts[1][0][5:7])
    assert gone.records == 2
    assert sum("means and deviations" in each for each in gone.not_recalled) == 1
    with pytest.raises(InputError, match="record 0 of those to forget is not in the head"):
        forget(run, CLIENT, X=parts[1][0][5:6])


PROMISE = ReleasePromise(
    epsilon=4.0,
    delta=0.0,
    adjacency=dp.Element(1.0),
    bounds=(0.0, 1.0),
    grid=2.0**-6,
    smoothing="none",
)
SURE = attrs.evolve(PROMISE, smoothing="sure")
"""The default, at ten times the work."""


def released(folder, facts, X, y, promise=PROMISE):
    heads, statements = train_private_heads(
        [(CLIENT, X, np.asarray(y))], facts, promise, folder / "ledgers"
    )
    create_run(folder / "run", heads, facts, statements)
    return folder / "run"


def private_arrivals(seed, sizes=(13, 9)):
    rng = np.random.default_rng(seed)
    return [
        (rng.uniform(size=(n, 3)).astype(np.float32), np.arange(n, dtype=np.int64) % 3)
        for n in sizes
    ]


def ledger(folder):
    return dp.Ledger.open(folder / "ledgers" / f"{CLIENT}.jsonl")


def fitted_from_noisy(folder, facts, noisy, cells):
    """A head's bytes from the noisy rows of its batches, which are smoothed here once more."""
    plan = make_plan(**SURE.terms())
    smooth = [
        plan.grid.nearest(dp.smooth(each, plan.variance(3)).matrix) for each in noisy if len(each)
    ]
    left = [cell for each, cell in zip(noisy, cells, strict=True) if len(each)]
    save_head(folder, Head(CLIENT, Bank.fit(smooth, left, 3)), facts)
    return head_path(folder, CLIENT).read_bytes()


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1), st.sampled_from(MEASURES), st.data())
def test_a_released_head_that_lived_is_fitted_from_what_is_left_of_its_noisy_rows(
    seed, measure, data
):
    """Old releases are not drawn again, and no row of a forgotten record has a part in others."""
    facts = manifest(unit="element", measure=measure)
    first, second = private_arrivals(seed, sizes=(7, 5))
    gone = sorted(data.draw(st.sets(st.integers(0, 11), min_size=1, max_size=11)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = released(folder, facts, *first, SURE)
        before = load_index(run, CLIENT, facts)
        update(run, CLIENT, dataset(*second))
        index = load_index(run, CLIENT, facts)
        noisy = [index.inputs[i] for i in range(len(index.cells))]
        for i, old in before.inputs.items():
            np.testing.assert_array_equal(noisy[i], old)
        whole = fitted_from_noisy(folder / "all", facts, noisy, index.cells)
        assert head_path(run, CLIENT).read_bytes() == whole
        forget(run, CLIENT, rows=gone)
        left = [each[~np.isin(index.rows_of(i), gone)] for i, each in enumerate(noisy)]
        rest = fitted_from_noisy(folder / "left", facts, left, index.cells)
        assert head_path(run, CLIENT).read_bytes() == rest
        statement = load_statement(head_path(run, CLIENT).parent / "statement.json")
        assert statement.rows == 12 - len(gone)
        assert len(statement.passes) == statement.batches == sum(map(bool, map(len, left)))


def test_a_month_of_updates_costs_a_record_what_its_own_release_costs(tmp_path):
    facts = manifest(unit="element")
    first, *rest = private_arrivals(0, sizes=(9, 4, 4, 4))
    run = released(tmp_path, facts, *first)
    for X, y in rest:
        done = update(run, CLIENT, dataset(X, y))
    books = ledger(tmp_path)
    assert len(books.events) == 4
    assert books.get_epsilon(0.0, PROMISE.adjacency).epsilon == pytest.approx(4.0)
    assert books.holds(done.statement.ledger_digest)
    assert "together epsilon 4 at" in done.statement.text()
    assert (done.statement.rows, done.records) == (21, 21)


def test_forgetting_costs_nothing(tmp_path):
    facts = manifest(unit="element")
    run = released(tmp_path, facts, *private_arrivals(0)[0])
    before = ledger(tmp_path).path.read_bytes()
    forget(run, CLIENT, rows=[3])
    assert ledger(tmp_path).path.read_bytes() == before


def test_a_record_is_released_a_second_time_only_if_asked_and_then_it_adds_up(tmp_path):
    facts = manifest(unit="element")
    (X, y), _ = private_arrivals(0)
    run = released(tmp_path, facts, X, y)
    before = head_path(run, CLIENT).read_bytes()
    with pytest.raises(InputError, match=r"1 of its 1 records, row 0 first, are in the head"):
        update(run, CLIENT, dataset(X[:1], y[:1]))
    assert head_path(run, CLIENT).read_bytes() == before
    assert len(ledger(tmp_path).events) == 1
    update(run, CLIENT, dataset(X[:1], y[:1]), again=True)
    assert ledger(tmp_path).get_epsilon(0.0, PROMISE.adjacency).epsilon == pytest.approx(8.0)


def test_a_budget_without_room_for_a_second_reading_spends_nothing(tmp_path):
    facts = manifest(unit="element")
    (X, y), (more, labels) = private_arrivals(0)
    promise = attrs.evolve(PROMISE, budget=dp.Budget(5.0, 0.0, PROMISE.adjacency))
    run = released(tmp_path, facts, X, y, promise)
    update(run, CLIENT, dataset(more, labels))
    with pytest.raises(dp.BudgetError):
        update(run, CLIENT, dataset(X, y), again=True)
    assert len(ledger(tmp_path).events) == 2


def test_an_update_that_died_after_its_booking_is_booked_again_and_adds_up(tmp_path):
    """What died may have drawn its noise; the books count its records as read twice."""
    facts = manifest(unit="element")
    first, (X, y) = private_arrivals(0)
    run = released(tmp_path, facts, *first)
    before = files_of(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secure_fl.heads.updating.write_living", _die)
        with pytest.raises(KeyboardInterrupt):
            update(run, CLIENT, dataset(X, y))
    assert files_of(run) == before
    update(run, CLIENT, dataset(X, y))
    assert ledger(tmp_path).get_epsilon(0.0, PROMISE.adjacency).epsilon == pytest.approx(8.0)


def _die(*_):
    raise KeyboardInterrupt


def files_of(run):
    folder = head_path(run, CLIENT).parent
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.mark.parametrize("what", ["update", "forget"])
def test_a_kill_at_any_moment_leaves_the_old_files_or_the_new_ones(tmp_path, what):
    """A child process is killed (SIGKILL) at every rename and every flush to the disk in turn."""
    facts = manifest(unit="element")
    first, (X, y) = private_arrivals(0)
    released(tmp_path / "kept", facts, *first)
    seen = set()
    for moment in itertools.count():
        folder = tmp_path / str(moment)
        shutil.copytree(tmp_path / "kept", folder)
        _move_ledger(folder / "run", folder / "ledgers", facts)
        here = folder / "run"
        old = files_of(here)
        killed = _killed_at(moment, what, here, X, y)
        load_index(here, CLIENT, facts)  # finishes what was decided on, as every reader does
        new = files_of(here)
        stays = {name: new.get(name) for name in old} == old
        seen.add(stays)
        if not stays:
            assert all(new[name] != old[name] for name in ("head", "index", "statement.json"))
            open_living(here, CLIENT, facts)  # head and index belong together
            rows = load_statement(head_path(here, CLIENT).parent / "statement.json").rows
            assert rows == (len(first[0]) + len(X) if what == "update" else len(first[0]) - 2)
        if not killed:
            break
    assert seen == {True, False}
    assert moment > 10


def _move_ledger(run, ledgers, facts):
    index = load_index(run, CLIENT, facts)
    release = {**index.release, "ledger": str(ledgers / f"{CLIENT}.jsonl")}
    save_index(index_path(run, CLIENT), CLIENT, attrs.evolve(index, release=release), facts)


def _killed_at(moment, what, run, X, y):
    """Whether the child that did it was killed at that moment; it is one thread, so it may fork."""
    child = os.fork()
    if child == 0:
        left = itertools.count(moment, -1)

        def counted(function):
            def call(*arguments, **named):
                if next(left) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **named)

            return call

        os.fsync, Path.replace = counted(os.fsync), counted(Path.replace)
        try:
            if what == "update":
                update(run, CLIENT, dataset(X, y))
            else:
                forget(run, CLIENT, rows=[0, 5], receipt=lambda _: "receipt")
        except BaseException:
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False

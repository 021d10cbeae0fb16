"""A party that wants to release more than its book says: by a second book, or a second name."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dp
from fhe.envelope import write_atomic
from secure_fl.data import read_clients
from secure_fl.privacy.ledgers import Shelf, books_of_matrix, default_folder, records_digest
from tests.attacks.table import Attack
from tests.cli.command import refused, securefl

ATTACK = Attack(
    name="releases one data set under several books",
    holds="the owner's own command: another form of the same records, a link, a hard link",
    before="three books that each say epsilon 1; a book behind a link that stays empty",
    after="one book, found by the records; others are named and added up; a second name is refused",
)

UNIT = dp.Element(1.0)
EVENT = dp.Event("a release", UNIT, dp.Promise(1.0, 0.0))
ELEMENT = ("--epsilon", 1, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
RECORD = ("--epsilon", 1, "--delta", 1e-5, "--unit", "record", "--norm", 1)


def write_data(folder: Path, names: str = "abc") -> Path:
    folder.mkdir()
    for i, name in enumerate(names):
        X = np.random.default_rng(i).uniform(0, 1, (30, 4)).astype(np.float32)
        np.savez(folder / f"{name}.npz", X=X, y=np.arange(30) % 2)
    return folder


def test_a_link_to_a_book_is_no_second_book(tmp_path):
    """Before, the link became a file of its own and the real book stayed empty."""
    real = dp.Ledger.create(tmp_path / "real", "trial", dp.Budget(2.0, 0.0, UNIT))
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link"
    link.symlink_to(Path("..") / "real")
    dp.Ledger.open(link).spend(EVENT)
    real.spend(EVENT)
    assert link.is_symlink()
    assert len(real.events) == len(dp.Ledger.open(link).events) == 2
    with pytest.raises(dp.BudgetError):
        dp.Ledger.open(link).spend(EVENT)


def test_both_names_in_one_booking_are_one_book(tmp_path):
    real = dp.Ledger.create(tmp_path / "real", "trial", dp.Budget(1.0, 0.0, UNIT))
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(dp.BudgetError):
        dp.book([(real, EVENT), (dp.Ledger(tmp_path / "link"), EVENT)])
    assert real.events == ()


def test_a_hard_link_to_a_book_is_refused_by_both_names(tmp_path):
    """Replacing a file would leave its other name with the emptier book."""
    real = dp.Ledger.create(tmp_path / "real", "trial")
    os.link(tmp_path / "real", tmp_path / "twin")
    for path in (tmp_path / "real", tmp_path / "twin"):
        with pytest.raises(dp.InputError, match=r"2 names \(hard links\)"):
            dp.Ledger.open(path).spend(EVENT)
    (tmp_path / "twin").unlink()
    real.spend(EVENT)


def test_what_is_replaced_elsewhere_is_what_the_link_leads_to(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@given(seed=st.integers(0, 2**32), dense=st.booleans())
def test_another_order_format_or_precision_does_not_make_other_records(seed, dense):
    import scipy.sparse

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((9, 5)) * rng.integers(0, 2, (9, 5))
    other = X[rng.permutation(9)].astype(np.float32)
    digest = records_digest(other if dense else scipy.sparse.csr_array(other))
    assert digest == records_digest(X)
    X[3, 2] += 1.0
    assert digest != records_digest(X)


def test_a_file_and_its_folder_lead_to_one_book_whatever_the_method(tmp_path):
    """Before: clients.ledgers/, clients.ledger and clients/a.npz.ledgers/, each with epsilon 1."""
    data = write_data(tmp_path / "clients")
    securefl("train", data, "--out", tmp_path / "heads", *ELEMENT)
    facts = ("--federation", tmp_path / "heads" / "federation.json")
    securefl("train", data / "a.npz", *facts, "--out", tmp_path / "own", *ELEMENT)
    secure = ("--aggregate", "secure")
    securefl(
        "train", data, "--out", tmp_path / "one", "--method", "private-ridge", *RECORD, *secure
    )
    kahm = ("--method", "kahm-record-private", *RECORD, *secure)
    securefl("train", data, "--out", tmp_path / "two", *kahm)
    noise = ("--method", "krr", "--client-epsilon", 1, "--clip", 1)
    securefl("train", data, "--out", tmp_path / "three", *noise)
    network = ("--method", "fedavg", "--model", "mlp", "--hidden", 4, "--rounds", 1)
    securefl("train", data, "--out", tmp_path / "four", *network, *RECORD[:6])
    books = {
        path.stem: dp.Ledger.open(path) for path in (tmp_path / "clients.ledgers").glob("*.jsonl")
    }
    assert sorted(books) == ["a", "b", "c"]
    assert [len(books[name].events) for name in "abc"] == [6, 5, 5]
    assert len(books["a"].units) == 4
    assert books["a"].finite_epsilon(1e-5, UNIT).epsilon == pytest.approx(2.0)
    elsewhere = {p.name for p in tmp_path.iterdir()} | {p.name for p in data.iterdir()}
    assert {each for each in elsewhere if "ledger" in each} - {"clients.ledgers"} == set()


def test_a_renamed_and_shuffled_file_keeps_its_book(tmp_path):
    data = write_data(tmp_path / "clients", "ab")
    securefl("train", data, "--out", tmp_path / "first", *ELEMENT)
    with np.load(data / "a.npz") as stored:
        X, y = stored["X"], stored["y"]
    (data / "a.npz").unlink()
    np.savez(data / "z.npz", X=X[::-1].astype(np.float64), y=y[::-1])
    out, _ = securefl("train", data, "--out", tmp_path / "second", *ELEMENT, "--json")
    assert "2 event(s)" in out
    assert sorted(p.name for p in default_folder(data).glob("*.jsonl")) == ["a.jsonl", "b.jsonl"]
    assert len(dp.Ledger.open(default_folder(data) / "a.jsonl").events) == 2


def test_a_release_into_another_folder_names_the_book_that_is_there(tmp_path):
    data = write_data(tmp_path / "clients", "ab")
    securefl("train", data, "--out", tmp_path / "first", *ELEMENT)
    elsewhere = ("--ledgers", tmp_path / "mine")
    out, err = securefl("train", data, "--out", tmp_path / "second", *ELEMENT, *elsewhere)
    assert "other books of the same records add up with it" in err
    assert str(tmp_path / "clients.ledgers" / "a.jsonl") in err
    assert "together epsilon 2 at delta 2e-05" in out


def test_a_matrix_of_the_same_records_finds_the_clients_book(tmp_path):
    data = write_data(tmp_path / "clients", "ab")
    securefl("train", data, "--out", tmp_path / "first", *ELEMENT)
    with np.load(data / "a.npz") as stored:
        np.save(tmp_path / "x.npy", stored["X"])
        X = stored["X"]
    np.save(data / "..x.npy", X)  # beside the clients' files, where their places are looked for
    book = books_of_matrix(data / "..x.npy", X, tmp_path / "new.jsonl")
    assert [each.path.name for each in book.others] == ["a.jsonl"]


def old_book(path: Path) -> None:
    """As earlier versions wrote it: no line names its records."""
    path.parent.mkdir(exist_ok=True)
    dp.Ledger.create(path, path.stem).spend(dp.Event("earlier", UNIT, dp.Promise(3.0, 0.0)))


def test_books_of_earlier_versions_go_on_or_are_named(tmp_path):
    data = write_data(tmp_path / "clients", "ab")
    old_book(data / "a.npz.ledgers" / "a.jsonl")
    old_book(tmp_path / "clients.ledger")
    shelf = Shelf.beside(data, read_clients(data))
    assert shelf.path("a") == data / "a.npz.ledgers" / "a.jsonl"
    assert shelf.path("b") == tmp_path / "clients.ledgers" / "b.jsonl"
    assert [each.path.name for each in shelf.others("a")] == ["clients.ledger"]
    out, err = securefl("train", data, "--out", tmp_path / "run", *ELEMENT)
    assert str(tmp_path / "clients.ledger") in err
    assert "together epsilon 7 at delta" in out
    assert len(dp.Ledger.open(data / "a.npz.ledgers" / "a.jsonl").events) == 2


def test_an_edited_book_at_a_default_place_stops_the_run(tmp_path):
    data = write_data(tmp_path / "clients", "ab")
    old_book(tmp_path / "clients.ledgers" / "a.jsonl")
    path = tmp_path / "clients.ledgers" / "a.jsonl"
    path.write_bytes(path.read_bytes().replace(b"3.0", b"0.1"))
    assert "was edited" in refused("train", data, "--out", tmp_path / "run", *ELEMENT)

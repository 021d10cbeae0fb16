"""Places that cannot be written, full disks, closed outputs: one line, nothing spent or left."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import dp
from secure_fl.files import prove_writable
from tests.cli.command import SECUREFL, hear_interrupts, refused, securefl
from tests.secure_fl.methods import own

ELEMENT = ("--epsilon", 1, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
RECORD = ("--epsilon", 1, "--delta", 1e-5, "--unit", "record")
MASKED = ("--norm", 1, "--aggregate", "secure")
NETWORK = ("--method", "fedavg", "--model", "mlp", "--hidden", 4, "--rounds", 1)
BOOKING = {
    "kahm": ELEMENT,
    "kahm-record-private": ("--method", "kahm-record-private", *RECORD, *MASKED),
    "private-ridge": ("--method", "private-ridge", *RECORD, *MASKED),
    "private-gradient": ("--method", "private-gradient", *RECORD, *MASKED),
    "krr": ("--method", "krr", "--client-epsilon", 1, "--clip", 1),
    "fedavg": ("--method", "fedavg", "--client-epsilon", 1, "--clip", 1, "--rounds", 2),
    "network": (*NETWORK, *RECORD),
}
"""Every way of `train` to spend."""


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "clients"
    folder.mkdir()
    for i, name in enumerate("ab"):
        X = np.random.default_rng(i).uniform(0, 1, (30, 3)).astype(np.float32)
        np.savez(folder / f"{name}.npz", X=X, y=np.arange(30) % 3)
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "afile").write_text("")
    return folder


def books(data):
    """All books at the default place."""
    return sorted((data.parent / "clients.ledgers").glob("*.jsonl"))


def spent(data):
    """Events in all books at the default place."""
    return sum(len(dp.Ledger.open(path).events) for path in books(data))


def bad_place(tmp_path, kind):
    return {
        "file": tmp_path / "afile" / "run",
        "long": tmp_path / ("n" * 300),
        "read-only": Path("/proc/run"),
    }[kind]


@pytest.mark.parametrize("method", BOOKING)
def test_a_result_that_cannot_be_written_costs_nothing(data, tmp_path, method):
    refused("train", data, "--out", bad_place(tmp_path, "file"), *BOOKING[method])
    assert spent(data) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"clients", "x.npy", "afile"}


@pytest.mark.parametrize("place", ["file", "long", "read-only"])
def test_every_new_folder_is_refused_in_one_line(data, tmp_path, place):
    where = bad_place(tmp_path, place)
    refused("train", data, "--out", where)
    refused("data", "digits", where)
    refused("data", "partition", data / "a.npz", where, "--clients", 2)
    refused("train", data, "--out", tmp_path / "run", *ELEMENT, "--ledgers", where)
    assert not (tmp_path / "run").exists()
    books = ("--ledger", tmp_path / "books")
    refused("dp", "release", tmp_path / "x.npy", where, *ELEMENT, *books)
    assert not (tmp_path / "books").exists()
    refused("dp", "release", tmp_path / "x.npy", tmp_path / "out", *ELEMENT, "--ledger", where)
    assert not (tmp_path / "out").exists()
    noise = BOOKING["krr"]
    refused("train", data, "--out", tmp_path / "run", *noise, "--checkpoint", where)
    assert spent(data) == 0


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of its own with so many bytes."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("a file system may not be mounted here, so no disk can be filled")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("method", BOOKING)
def test_a_full_disk_costs_nothing(data, tmp_path, method):
    """The room is taken before anything is booked; the books lie on another disk."""
    with small_disk(tmp_path / "disk", "64k") as disk:
        _, err = securefl("train", data, "--out", disk / "run", *BOOKING[method], check=1)
        assert "No space left on device" in err.strip().splitlines()[-1]
        assert "Traceback" not in err
        assert list(disk.iterdir()) == []
    assert spent(data) == 0


@pytest.mark.parametrize("method", BOOKING)
def test_books_on_a_full_disk_leave_no_client_charged(data, tmp_path, method):
    """Room for new books and no more: some could book and others not, so none does."""
    with small_disk(tmp_path / "disk", "16k") as disk:
        moved = disk / "clients"
        moved.symlink_to(data)
        (tmp_path / "clients.ledgers").symlink_to(disk / "books")
        (disk / "books").mkdir()
        out = ("--out", tmp_path / "run")
        _, err = securefl("train", data, *out, *BOOKING[method], check=1)
        assert "No space left" in err.strip().splitlines()[-1]
        assert spent(data) == 0
    assert not (tmp_path / "run").exists()


def test_a_release_on_a_full_disk_costs_nothing(data, tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        books = ("--ledger", tmp_path / "books")
        _, err = securefl(
            "dp", "release", tmp_path / "x.npy", disk / "out", *ELEMENT, *books, check=1
        )
        assert "No space left on device" in err
        assert list(disk.iterdir()) == []
    assert not (tmp_path / "books").exists()


CLOSED = {"closed": ">&-", "full": ">/dev/full", "gone": "| true"}


@pytest.mark.parametrize(("how", "as_json"), [("closed", ""), ("full", "--json"), ("gone", "")])
def test_an_output_that_takes_nothing_is_one_line_and_exit_1(data, tmp_path, how, as_json):
    line = (
        f"set -o pipefail; {SECUREFL} train {data} --out {tmp_path}/run -q {as_json} {CLOSED[how]}"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: standard output: ")
    # The work itself is done, and whole.
    assert (tmp_path / "run" / "federation.json").exists()
    assert json.loads((tmp_path / "run" / "federation.json").read_text())


def test_an_interrupted_private_run_says_what_it_spent(data, tmp_path):
    rounds = ("--method", "fedavg", "--client-epsilon", 5, "--clip", 1, "--rounds", 3000)
    command = [SECUREFL, "train", data, "--out", tmp_path / "run", *rounds]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    end = time.monotonic() + 60
    while spent(data) < 4 and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    said = err.strip().splitlines()[-1]
    assert said.startswith("interrupted; nothing was left half-written, but spent before that: ")
    assert "together epsilon" in said
    # The round that was being booked may have been undone: what counts is what the books hold.
    told = {
        Path(book).name: int(count) for count, book in re.findall(r"(\d+) new .*? in (\S+)", said)
    }
    assert told == {path.name: len(dp.Ledger.open(path).events) for path in books(data)}
    assert len(set(told.values())) == 1
    assert spent(data) >= 2
    assert not (tmp_path / "run").exists()


def test_what_is_public_is_refused_before_it_is_paid_for(data, tmp_path):
    for name in "ab":
        X = np.random.default_rng(0).uniform(0, 1, (30, 3)).astype(np.float32)
        np.savez(data / f"{name}.npz", X=X, y=np.arange(30) % 5)
    line = refused("train", data, "--out", tmp_path / "run", *BOOKING["kahm-record-private"])
    assert "5 classes and 3 features" in line
    assert not (data.parent / "clients.ledgers").exists()


ALONE = {
    **{name: options for name, options in BOOKING.items() if MASKED[-1] in options},
    "drawn": (*BOOKING["fedavg"], "--aggregate", "secure", "--participants", 1),
    "network": (*BOOKING["network"], "--aggregate", "secure"),
}


@pytest.mark.parametrize("method", ALONE)
def test_masks_for_one_client_are_refused_before_they_are_paid_for(data, tmp_path, method):
    source = data if method == "drawn" else data / "a.npz"
    line = refused("train", source, "--out", tmp_path / "run", *ALONE[method])
    assert "1 client takes part, at least 2 are needed" in line
    assert {p.name for p in tmp_path.iterdir()} == {"clients", "x.npy", "afile"}


def test_more_clients_than_there_are_are_refused_before_they_are_paid_for(data, tmp_path):
    options = (*BOOKING["fedavg"], "--participants", 3)
    line = refused("train", data, "--out", tmp_path / "run", *options)
    assert "3 clients a round of a federation of 2" in line
    assert not (data.parent / "clients.ledgers").exists()


@pytest.mark.parametrize("method", ["krr", "dkrr", "oneshot", "fednewton", "fednl", "fednl-cr"])
def test_a_model_of_hardly_more_than_noise_is_still_delivered(data, tmp_path, method):
    """Noise makes sums that no records have: indefinite, asymmetric, below 0."""
    noise = ("--client-epsilon", 0.5, "--clip", 1e-3)
    if own(method, "linear", {"rounds": 2}):
        noise += ("--rounds", 2)
    out = tmp_path / "run"
    securefl("train", data, "--out", out, "--method", method, *noise, "--scale", 50)
    found, _ = securefl("predict", out, data / "a.npz")
    assert len(found.split()) == 30


def test_the_account_names_a_delta_that_works(data, tmp_path):
    for run in ("one", "two"):
        out, _ = securefl("train", data, "--out", tmp_path / run, *ELEMENT)
        assert "released once" not in out
    assert "2 event(s) per element" in out
    assert "together epsilon 2 at delta 2e-05" in out
    book = tmp_path / "clients.ledgers" / "a.jsonl"
    text, _ = securefl("dp", "account", book, "--delta", 1e-5)
    assert "the least delta that has one is 2e-05: epsilon 2" in text
    told = json.loads(securefl("dp", "account", book, "--delta", 1e-5, "--json")[0])
    assert told["totals"][0]["epsilon"] is None
    assert told["totals"][0]["finite"] == {"epsilon": 2.0, "delta": 2e-05}
    page = tmp_path / "page.html"
    securefl("report", tmp_path / "two", "--out", page, "--ledgers", tmp_path / "clients.ledgers")
    assert "released once" not in page.read_text()
    assert "2 event(s) per element" in page.read_text()


def _half(folder):
    (folder / "a").write_text("half")
    raise RuntimeError("stop")


def test_an_encryption_that_fails_leaves_no_contribution(tmp_path):
    from secure_fl.errors import InputError
    from secure_fl.files import new_files

    with (
        pytest.raises(RuntimeError, match="stop"),
        new_files(tmp_path / "out", ["a", "b"]) as aside,
    ):
        _half(aside)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError), new_files(tmp_path / "out", ["a", "b"]) as aside:
        (aside / "a").write_text("one of two")
    assert not (tmp_path / "out").exists()
    with new_files(tmp_path / "out", ["a"]) as aside:
        (aside / "a").write_text("whole")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    with pytest.raises(InputError, match="exists already"), new_files(tmp_path / "out", ["a"]):
        pass


def test_a_place_is_tried_without_a_file_of_its_name(tmp_path, monkeypatch):
    """A process killed meanwhile left an empty checkpoint, which the next one refused."""
    opened, made = [], os.open

    def noted(path, *how, **more):
        opened.append(Path(path))
        return made(path, *how, **more)

    monkeypatch.setattr(os, "open", noted)
    prove_writable(tmp_path / "checkpoint", 10)
    assert any(path.name == "checkpoint" for path in opened)
    assert tmp_path / "checkpoint" not in opened
    assert not list(tmp_path.iterdir())

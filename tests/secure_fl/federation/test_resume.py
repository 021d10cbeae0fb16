"""A run killed at any point goes on to the identical bits and the identical books."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dp import Ledger
from fhe.errors import FormatError
from secure_fl.federation import ClientPrivacy, Federation, FederationError
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.federation.killed_run import State, trainer
from tests.secure_fl.shared import one_line

REPOSITORY = Path(__file__).resolve().parents[3]


def run(
    folder: Path,
    rounds: int,
    setting: str,
    *,
    workers: int = 1,
    point: str = "nowhere",
    count: int = 1,
) -> int:
    folder.mkdir(exist_ok=True)
    arguments = [str(folder), str(rounds), setting, str(workers), point, str(count)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.secure_fl.federation.killed_run", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    return done.returncode


def lines(folder: Path) -> list[dict]:
    """The log of rounds without what depends on the clock."""
    found = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: v for key, v in line.items() if key != "seconds"} for line in found]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    assert run(folder, 4, "plain") == 0
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private run after one round, and the same run taken to its end without a kill.

    The noise follows from the run's secret, so runs can be compared from the first checkpoint on.
    """
    folder = tmp_path_factory.mktemp("private")
    first, whole = folder / "first", folder / "whole"
    assert run(first, 1, "private") == 0
    shutil.copytree(first, whole)
    assert run(whole, 4, "private") == 0
    return first, whole


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("sum", 1),
        pytest.param("sum", 4, marks=pytest.mark.slow),
        ("before checkpoint", 1),
        pytest.param("after checkpoint", 2, marks=pytest.mark.slow),
        ("rename", 3),
    ],
)
def test_a_killed_run_goes_on_to_the_same_bits(plain: Path, tmp_path: Path, point: str, count: int):
    assert run(tmp_path, 4, "plain", point=point, count=count) == -signal.SIGKILL
    assert not (tmp_path / "weights").exists()
    assert run(tmp_path, 4, "plain") == 0
    assert (tmp_path / "weights").read_bytes() == (plain / "weights").read_bytes()
    assert lines(tmp_path) == lines(plain)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o600


def test_a_private_run_killed_again_and_again_goes_on_to_the_same_bits_and_books(
    private: tuple[Path, Path], tmp_path: Path
):
    first, whole = private
    folder = tmp_path / "killed"
    shutil.copytree(first, folder)
    (folder / "weights").unlink()
    for point, count in (
        ("booked", 1),
        ("noise", 9),
        ("sum", 1),
        ("before checkpoint", 1),
        ("after checkpoint", 1),
        ("booked", 2),
    ):
        assert run(folder, 4, "private", point=point, count=count) == -signal.SIGKILL
        assert not (folder / "weights").exists()
    assert run(folder, 4, "private") == 0
    assert (folder / "weights").read_bytes() == (whole / "weights").read_bytes()
    books, expected = (Ledger.open(each / "ledger.jsonl") for each in (folder, whole))
    assert books.events == expected.events
    assert len(books.events) == 2 * 4
    assert books.get_epsilon(1e-5) == expected.get_epsilon(1e-5)
    assert lines(folder) == lines(whole)


def test_a_run_whose_budget_is_planned_to_the_last_sum_goes_on_after_a_kill(tmp_path: Path):
    """What it booked before must not count twice."""
    assert run(tmp_path, 2, "exact", point="sum", count=3) == -signal.SIGKILL
    assert run(tmp_path, 2, "exact") == 0
    books = Ledger.open(tmp_path / "ledger.jsonl")
    assert len(books.events) == 4
    assert books.budget is not None
    assert books.get_epsilon(1e-5).epsilon > 0.9999 * books.budget.epsilon


@pytest.mark.slow  # killed once, above; workers: test_workers.py
def test_a_run_killed_twice_and_resumed_with_workers(plain: Path, tmp_path: Path):
    assert run(tmp_path, 4, "plain", point="sum", count=3) == -signal.SIGKILL
    assert run(tmp_path, 4, "plain", workers=2, point="sum", count=2) == -signal.SIGKILL
    assert run(tmp_path, 4, "plain", workers=2) == 0
    assert (tmp_path / "weights").read_bytes() == (plain / "weights").read_bytes()
    assert lines(tmp_path) == lines(plain)


def test_going_on_in_the_same_process(tmp_path: Path):
    fed = Federation(make_clients(), seed=1)
    list(fed.rounds(trainer(fed, 2, None), checkpoint=tmp_path / "c"))
    fed = Federation(make_clients(), seed=1)
    start = fed.resume(tmp_path / "c")
    assert isinstance(start, State)
    assert (start.round, fed.round) == (2, 2)
    (last,) = fed.rounds(trainer(fed, 3, start))
    assert last.round == 3
    reference = Federation(make_clients(), seed=1)
    *_, expected = reference.rounds(trainer(reference, 3, None))
    assert last.weights.tobytes() == expected.weights.tobytes()
    assert fed.meter.total() == reference.meter.total()


def test_a_start_that_is_yielded_again_closes_no_round(tmp_path: Path):
    fed = Federation(make_clients(), seed=1)
    list(fed.rounds(trainer(fed, 2, None), checkpoint=tmp_path / "c"))
    fed = Federation(make_clients(), seed=1)
    start = fed.resume(tmp_path / "c")

    def again():
        yield start
        yield from trainer(fed, 3, start)

    assert [state.round for state in fed.rounds(again())] == [2, 3]
    assert fed.round == 3


def test_without_a_checkpoint_a_run_starts_anew(tmp_path: Path):
    assert Federation(make_clients()).resume(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 2}, "other seed"),
        ({"clients": make_clients(2)}, "other clients"),
        ({"records": True}, "other records"),
    ],
)
def test_another_setting_is_refused(tmp_path: Path, change: dict, what: str):
    fed = Federation(make_clients(), seed=1)
    list(fed.rounds(trainer(fed, 1, None), checkpoint=tmp_path / "c"))
    clients = change.get("clients", make_clients())
    if "records" in change:
        clients[0].targets[0] += 1e-9
    other = Federation(clients, seed=change.get("seed", 1))
    with pytest.raises(FederationError) as caught:
        other.resume(tmp_path / "c")
    assert what in one_line(caught.value)


@pytest.mark.parametrize("change", [{"noise_multiplier": 3.0}, {"clip": 2.0}, {"noise": "skellam"}])
def test_a_private_run_does_not_go_on_under_other_noise(tmp_path: Path, change: dict):
    """A sum that was interrupted would be released twice, and booked once."""
    ledger = Ledger.create(tmp_path / "l", "trial")
    options = {"clip": 1.0, "noise_multiplier": 2.0, "sums": 9, "ledger": ledger}
    fed = Federation(make_clients(), privacy=ClientPrivacy(**options))
    list(fed.rounds(trainer(fed, 1, None), checkpoint=tmp_path / "c"))
    other = Federation(make_clients(), privacy=ClientPrivacy(**{**options, **change}))
    with pytest.raises(FederationError, match="other privacy"):
        other.resume(tmp_path / "c")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path):
    path = tmp_path / "c"
    fed = Federation(make_clients())
    list(fed.rounds(trainer(fed, 1, None), checkpoint=path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(FormatError, match="truncated"):
        Federation(make_clients()).resume(path)


def test_a_state_that_cannot_be_kept_is_refused(tmp_path: Path):
    fed = Federation(make_clients())

    def states():
        yield object()

    with pytest.raises(FederationError, match="@broadcastable"):
        list(fed.rounds(states(), checkpoint=tmp_path / "c"))
    assert not list(tmp_path.iterdir())


def test_every_round_is_a_line_with_every_clients_traffic(tmp_path: Path):
    fed, told = Federation(make_clients()), []

    def states():
        for _ in range(2):
            fed.sum(steps.poisoned, ("b",), np.nan)
            yield 0.5

    figures = {"accuracy": 0.25, "odd": np.nan}
    path = tmp_path / "rounds.jsonl"
    for _ in fed.rounds(states(), metrics=path, progress=told.append, measure=lambda _: figures):
        pass
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["round"], second["round"]) == (0, 1)
    assert (first["survivors"], first["participants"]) == (2, 3)
    assert first["refused"] == ["b"]
    assert (first["accuracy"], first["odd"]) == (0.25, None)
    assert first["bytes_up"] == sum(row[1] for row in first["clients"].values())
    assert first["clients"].keys() == {"a", "b", "c"}
    assert len(told) == 2
    assert "2 of 3 clients" in told[0]
    assert "accuracy 0.25" in told[0]


def test_epsilon_is_told_at_the_end(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "trial")
    told: list[str] = []
    fed = Federation(make_clients(), privacy=ClientPrivacy(1.0, 2.0, 4, ledger))
    list(fed.rounds(trainer(fed, 2, None), progress=told.append))
    assert told[-1].startswith("epsilon ")
    assert "per client" in told[-1]

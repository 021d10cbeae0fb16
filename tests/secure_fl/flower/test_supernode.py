"""`securefl flower node` against a real SuperLink: what is done once, and what is never run."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.data import read_clients
from secure_fl.errors import AwayError, InputError, ServiceError
from secure_fl.federation import wire
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.train import train as train_in_process
from tests.secure_fl.flower.consortium import CLASSES, NAMES, node_config, write_parties
from tests.secure_fl.methods import linear

pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")

from flwr.app import Message

from secure_fl.flower.app import GridTransport
from secure_fl.flower.app_settings import settings_of_app
from secure_fl.flower.plan import read_plan
from secure_fl.flower.superlink import Answers, Arrived, Line, content_of, new_content
from secure_fl.flower.training import train
from tests.secure_fl.flower.here import Here, Seat, bundle, superlink


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with superlink() as found:
        yield found


@pytest.fixture
def parties(tmp_path: Path) -> Path:
    write_parties(tmp_path)
    return tmp_path


def config(folder: Path, out: str = "run", **settings: Any) -> dict[str, Any]:
    return {
        "clients": ",".join(NAMES),
        "classes": ",".join(CLASSES),
        "method": "dkrr",
        "ridge": 0.1,
        "out": str(folder / out),
        **{name.replace("_", "-"): value for name, value in settings.items()},
    }


def trained(here: Here, plan: dict[str, Any], files: dict[str, str] | None = None) -> Any:
    """The server's part of a run, up to its end."""
    grid = here.run(plan, files or {})
    made = read_plan(plan)
    train(GridTransport(grid, made.clients, made.wait), made, lambda line: None)
    here.finish(grid)
    return LinearModel.load(made.out).weights


class Killed(BaseException):
    """The end of a process, wherever it was."""


def ask(grid: Any, node: int, request: dict[str, Any], seconds: float = 30.0) -> dict[str, Any]:
    """One request to one node, and what it answered."""
    message = Message(new_content(wire.encode(request, kind=REQUEST)), node, "query", ttl=seconds)
    (number,) = grid.push_messages([message])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for reply in grid.pull_messages([number]):
            answer = content_of(reply)
            assert answer is not None
            return dict(wire.decode(answer, kind=ANSWER))
        time.sleep(0.02)
    raise AssertionError("no answer")


def test_runs_plain_and_masked_have_the_weights_of_one_process(here: Here, parties: Path) -> None:
    """Byte for byte where sums are plain, the scaling too; up to the codes where all are masked."""
    seats = [Seat(here, node_config(parties, name)) for name in NAMES]
    clients = read_clients(parties / "clients")
    settings = linear("dkrr", ridge=0.1)
    once = train_in_process(clients, settings, scaling="moments").model
    plain = trained(here, config(parties, "plain", scaling="moments"))
    assert plain.tobytes() == once.weights.tobytes()
    assert LinearModel.load(parties / "plain").scaling_map == once.scaling_map
    expected = train_linear_model(clients, settings).model.weights
    masked = trained(here, config(parties, "masked", secure=True, max_weight=100.0))
    np.testing.assert_allclose(masked, expected, atol=1e-6)
    for seat in seats:
        seat.stop()
        assert seat.ended is None


def test_nothing_that_a_server_ships_is_unpacked_or_run(here: Here, parties: Path) -> None:
    trap = f"from pathlib import Path\nPath({str(parties / 'ran')!r}).touch()\n"
    files = dict.fromkeys(("app/__init__.py", "app/client.py", "sitecustomize.py"), trap)
    seat = Seat(here, node_config(parties, "c0"))
    before = sorted(parties.rglob("*"))
    grid = here.run(config(parties), files)
    assert ask(grid, seat.numbers[-1], {"do": "name"}) == {"name": "c0"}
    made = {path.name for path in set(parties.rglob("*")) - set(before)}
    assert made <= {"state", "lock", "node.state", "supernode.state", "supernode.lock"}
    here.finish(grid)
    seat.stop()


def test_a_run_of_another_app_gets_no_answer_but_the_kind_of_the_reason(
    here: Here, parties: Path
) -> None:
    seat = Seat(here, node_config(parties, "c0"))
    grid = here.run({"lr": 0.1})
    assert ask(grid, seat.numbers[-1], {"do": "name"}) == {"dropped": "InputError"}
    here.finish(grid)
    seat.stop()


def test_the_owners_terms_hold_whatever_the_run_asks(here: Here, parties: Path) -> None:
    seat = Seat(here, node_config(parties, "c0", secure=True))
    grid = here.run(config(parties))
    bare = {"do": "run", "step": "s", "broadcast": [], "key": [0, 0, 0], "epoch": "e"}
    assert ask(grid, seat.numbers[-1], bare) == {"dropped": "PrivacyError"}
    here.finish(grid)
    seat.stop()


# ---------------------------------------------------------------------------------- done once


class Cut(Line):
    """A line whose process is killed: nobody says farewell."""

    def leave(self) -> None:
        self._beats.stop()


class CutBeforeFetching(Cut):
    """The process ends when the head of a message is there, and nothing else."""

    def request(self, arrived: Arrived) -> bytes | None:
        raise Killed


class CutBeforeSending(Cut):
    """The process ends when the answer is made and kept."""

    def answer(self, arrived: Arrived, answer: bytes, seconds: float) -> None:
        raise Killed


class CutAfterSending(Cut):
    """The process ends when the SuperLink has the answer, and the node does not know it."""

    def answer(self, arrived: Arrived, answer: bytes, seconds: float) -> None:
        super().answer(arrived, answer, seconds)
        raise Killed


@pytest.mark.parametrize("kind", [CutBeforeFetching, CutBeforeSending, CutAfterSending])
def test_a_node_killed_at_a_message_answers_it_once_when_it_is_back(
    here: Here, parties: Path, kind: type[Line]
) -> None:
    seat = Seat(here, node_config(parties, "c0"), kind)
    grid = here.run(config(parties))
    found: list[dict[str, Any]] = []
    step = {"do": "hello"}
    asking = threading.Thread(target=lambda: found.append(ask(grid, seat.numbers[0], step)))
    asking.start()
    seat.wait()
    assert isinstance(seat.ended, Killed)
    seat.start()
    asking.join(timeout=60)
    assert found == [{"name": "c0", "features": 7}]
    assert seat.numbers[0] == seat.numbers[1]
    kept = _kept(parties / "c0" / "state")
    assert len(kept["messages"]) == 1
    here.finish(grid)
    seat.stop()


class CutAtContent(Cut):
    """The process ends when the SuperLink has the head of the answer, and all of it but some."""

    sends = 0

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        if type(request).__name__ == "PushObjectRequest":
            if not self.sends:
                raise Killed
            self.sends -= 1
        return super()._call(method, request)


class CutWithinContent(CutAtContent):
    sends = 1


@pytest.mark.parametrize("kind", [CutAtContent, CutWithinContent])
def test_an_answer_whose_head_was_taken_by_the_server_is_sent_to_its_end(
    here: Here, parties: Path, kind: type[Line]
) -> None:
    """The SuperLink forgets a question as soon as its server has seen the answer's head."""
    seat = Seat(here, node_config(parties, "c0"), kind)
    grid = here.run(config(parties))
    content = new_content(wire.encode({"do": "hello"}, kind=REQUEST))
    (number,) = grid.push_messages([Message(content, seat.numbers[0], "query", ttl=60.0)])
    seat.wait()
    assert isinstance(seat.ended, Killed)
    answers = Answers(grid)
    assert answers.look([number]) == []
    seat.start()
    end = time.monotonic() + 30
    while not (found := answers.look([number])):
        assert time.monotonic() < end
        time.sleep(0.02)
    ((asked, reply),) = found
    assert asked == number
    assert reply is not None
    answer = content_of(reply)
    assert answer is not None
    assert wire.decode(answer, kind=ANSWER)["features"] == 7
    here.finish(grid)
    seat.stop()


def test_an_answer_whose_connection_was_cut_after_it_arrived_counts_once(
    here: Here, parties: Path
) -> None:
    """It is sent again under its name, which is a digest of all of it."""
    sent: list[str] = []

    class CutOnce(Line):
        def answer(self, arrived: Arrived, answer: bytes, seconds: float) -> None:
            super().answer(arrived, answer, seconds)
            sent.append(arrived.number)
            if len(sent) == 1:
                raise AwayError("cut")

    seat = Seat(here, node_config(parties, "c0"), CutOnce)
    grid = here.run(config(parties))
    assert ask(grid, seat.numbers[-1], {"do": "name"}) == {"name": "c0"}
    while len(sent) < 2:
        time.sleep(0.01)
    assert sent[0] == sent[1]
    assert ask(grid, seat.numbers[-1], {"do": "hello"})["features"] == 7
    here.finish(grid)
    seat.stop()


def test_a_superlink_that_lost_its_memory_is_joined_anew(parties: Path) -> None:
    with superlink() as first:
        seat = Seat(first, node_config(parties, "c0"))
        port = first.port
    with superlink(port) as second:
        while len(seat.numbers) < 2:
            assert seat.ended is None
            time.sleep(0.02)
        grid = second.run(config(parties))
        assert ask(grid, seat.numbers[-1], {"do": "name"}) == {"name": "c0"}
        second.finish(grid)
        seat.stop()


def test_a_second_node_in_one_folder_is_refused(here: Here, parties: Path) -> None:
    seat = Seat(here, node_config(parties, "c0"))
    other = Seat(here, node_config(parties, "c0"))
    other.wait()
    assert isinstance(other.ended, InputError)
    assert "a node works in this folder already" in str(other.ended)
    seat.stop()


def test_a_superlink_that_wants_known_keys_says_what_to_do(here: Here, parties: Path) -> None:
    here.app.state.enable_supernode_auth = True
    try:
        seat = Seat(here, node_config(parties, "c1"))
        seat.wait()
    finally:
        here.app.state.enable_supernode_auth = False
    assert isinstance(seat.ended, ServiceError)
    assert "--auth-supernode-private-key" in str(seat.ended)


# ------------------------------------------------------------------------------- apps as data


def test_settings_of_an_app_are_flat_and_those_of_the_start_stand_above() -> None:
    app = bundle(settings='rounds = 3\nmethod = "x"\n[tool.flwr.app.config.deep]\nridge = 0.5\n')
    found = settings_of_app(app, {"rounds": 5})
    assert found == {"rounds": 5, "method": "x", "deep.ridge": 0.5}


@pytest.mark.parametrize(
    "app",
    [
        b"",
        b"PK\x03\x04" + bytes(40),
        bundle()[:-20],
        bundle(settings="rounds = \n"),
        bundle(settings="deep = " + "[" * 5000),
    ],
)
def test_a_damaged_app_is_refused_in_one_line(app: bytes) -> None:
    with pytest.raises(InputError, match=r"^server: an app without settings \(\w+\)$"):
        settings_of_app(app, {})


def test_settings_that_would_fill_the_memory_are_not_read_to_their_end() -> None:
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", "#" * (64 << 20))
    assert len(made.getvalue()) < 1 << 20
    with pytest.raises(InputError, match="more than 1048576 bytes of settings"):
        settings_of_app(made.getvalue(), {})


def _kept(state: Path) -> dict[str, Any]:
    return dict(wire.decode((state / "node.state").read_bytes(), kind="federation node"))

"""From nothing to the first private answer, as the pages say it, on machines that are this one."""

from pathlib import Path

import pytest

from tests.walk import ASKED, CLIENTS, DOCS, PAGES, Typed, Walk, blocks_of, walk_through, walking

pytest.importorskip("flwr", reason="needs the extra `flower` (pip install securefl[flower])")


# Two trainings over Flower, two over the service, keys, two batches: minutes of processor time.
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_pages_lead_to_the_first_private_answer(tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        told = {page: walk_through(walk, page) for page in PAGES}
        for answer in told.values():
            assert tuple(line.split()[-1] for line in answer.splitlines()[-4:]) == ASKED
        server = walk.home("server")
        assert (server / "first").is_dir()
        # Heads over the service are those of Flower, handed out again.
        fingerprints = {next((walk.home(name) / name / "heads").iterdir()).name for name in CLIENTS}
        assert len(fingerprints) == 1


def test_a_walk_ends_where_a_command_fails_or_what_should_stay_does_not(tmp_path: Path) -> None:
    with walking(tmp_path, lambda text: None) as walk:
        walk.type(Typed("test -e north.npz", 1, ("north", "south")))
        walk.type(Typed("touch made", 2, ("north",)))
        with pytest.raises(AssertionError, match="line 3, south"):
            walk.type(Typed("test -e made", 3, ("north", "south")))
        walk.type(Typed("sleep 60", 4, ("north",), stays="sleeper"))
        walk.check()
        walk.type(Typed("true", 5, ("south",), stays="ended"))
        walk._running["south", "ended"].process.wait()
        with pytest.raises(AssertionError, match="south, ended"):
            walk.check()


def test_machines_have_ports_of_their_own_and_files_go_where_they_are_sent(tmp_path: Path) -> None:
    walk = Walk(tmp_path, lambda text: None)
    walk.home("south")
    told = walk.type(
        Typed("echo https://south.example:80 south.example:81 --port 80", 1, ("north",))
    )
    there, other, here = (word.rpartition(":")[2] for word in told.replace("--port ", "").split())
    assert len({there, other, here}) == 3
    assert walk.type(Typed("echo --port 80", 2, ("south",))).split()[1] == there
    walk.type(Typed("echo all > note; scp note south.example:", 3, ("north",)))
    assert (walk.home("south") / "note").read_text() == "all\n"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_walked_page_is_typed(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text.count("```sh") == len(blocks_of(DOCS / page)) > 5

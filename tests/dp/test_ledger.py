"""The books: append-only, chained, whole, and a budget that holds across processes."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import dp
from dp import (
    Budget,
    BudgetError,
    Element,
    Event,
    Gaussian,
    InputError,
    JointLedger,
    Ledger,
    LedgerError,
    Membership,
    Part,
    Promise,
    Record,
    announced_here,
    book,
    spent_here,
)
from dp._appending import replace
from dp.events import LARGEST_COUNT, counted, kind_of, least_delta_of, total_of
from dp.ledger_lines import event_from_json, line_bytes, sealed_line, verified

UNIT = Element(1.0)
EVENT = Event("a release", UNIT, Promise(1.0, 1e-6))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.jsonl", "hospital a", Budget(3.0, 1e-4, UNIT))


def test_events_are_read_back_as_they_were_spent(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "hospital a")
    events = (
        EVENT,
        Event("rows", Record(2.5), Promise(1.0, 1e-5), Gaussian(4.1, discrete=True)),
        Event("training", Membership("client"), gaussian=Gaussian(1.1, 0.01, 500), count=2),
        Event("steps", Membership("record contribution"), gaussian=Gaussian(1.1, 0.01, 500)),
    )
    digests = [ledger.spend(event) for event in events]
    reopened = Ledger.open(ledger.path)
    assert reopened.events == events
    assert reopened.data_set == "hospital a"
    assert reopened.budget is None
    assert all(reopened.holds(digest) for digest in digests)
    assert not reopened.holds("0" * 64)


def test_lines_are_only_ever_added(ledger: Ledger):
    before = ledger.path.read_bytes()
    for _ in range(3):
        ledger.spend(EVENT)
        after = ledger.path.read_bytes()
        assert after.startswith(before)
        assert after.count(b"\n") == before.count(b"\n") + 1
        before = after


def test_asking_twice_gives_the_same_number(ledger: Ledger):
    ledger.spend(EVENT)
    ledger.spend(Event("noise", UNIT, Promise(0.5, 1e-6), Gaussian(9.0, discrete=True)))
    first = ledger.get_epsilon(1e-4)
    assert first == ledger.get_epsilon(1e-4) == Ledger.open(ledger.path).get_epsilon(1e-4)
    assert first.epsilon >= 0


def test_an_unspent_ledger_costs_nothing(ledger: Ledger):
    assert ledger.get_epsilon(1e-5).epsilon == 0


def test_the_event_that_would_exceed_the_budget_is_refused(ledger: Ledger):
    for _ in range(3):
        ledger.spend(EVENT)
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetError, match=r"epsilon to 4 .* the budget is 3 \(3 spent\)"):
        ledger.spend(EVENT)
    assert ledger.path.read_bytes() == before


def test_a_delta_beyond_the_budget_is_refused_too(ledger: Ledger):
    with pytest.raises(BudgetError):
        ledger.spend(Event("careless", UNIT, Promise(0.1, 1e-3)))
    with pytest.raises(BudgetError):
        ledger.spend(Event("many", UNIT, Promise(0.001, 1e-6), count=200))


def test_a_budget_is_not_passed_by_by_another_unit(ledger: Ledger):
    for other in (Element(2.0), Record(1.0), Membership()):
        with pytest.raises(InputError, match="units do not add up"):
            ledger.spend(Event("other", other, Promise(0.1, 0.0)))
    assert ledger.events == ()


def test_units_are_never_added_up(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "a")
    ledger.spend(EVENT)
    ledger.spend(Event("rows", Record(1.0), Promise(2.0, 0.0)))
    with pytest.raises(InputError, match="do not add up; name one"):
        ledger.get_epsilon(1e-5)
    assert ledger.get_epsilon(1e-5, UNIT).epsilon == 1.0
    assert ledger.get_epsilon(1e-5, Record(1.0)).epsilon == 2.0
    assert ledger.get_epsilon(1e-5, Record(3.0)).epsilon == 0.0
    assert ledger.units == (UNIT, Record(1.0))


def test_sampling_gains_only_per_member():
    """Opacus's bound is for a record added or removed, not for one replaced or one entry."""
    for unit in (UNIT, Record(1.0)):
        with pytest.raises(InputError, match="the gain from sampling"):
            Event("training", unit, gaussian=Gaussian(1.0, 0.1))


def test_a_training_runs_cost_is_that_of_its_accountant(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "a", Budget(1.8, 1e-5, Membership()))
    event = Event("training", Membership(), gaussian=Gaussian(1.1, 0.01, 1000))
    ledger.spend(event)
    assert 1.3 < ledger.get_epsilon(1e-5).epsilon < 1.8
    with pytest.raises(BudgetError):
        ledger.spend(event)


def lines_of(ledger: Ledger) -> list[bytes]:
    return ledger.path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("place", ["epsilon", "what", "data_set", "time"])
def test_a_line_edited_by_hand_is_found(ledger: Ledger, place: str):
    for _ in range(2):
        ledger.spend(EVENT)
    edits = {
        "epsilon": (b'"epsilon":1.0', b'"epsilon":0.1'),
        "what": (b"a release", b"a Release"),
        "data_set": (b"hospital a", b"hospital b"),
        "time": (b'"time":"20', b'"time":"21'),
    }
    content = ledger.path.read_bytes()
    assert edits[place][0] in content
    ledger.path.write_bytes(content.replace(*edits[place], 1))
    for action in (lambda: Ledger.open(ledger.path), lambda: ledger.spend(EVENT)):
        with pytest.raises(LedgerError, match=r"line \d was edited"):
            action()


def test_lines_taken_out_moved_or_torn_are_found(ledger: Ledger):
    for _ in range(3):
        ledger.spend(EVENT)
    header, first, second, third = lines_of(ledger)
    for damaged in (
        [header, second, third],
        [header, second, first, third],
        [first, second, third],
        [header, first, first],
        [header, first, second[:-20]],
        [header, first, b"\n"],
        [header, b"{}\n"],
        [header, b"[" * 100_000 + b"\n"],
        [header, first.replace(b'{"', b'{ "', 1)],
        [b""],
        [b"\xff\xfe\n"],
    ):
        ledger.path.write_bytes(b"".join(damaged))
        with pytest.raises(LedgerError) as caught:
            Ledger.open(ledger.path)
        assert "\n" not in str(caught.value)


def test_a_chain_made_anew_is_caught_by_the_digest_of_a_statement(tmp_path: Path):
    """Cutting off the end leaves a valid chain; the digest that a statement repeats is gone."""
    ledger = Ledger.create(tmp_path / "l", "a")
    ledger.spend(EVENT)
    digest = ledger.spend(EVENT)
    ledger.path.write_bytes(b"".join(lines_of(ledger)[:-1]))
    assert not Ledger.open(ledger.path).holds(digest)


def test_a_well_chained_event_that_cannot_be_is_refused(ledger: Ledger):
    """Whoever can compute digests still cannot enter a negative epsilon."""
    from dp.ledger_lines import line_bytes, sealed_line

    ledger.spend(EVENT)
    header, event = (json.loads(line) for line in lines_of(ledger))
    body = {k: v for k, v in event.items() if k not in ("digest", "previous")}
    for change in (
        {"promise": {"epsilon": -1.0, "delta": 0.0}},
        {"promise": {"epsilon": float("nan"), "delta": 0.0}},
        {"promise": {"epsilon": "1", "delta": 0.0}},
        {"promise": {"epsilon": 1.0}},
        {"count": 0},
        {"unit": {"kind": "element", "distance": -1.0}},
        {"unit": "element"},
    ):
        forged = sealed_line({**body, **change}, header["digest"])
        ledger.path.write_bytes(line_bytes(header) + line_bytes(forged))
        with pytest.raises(LedgerError, match="cannot be"):
            Ledger.open(ledger.path)


def test_another_format_or_version_names_both(tmp_path: Path):
    from dp.ledger_lines import line_bytes, sealed_line

    path = tmp_path / "l"
    future = {"format": "securefl ledger", "version": 2, "data_set": "a", "budget": None}
    path.write_bytes(line_bytes(sealed_line(future, "")))
    with pytest.raises(LedgerError, match="version 2, expected 'securefl ledger' version 1"):
        Ledger.open(path)


def test_a_ledger_is_never_overwritten(ledger: Ledger):
    before = ledger.path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        Ledger.create(ledger.path, "another")
    assert ledger.path.read_bytes() == before


def test_a_missing_ledger_has_a_clear_error(tmp_path: Path):
    with pytest.raises(InputError, match="no ledger can be read here"):
        Ledger.open(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot be written"):
        Ledger.create(tmp_path / "no folder" / "l", "a")


def test_only_the_owner_can_read_the_books(ledger: Ledger):
    ledger.spend(EVENT)
    assert ledger.path.stat().st_mode & 0o077 == 0


LIMITED = """
import resource, sys
from pathlib import Path
from dp import Element, Event, Ledger, Promise, StorageError, book
paths = [Path(p) for p in sys.argv[2:]]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
event = Event("a release", Element(1.0), Promise(0.5, 0.0))
try:
    book([(Ledger(path), event) for path in paths])
except StorageError as error:
    print(error)
"""


def limited(size: int, *paths: Path) -> str:
    """What booking in all of them says where no file may be larger than `size` bytes."""
    command = [sys.executable, "-c", LIMITED, str(size), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_a_write_that_the_storage_refuses_leaves_the_old_books(ledger: Ledger):
    ledger.spend(EVENT)
    before = ledger.path.read_bytes()
    said = limited(len(before) + 10, ledger.path)
    assert "cannot be written (File too large)" in said
    assert said.count("\n") == 1
    assert ledger.path.read_bytes() == before
    assert [p.name for p in ledger.path.parent.iterdir()] == [ledger.path.name]


@pytest.mark.parametrize("full", [0, 1, 2])
def test_several_books_get_an_event_together_or_none_does(tmp_path: Path, full: int):
    """One of them is so long that the limit on sizes stops it alone, whichever it is."""
    books = [Ledger.create(tmp_path / f"{i}", "trial") for i in range(3)]
    for _ in range(6):
        books[full].spend(EVENT)
    before = [book.path.read_bytes() for book in books]
    assert "cannot be written" in limited(len(before[full]) + 10, *(b.path for b in books))
    assert [book.path.read_bytes() for book in books] == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1", "2"]
    assert limited(1 << 20, *(b.path for b in books)) == ""
    assert [len(b.events) for b in books] == [1 + 6 * (i == full) for i in range(3)]


@pytest.mark.parametrize("step", ["write_aside", "sync_folder", "done"])
def test_an_interrupted_booking_is_told_as_the_books_hold_it(tmp_path: Path, monkeypatch, step):
    """Interrupted before, while and after the books get their new content."""
    pair = [Ledger.create(tmp_path / name, name) for name in "ab"]
    since = announced_here()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def replaced(contents) -> None:
        replace(contents)
        raise KeyboardInterrupt

    if step == "done":
        monkeypatch.setattr(dp.ledger, "replace", replaced)
    else:
        monkeypatch.setattr(dp._appending, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        book([(each, EVENT) for each in pair])
    monkeypatch.undo()
    held = 1 if step == "done" else 0
    assert [len(each.events) for each in pair] == [held, held]
    assert spent_here(since).count("1 new event(s) in ") == 2 * held
    assert (spent_here(since) == "") == (held == 0)


@given(st.lists(st.integers(1, 3), max_size=4), st.integers(0, 9))
def test_a_grown_ledger_is_verified_as_one_read_whole(counts: list[int], known: int):
    events = [evolve(EVENT, count=count) for count in counts]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "l", "hospital a", Budget(99.0, 1e-2, UNIT))
        contents = [ledger.path.read_bytes()]
        for event in events:
            ledger.spend(event)
            contents.append(ledger.path.read_bytes())
    whole = verified(contents[-1], ledger.path)
    assert whole.events == tuple(events)
    for content in contents:
        earlier = verified(content, ledger.path)
        assert verified(contents[-1], ledger.path, earlier) == whole
    # Not a former content, where it is shorter: all is read anew.
    shorter = contents[min(known, len(counts))]
    assert verified(shorter, ledger.path, whole) == verified(shorter, ledger.path)


KINDS = st.sampled_from(
    [
        EVENT,
        Event("another text", UNIT, Promise(1.0, 1e-6)),
        Event("less", UNIT, Promise(0.25, 0.0), count=3),
        Event("noise", UNIT, gaussian=Gaussian(4.0)),
        Event("more noise", UNIT, Promise(1.5, 1e-6), Gaussian(4.0, steps=2), count=2),
        Event("first part", UNIT, Promise(0.5, 1e-7), part=Part("days", 0)),
        Event("second part", UNIT, Promise(0.5, 1e-7), part=Part("days", 1)),
    ]
)


@given(st.lists(KINDS, max_size=12), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_equal_events_counted_cost_what_they_do_one_by_one(events: list[Event], delta: float):
    kinds: dict[Event, int] = {}
    for event in events:
        kinds[kind_of(event)] = kinds.get(kind_of(event), 0) + event.count
    singly = [each for event in events for each in [evolve(event, count=1)] * event.count]
    one_by_one = total_of(singly, delta)
    together = total_of(counted(kinds), delta)
    assert together.epsilon == pytest.approx(one_by_one.epsilon, rel=1e-12)
    assert together.rule == one_by_one.rule
    assert least_delta_of(counted(kinds)) == least_delta_of(events)


def test_more_events_than_one_line_can_count_are_counted():
    kind = kind_of(EVENT)
    found = counted({kind: 2 * LARGEST_COUNT + 1})
    assert [event.count for event in found] == [LARGEST_COUNT, LARGEST_COUNT, 1]
    assert {kind_of(event) for event in found} == {kind}


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_an_edit_is_found_by_the_process_that_verified_the_line_before(ledger: Ledger, line: int):
    for _ in range(2):
        ledger.spend(evolve(EVENT, promise=Promise(0.5, 1e-6)))
    assert len(ledger.events) == 2
    whole = ledger.path.read_bytes()
    rows = (whole + sealed_after(whole)).splitlines(keepends=True)
    rows[line] = rows[line].replace(b"hospital a", b"hospital b").replace(b"0.5", b"0.4")
    ledger.path.write_bytes(b"".join(rows))
    with pytest.raises(LedgerError, match=f"line {line + 1} was edited"):
        ledger.spend(EVENT)


def sealed_after(content: bytes) -> bytes:
    """One more line for a ledger: its last event again."""
    last = json.loads(content.splitlines()[-1])
    body = {key: value for key, value in last.items() if key not in ("digest", "previous")}
    return line_bytes(sealed_line(body, last["digest"]))


def test_a_long_run_reads_the_lines_of_its_books_once(ledger: Ledger, monkeypatch):
    read = []
    monkeypatch.setattr(
        dp.ledger_lines, "event_from_json", lambda line: read.append(line) or event_from_json(line)
    )
    for _ in range(20):
        ledger.spend(evolve(EVENT, promise=Promise(0.01, 1e-9)))
    assert len(read) <= 20


def test_one_budget_that_has_no_room_keeps_all_books_as_they_are(tmp_path: Path):
    books = [
        Ledger.create(tmp_path / name, "trial", Budget(limit, 1e-4, UNIT))
        for name, limit in (("a", 3.0), ("b", 0.5))
    ]
    with pytest.raises(BudgetError, match="/b:"):
        book([(each, EVENT) for each in books])
    assert [each.events for each in books] == [(), ()]


def test_joint_books_hold_one_event_each_and_say_the_largest_total(tmp_path: Path):
    first, second = (Ledger.create(tmp_path / name, "trial") for name in "ab")
    second.spend(EVENT)
    joint = JointLedger.of([first, second])
    name = joint.spend(EVENT)
    assert [len(each.events) for each in joint.each] == [1, 2]
    for each in joint.each:
        digest = each.digest_of(name)
        assert digest is not None
        assert each.holds(digest)
    assert joint.get_epsilon(1e-4).epsilon == second.get_epsilon(1e-4).epsilon > 1.5


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("delta", [1e-5, 3.3e-7, 0.2])
def test_the_least_delta_is_the_least_of_three_digits(tmp_path: Path, count: int, delta: float):
    ledger = Ledger.create(tmp_path / "l", "trial")
    ledger.spend(Event("a release", UNIT, Promise(1.0, delta), count=count))
    least = ledger.least_delta(UNIT)
    # At most the basic rule's: what rounding up leaves of delta may give a better one.
    found = ledger.get_epsilon(least, UNIT).epsilon
    assert 0.9 * count < found <= count * (1 + 1e-9)
    below = least * (1 - 1 / 100) - 1e-300
    assert ledger.get_epsilon(below, UNIT).epsilon == float("inf")
    assert float(f"{least:.3g}") == least
    assert f"epsilon {found:.4g} at delta {least:.3g}" in ledger.running_total(delta / 9, UNIT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Event("", UNIT, Promise(1.0, 0.0)), "1 to 200 characters"),
        (lambda: Event("a\nb", UNIT, Promise(1.0, 0.0)), "one printable line"),
        (lambda: Event("a", UNIT), "neither a promise nor Gaussian noise"),
        (lambda: Event("a", UNIT, Promise(1.0, 0.0), count=0), "expected 1 to"),
        (lambda: Event("a", UNIT, Promise(1.0, 0.0), count=True), "expected a whole number"),
        (lambda: Element(0.0), "distance"),
        (lambda: Record(float("nan")), "norm"),
        (lambda: Membership("user"), "record"),
        (lambda: Budget(0.0, 0.0, UNIT), "epsilon: found 0"),
    ],
)
def test_events_are_validated_before_they_are_written(make, message: str):
    with pytest.raises(InputError, match=message):
        make()


SPENDER = """
import sys
from pathlib import Path
from dp import BudgetError, Element, Event, Ledger, Promise
ledger = Ledger.open(Path(sys.argv[1]))
spent = 0
for _ in range(10):
    try:
        ledger.spend(Event("a release", Element(1.0), Promise(0.5, 0.0)))
        spent += 1
    except BudgetError:
        pass
print(spent)
"""


def test_processes_that_spend_at_once_never_exceed_the_budget(tmp_path: Path):
    """Four of them want 40 events of 0.5; a budget of 6 without delta has room for exactly 12."""
    ledger = Ledger.create(tmp_path / "ledger.jsonl", "a", Budget(6.0, 0.0, UNIT))
    command = [sys.executable, "-c", SPENDER, str(ledger.path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    spent = [int(process.communicate(timeout=60)[0]) for process in running]
    assert sum(spent) == 12
    assert len(Ledger.open(ledger.path).events) == 12
    assert ledger.get_epsilon(0.0).epsilon == pytest.approx(6.0)

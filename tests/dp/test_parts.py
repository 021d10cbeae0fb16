"""Disjoint parts cost what the worst of them costs; whatever may have been read twice adds up."""

import itertools

import pytest

import dp
from dp.parts import Part, worst_parts

UNIT = dp.Element(1.0)


def event(part=None, epsilon=1.0, count=1):
    return dp.Event("head", UNIT, dp.Promise(epsilon, 0.0), count=count, part=part)


def spent(tmp_path, *events, budget=None):
    ledger = dp.Ledger.create(tmp_path / "north.jsonl", "north", budget)
    for each in events:
        ledger.spend(each)
    return dp.Ledger.open(ledger.path)


def test_a_month_of_disjoint_parts_costs_one_of_them(tmp_path):
    """McSherry 2009, theorem 4."""
    ledger = spent(tmp_path, *(event(Part("head", day)) for day in range(30)))
    assert ledger.get_epsilon(0.0, UNIT).epsilon == pytest.approx(1.0)
    assert ledger.least_delta(UNIT) == 0.0


def test_a_part_that_was_read_twice_adds_up(tmp_path):
    """A release that died after it was booked, and was done again, read its records twice."""
    ledger = spent(tmp_path, event(Part("head", 0)), event(Part("head", 1)), event(Part("head", 1)))
    assert ledger.get_epsilon(0.0, UNIT).epsilon == pytest.approx(2.0)


def test_other_groups_and_events_of_everything_add_up(tmp_path):
    parts = (event(Part("a", 0)), event(Part("a", 1)), event(Part("b", 0)), event())
    assert spent(tmp_path, *parts).get_epsilon(0.0, UNIT).epsilon == pytest.approx(3.0)


def test_parts_with_different_promises_add_up(tmp_path):
    ledger = spent(tmp_path, event(Part("a", 0)), event(Part("a", 1), epsilon=2.0))
    assert ledger.get_epsilon(0.0, UNIT).epsilon == pytest.approx(3.0)


def test_the_order_of_events_does_not_matter():
    events = [event(Part("a", 0)), event(Part("a", 0)), event(Part("a", 1)), event()]
    for order in itertools.permutations(events):
        assert sum(each.count for each in worst_parts(order)) == 3


def test_a_budget_has_room_for_every_part_and_not_for_one_twice(tmp_path):
    ledger = spent(tmp_path, event(Part("a", 0)), budget=dp.Budget(1.5, 0.0, UNIT))
    ledger.spend(event(Part("a", 1)))
    with pytest.raises(dp.BudgetError, match="would bring epsilon to 2"):
        ledger.spend(event(Part("a", 1)))


def test_books_without_parts_keep_their_bytes(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert b'"part"' not in spent(tmp_path, event()).path.read_bytes()
    assert spent(other, event(Part("a", 3))).events[0].part == Part("a", 3)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (("", 0), "1 to 64 printable characters"),
        (("a\n", 0), "1 to 64 printable characters"),
        (("a", -1), "found number -1, expected a whole number from 0"),
        (("a", True), "found number True"),
    ],
)
def test_a_part_without_a_name_or_number_is_refused(part, message):
    with pytest.raises(dp.InputError, match=message):
        Part(*part)

"""When to look again: nobody looks hard, and nobody waits long."""

from hypothesis import given
from hypothesis import strategies as st

from secure_fl.flower.pace import LEAST, MOST, Pace

seconds = st.floats(0, 1e4)


def looks(pace: Pace, comes: float) -> tuple[int, float]:
    """Looks until a message that comes after so many seconds, and by how much it is found late."""
    waited, count = 0.0, 0
    while True:
        waited += pace.pause(waited)
        count += 1
        if waited >= comes:
            return count, waited - comes


@given(seconds, seconds)
def test_a_pause_is_within_its_bounds(gap: float, waited: float) -> None:
    pace = Pace()
    pace.came(gap)
    assert LEAST <= pace.pause(waited) <= MOST


@given(st.lists(seconds, max_size=8), st.floats(0, 60))
def test_no_message_waits_longer_than_a_fifth_of_its_time_or_the_shortest_gap(
    gaps: list[float], comes: float
) -> None:
    """What was learnt makes a node wait longer at most until 0.7 of the shortest gap."""
    pace = Pace()
    for gap in gaps:
        pace.came(gap)
    _, late = looks(pace, comes)
    assert late <= max(LEAST, 0.2 * comes, 0.7 * min(gaps[-5:], default=0.0)) + 1e-9


@given(st.floats(0.2, 3.0))
def test_a_steady_server_is_looked_at_few_times_a_message(gap: float) -> None:
    pace = Pace()
    blind, _ = looks(pace, gap)
    for _ in range(5):
        pace.came(gap)
    count, late = looks(pace, gap)
    assert count <= 4 < blind
    assert late <= 0.2 * gap

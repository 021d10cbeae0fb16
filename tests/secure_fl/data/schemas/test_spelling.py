"""Numbers are read as their writer meant them, or refused: the oracle is Python's own format."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data.schemas.spelling import Convention, spelled

WRITERS = {
    "python": lambda x, places: f"{x:.{places}f}",
    "english": lambda x, places: f"{x:,.{places}f}",
    "german": lambda x, places: f"{x:,.{places}f}".translate(str.maketrans(",.", ".,")),
    "french": lambda x, places: f"{x:,.{places}f}".translate(str.maketrans(",.", "\u202f,")),
    "swiss": lambda x, places: f"{x:,.{places}f}".replace(",", "’"),
}
MARK = {"python": ".", "english": ".", "german": ",", "french": ",", "swiss": "."}
numbers = st.floats(-1e9, 1e9, allow_nan=False)


def read(text, convention):
    found = spelled(text)
    assert found is not None
    numeral = convention.numeral(found)
    return None if numeral is None else float(numeral)


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=50)
@given(number=numbers, places=st.integers(1, 6))
def test_a_number_is_read_back_where_the_files_mark_is_known(writer, number, places):
    text = WRITERS[writer](number, places)
    assert read(text, Convention(frozenset(MARK[writer]))) == float(f"{number:.{places}f}")


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=50)
@given(number=numbers, places=st.integers(1, 6))
def test_a_number_that_proves_its_mark_proves_the_writers(writer, number, places):
    """So one such number in a file settles the open ones, and never settles them wrongly."""
    found = spelled(WRITERS[writer](number, places))
    assert found.shows in ("", MARK[writer])
    assert found.shows or found.grouped is not None


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=50)
@given(number=numbers, others=st.lists(numbers, max_size=5), places=st.integers(1, 4))
def test_nothing_is_read_otherwise_than_it_was_meant(writer, number, others, places):
    """A comma before three digits is refused where the file does not tell; a point is a point."""
    texts = [WRITERS[writer](each, places) for each in (number, *others)]
    found = read(texts[0], Convention.of(texts))
    silent = not Convention.of(texts).marks
    if silent and writer == "german":
        return
    assert found in (None, float(f"{number:.{places}f}"))
    assert (found is None) <= silent


NO_NUMBERS = """1,2,3|1.2.3|12,34,567|1,23.4|1 23|1_000|nan|inf|0x1|1,5,|٣|1'2|--1|1e|,|.||
1.234.567e3|1 234 567,8,9"""


@pytest.mark.parametrize("text", NO_NUMBERS.replace("\n", "").split("|"))
def test_what_is_no_number_is_none(text):
    assert spelled(text) is None


def test_open_numbers_wait_for_the_file():
    assert read("1,234", Convention.of(["1,234"])) is None
    assert read("1,234", Convention.of(["0,5"])) == 1.234
    assert read("1,234", Convention.of(["0.5"])) == 1234
    assert read("1.234", Convention.of(["0,5"])) == 1234
    assert read("1.234", Convention.of([])) == 1.234
    assert read("1,234", Convention.of(["0.5", "0,5"])) is None
    assert read("1,234", Convention.of([], "comma")) == 1.234
    assert read("1,5", Convention.of([], "point")) is None
    assert read("\u22121,5", Convention.of([])) == -1.5

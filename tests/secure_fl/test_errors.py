import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fl.errors import FormatError, InputError


@given(st.text(max_size=3000))
def test_a_message_is_one_printable_line_of_bounded_length(text):
    message = str(InputError(text))
    assert message.isprintable()
    assert len(message.splitlines()) <= 1
    assert len(message) <= 10_000


def test_line_ends_and_terminal_escapes_from_a_file_are_shown_not_obeyed():
    assert str(FormatError('label "a\nb\x1b[2Jé\u2028"')) == 'label "a\\nb\\x1b[2Jé\\u2028"'


def test_the_advice_at_the_end_of_an_overlong_message_stays():
    message = str(InputError("x" * 5000 + "; correct it"))
    assert message.endswith("x; correct it")
    assert len(message) < 1000


def test_errors_are_value_errors_and_cross_process_borders():
    error = pickle.loads(pickle.dumps(FormatError("a.npz: damaged")))
    assert isinstance(error, ValueError)
    assert isinstance(error, FormatError)
    assert str(error) == "a.npz: damaged"


def test_a_label_with_a_line_end_is_refused_in_one_line(tmp_path):
    from secure_fl.data import ClassList, read_clients

    (tmp_path / "a.csv").write_text('label,x\n"two\nlines",1\n')
    with pytest.raises(InputError) as caught:
        read_clients(tmp_path, classes=ClassList(("p", "q")))
    assert str(caught.value).startswith(
        f'client "a": label "two\\nlines" in line 3 of {tmp_path}/a.csv is none of'
    )

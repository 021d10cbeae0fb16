"""What commands say on standard error while they work."""

import pytest

from cli.output import Output


def said(capsys, count, *, quiet=False, fails=False):
    try:
        with Output(as_json=False, quiet=quiet).rounds() as hear:
            for i in range(1, count + 1):
                hear(f"round {i}")
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    return [int(line.removeprefix("round ")) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_the_first_ten_rounds_are_told(capsys, count):
    assert said(capsys, count) == list(range(1, count + 1))


def test_of_many_rounds_some_are_told_and_the_last(capsys):
    tens, hundreds = list(range(10, 100, 10)), list(range(100, 1000, 100))
    assert said(capsys, 347) == [*range(1, 10), *tens, 100, 200, 300, 347]
    assert said(capsys, 1000) == [*range(1, 10), *tens, *hundreds, 1000]


def test_a_run_that_fails_tells_the_last_round_too(capsys):
    assert said(capsys, 15, fails=True) == [*range(1, 11), 15]


def test_quiet_commands_tell_none(capsys):
    assert said(capsys, 15, quiet=True) == []

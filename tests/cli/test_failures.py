"""With --json a command that fails says so in one object on standard output, whatever failed."""

import importlib
import json

import click
import pytest

from cli.main import COMMANDS, exit_code_of, main
from secure_fl.federation import ProtocolError, QuorumError, StepError


def commands():
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, click.Group):
            yield from ((name, each) for each in command.commands)
        else:
            yield (name,)


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_says_a_usage_error_as_one_object(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", "--no-such-option"])
    failure = json.loads(capsys.readouterr().out)["error"]
    assert ended.value.code == failure["exit_code"] == 2
    assert failure["type"] == "NoSuchOption"
    assert "--no-such-option" in failure["message"]


def test_bad_input_is_one_object_too(tmp_path, capsys):
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(SystemExit) as ended:
        main(["data", "describe", str(tmp_path), "--json"])
    captured = capsys.readouterr()
    failure = json.loads(captured.out)["error"]
    assert ended.value.code == failure["exit_code"] == 2
    assert failure["message"] in captured.err


@pytest.mark.parametrize("kind", [QuorumError, StepError, ProtocolError])
def test_work_that_failed_in_a_round_is_one_line_and_code_one(kind):
    assert exit_code_of(kind("client b: left")) == 1

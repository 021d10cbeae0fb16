"""One registry: a method is one file, and everything that lists methods asks it."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import secure_fl
from cli.main import securefl as group
from secure_fl.errors import InputError
from secure_fl.trainers import registry
from secure_fl.trainers.settings import Settings
from tests.cli.command import securefl

ROOT = Path(__file__).resolve().parents[3]

TOY = '''"""A toy: every client sends its mean record, which is the model."""

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from secure_fl.federation import Client, client_step
from secure_fl.trainers.linear_settings import LinearRun, LinearSettings, OneSum
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting


@client_step
def local_mean(client: Client) -> Any:
    return np.asarray(client.features).mean(axis=0)


@method("toy", summary="the mean record", source="nobody")
@attrs.frozen(kw_only=True)
class Toy(OneSum, LinearSettings):
    volume: float = setting(1.0, "how loud", above=0)

    def once(self, run: LinearRun) -> Iterator[Any]:
        from secure_fl.trainers.linear import AveragingState

        mean = run.fed.mean(local_mean)
        weights = self.volume * np.repeat(mean[:, None], run.objective.classes, axis=1)
        yield AveragingState(weights, 1)
'''


def test_a_toy_method_is_one_file(tmp_path):
    """It trains, has its option, is in the table, and refuses what it does not have."""
    package = tmp_path / "extra"
    package.mkdir()
    (package / "toy.py").write_text(TOY)
    script = f"""
import numpy as np
import secure_fl.trainers.methods as package
package.__path__.append({str(package)!r})
from click.testing import CliRunner
from cli.main import securefl
import secure_fl
from secure_fl.trainers import registry
from secure_fl.trainers.settings import Settings
for name in "ab":
    X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    np.savez(f"clients/{{name}}.npz", X=X, y=np.arange(6) % 2)
assert "`toy`" in registry.table()
command = ["train", "clients", "--out", "run", "--method", "toy", "--volume", "2", "-q"]
done = CliRunner().invoke(securefl, command)
assert done.exit_code == 0, done.output + str(done.exception)
refused = CliRunner().invoke(securefl, [*command[:-1], "--rounds", "2", "--out", "no"])
assert "--rounds has no meaning for toy" in refused.output, refused.output
assert secure_fl.Toy(volume=3).volume == 3
"""
    (tmp_path / "clients").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_method_without_settings_of_its_own_is_refused_at_once():
    """A type checker sees no settings then, and calls every call of the class an error."""
    with pytest.raises(TypeError, match=r"method bare: put @attrs.frozen\(kw_only=True\)"):

        @registry.method("bare", summary="nothing", source="nobody")
        class Bare(Settings):
            pass


def test_the_page_of_methods_is_the_registrys():
    assert (ROOT / "docs" / "methods.md").read_text(encoding="utf-8") == registry.page()


def test_every_setting_is_an_option_of_the_command():
    command = group.get_command(None, "train")
    options = {option for each in command.params for option in each.opts}
    assert {f"--{name}" for name in registry.options()} <= options
    text, _ = securefl("train", "--help")
    for name in registry.names():
        assert name in text


@pytest.mark.parametrize("cls", registry.methods(), ids=lambda cls: cls.__name__)
def test_a_method_keeps_its_defaults_through_its_settings(cls):
    made = cls()
    given = {each.name: getattr(made, each.name) for each in cls.declared()}
    again = registry.make(cls.method, cls.family, {k: v for k, v in given.items() if v is not None})
    assert again == made
    assert getattr(secure_fl, cls.__name__) is cls


BAD = ("nan", float("nan"), float("inf"), -1, -0.5, 10**400, True, "a", [], {})


@pytest.mark.parametrize("cls", registry.methods(), ids=lambda cls: cls.__name__)
@given(st.sampled_from(BAD))
def test_a_value_out_of_range_is_one_line(cls, value):
    """Whatever is refused is refused with the setting's name; what is taken is in range."""
    for declared in cls.declared():
        kept, refusal = None, ""
        try:
            kept = getattr(cls(**{declared.name: value}), declared.name)
        except InputError as error:
            refusal = str(error)
        if refusal:
            assert refusal.isprintable()
            assert refusal.startswith(f"{declared.option}: ")
        else:
            assert declared.facts.converted(kept) == kept


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            ("fedavg", "--learning-rate", 0),
            "learning-rate: found 0.0, expected a finite number",
        ),
        (("fedavg", "--learning-rate", "nan"), "learning-rate: found nan"),
        (("fedavg", "--local-momentum", -1), "local-momentum: found -1.0, expected"),
        (("fedavg", "--server-rate", -2), "server-rate: found -2.0"),
        (("fedprox", "--proximal", -1), "proximal: found -1.0"),
        (("fednewton", "--damping", -1), "damping: found -1.0"),
        (("krr", "--ridge", "inf"), "ridge: found inf"),
        (("fedavg", "--local-epochs", 0), "local-epochs: found 0"),
        (("fedavg", "--local-batch", 0), "local-batch: found 0"),
        (("fednewton", "--memory", -1), "memory: found -1"),
        (("krr", "--random-features", -1), "random-features: found -1"),
        (("fedavgr", "--model", "fourier", "--mmd", -1), "mmd: found -1.0"),
        (("fedavgr", "--model", "fourier", "--trace", -1), "trace: found -1.0"),
        (("fedavg", "--rounds", 0), "rounds: found 0"),
        (("fedavg", "--client-epsilon", "nan", "--clip", 1), "client-epsilon: found nan"),
        (("fedavg", "--client-epsilon", "inf", "--clip", 1), "client-epsilon: found inf"),
        (("fedavg", "--client-epsilon", 1, "--clip", "nan"), "clip: found nan"),
        (
            ("fedavg", "--client-epsilon", 1, "--clip", 1, "--client-delta", 2),
            "client-delta: found",
        ),
    ],
)
def test_a_bad_number_on_the_command_line_is_one_line_and_two(tmp_path, options, part):
    import numpy as np

    (tmp_path / "clients").mkdir()
    for name in "abc":
        X = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
        np.savez(tmp_path / "clients" / f"{name}.npz", X=X, y=np.arange(9) % 3)
    command = ("train", tmp_path / "clients", "--out", tmp_path / "run", "--method", *options)
    _, err = securefl(*command, check=2)
    assert part in err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob("*ledger*"))


def test_settings_are_frozen():
    made = registry.make("fedavg", "linear", {})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.rounds = 3

"""`securefl train --method` and `predict`: real processes, real files."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

from cli.trainers import METHODS, SOLVERS
from tests.cli.test_commands import SECUREFL, refused, securefl


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Digits and four clients, made by the commands."""
    folder = tmp_path_factory.mktemp("work")
    securefl("data", "digits", folder / "digits")
    securefl(
        "data", "partition", folder / "digits" / "train.npz", folder / "clients", "--clients", 4
    )
    return folder


def trained(work, out, *options):
    found, _ = securefl("train", work / "clients", "--out", out, "--json", *options)
    return json.loads(found)


def test_the_command_knows_the_librarys_methods_and_solvers():
    from secure_fl import recipe

    assert ("kahm", *recipe.METHODS) == METHODS
    assert SOLVERS == recipe.SOLVERS


def test_a_model_by_masked_sums_predicts_what_the_plain_one_predicts(work, tmp_path):
    test = work / "digits" / "test.npz"
    options = ("--method", "fednewton", "--rounds", 3, "--memory", 5, "--random-features", 300)
    options = (*options, "--kernel-deviation", 0.7, "--test", test)
    plain = trained(work, tmp_path / "plain", *options)
    masked = trained(work, tmp_path / "masked", *options, "--aggregate", "secure")
    assert plain["rounds"] == masked["rounds"] == 3
    assert plain["figures"]["accuracy"] > 0.95
    assert plain["privacy"] is None
    results = [securefl("predict", tmp_path / run, test, "--json") for run in ("plain", "masked")]
    first, second = (json.loads(out) for out, _ in results)
    assert first == second
    assert first["accuracy"] == pytest.approx(plain["figures"]["accuracy"])
    lines = (tmp_path / "plain" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 4  # the start and three rounds
    assert json.loads(lines[-1])["accuracy"] == pytest.approx(first["accuracy"])


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_model(work, tmp_path):
    options = ("--method", "fedavg", "--rounds", 400, "--local-epochs", 3)
    trained(work, tmp_path / "whole", *options)
    checkpoint = tmp_path / "checkpoint"
    command = ["train", work / "clients", *options, "--checkpoint", checkpoint]
    running = subprocess.Popen(
        list(map(str, [SECUREFL, *command, "--out", tmp_path / "killed"])),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "killed").exists()
    securefl(*command, "--out", tmp_path / "resumed")
    models = [(tmp_path / run / "model").read_bytes() for run in ("whole", "resumed")]
    assert models[0] == models[1]


def test_client_level_noise_is_stated_with_its_unit_and_paid_once(work, tmp_path):
    options = ("--method", "fedavg", "--rounds", 2, "--client-epsilon", 50, "--clip", 1)
    options = (*options, "--ledger", tmp_path / "books")
    found = trained(work, tmp_path / "run", *options)
    assert "epsilon" in found["privacy"]
    assert "contribution" in found["privacy"]
    out, err = securefl("train", work / "clients", "--out", tmp_path / "again", *options, check=1)
    assert out == ""
    assert "budget" in err.strip().splitlines()[-1]
    assert not (tmp_path / "again").exists()


def test_a_head_that_hides_every_record_says_so_and_is_paid_once(work, tmp_path):
    promise = ("--epsilon", 20, "--delta", 1e-5, "--unit", "record", "--norm", 4)
    options = ("--method", "private-ridge", "--aggregate", "secure", *promise)
    options = (*options, "--ledger", tmp_path / "books")
    found = trained(work, tmp_path / "run", *options)
    assert "per record (one row of L2 norm at most 4 replaced)" in found["privacy"]
    out, _ = securefl("predict", tmp_path / "run", work / "digits" / "test.npz", "--json")
    assert json.loads(out)["accuracy"] > 0.6
    _, err = securefl("train", work / "clients", "--out", tmp_path / "again", *options, check=1)
    assert "budget" in err.strip().splitlines()[-1]
    plain = ("train", work / "clients", "--out", tmp_path / "no", "--method", "private-ridge")
    assert "--aggregate secure" in refused(*plain, *promise)
    _, err = securefl(*plain, "--epsilon", 1, check=2)
    assert "--norm" in err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--method", "fedavg", "--epsilon", 1), "--client-epsilon"),
        (("--method", "fednewton", "--bits", 8), "--bits"),
        (("--rounds", 3), "--rounds"),
        (("--aggregate", "secure"), "--aggregate"),
    ],
)
def test_an_option_of_another_method_is_refused(work, tmp_path, options, part):
    _, err = securefl("train", work / "clients", "--out", tmp_path / "run", *options, check=2)
    assert part in err
    assert "no meaning" in err
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_kept_private_or_solved_is_refused(work, tmp_path):
    base = ("train", work / "clients", "--out", tmp_path / "run")
    noise = ("--client-epsilon", 1)
    assert "--clip" in refused(*base, "--method", "fedavg", *noise)
    line = refused(*base, "--method", "fednewton-head", *noise, "--clip", 1)
    assert "--no-safeguard" in line
    assert "lbfgs" in refused(*base, "--method", "fednewton", "--solver", "lbfgs")
    assert not list(tmp_path.glob("*"))


def test_a_model_that_was_cut_short_or_is_none_is_refused(work, tmp_path):
    trained(work, tmp_path / "run", "--method", "dkrr")
    model, queries = tmp_path / "run" / "model", work / "digits" / "test.npz"
    whole = model.read_bytes()
    model.write_bytes(whole[: len(whole) // 2])
    assert str(model) in refused("predict", tmp_path / "run", queries)
    model.write_bytes(whole)
    np.save(tmp_path / "narrow.npy", np.zeros((2, 63)))
    assert "64" in refused("predict", tmp_path / "run", tmp_path / "narrow.npy")

"""`securefl train --method` and `predict`: real processes, real files."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

from tests.cli.command import SECUREFL, digits_of, refused, securefl


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Digits and four clients, made by the commands."""
    folder = tmp_path_factory.mktemp("work")
    digits_of(folder, 4)
    return folder


def trained(work, out, *options):
    found, _ = securefl("train", work / "clients", "--out", out, "--json", *options)
    return json.loads(found)


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


def test_fednl_by_masked_sums_gives_the_plain_model_and_states_what_noise_costs(work, tmp_path):
    test = work / "digits" / "test.npz"
    options = ("--method", "fednl-ls", "--rounds", 8, "--ridge", 1e-3, "--test", test)
    options = (*options, "--compressor", "shared-rand-k")
    plain = trained(work, tmp_path / "plain", *options)
    masked = trained(work, tmp_path / "masked", *options, "--aggregate", "secure")
    assert plain["figures"]["accuracy"] > 0.9
    assert masked["figures"]["accuracy"] == pytest.approx(plain["figures"]["accuracy"], abs=0.01)
    found, _ = securefl("predict", tmp_path / "masked", test, "--json")
    assert json.loads(found)["accuracy"] == pytest.approx(masked["figures"]["accuracy"])
    noise = ("--client-epsilon", 50, "--clip", 1, "--ledger", tmp_path / "books", "--rounds", 2)
    options = ("--aggregate", "secure", *noise)
    private = trained(work, tmp_path / "private", "--method", "fednl", *options)
    assert "contribution" in private["privacy"]
    for method, more, message in (
        ("fednl-ls", noise, "line search of fednl-ls"),
        ("fednl", ("--participants", 2), "--participants has no meaning for fednl"),
    ):
        command = ("train", work / "clients", "--out", tmp_path / "x", "--method", method)
        _, line = securefl(*command, *more, check=2)
        assert message in line


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


def test_skellam_noise_is_asked_for_by_name(work, tmp_path):
    options = ("--method", "fedavg", "--rounds", 1, "--clip", 1, "--client-noise", "skellam")
    _, line = securefl("train", work / "clients", "--out", tmp_path / "run", *options, check=2)
    assert "--client-noise has no meaning without --client-epsilon" in line
    options = (*options, "--client-epsilon", 8, "--aggregate", "secure")
    found = trained(work, tmp_path / "run", *options, "--ledger", tmp_path / "books")
    assert "contribution" in found["privacy"]
    assert '"whole_orders":true' in (tmp_path / "books").read_text().replace(" ", "")


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


def test_means_and_deviations_are_released_for_a_part_of_the_promise(work, tmp_path):
    """Pixels of 0 to 1: by public bounds of theirs, or the ranges of public records."""
    promise = ("--epsilon", 20, "--delta", 1e-5, "--unit", "record", "--norm", 8)
    options = ("--method", "private-ridge", "--aggregate", "secure", *promise)
    options = (*options, "--scaling", "floored", "--ledger", tmp_path / "books")
    command = ("train", work / "clients", "--out", tmp_path / "no", *options)
    assert "give --moments-clip NORM or LOW,HIGH, or --public FILE" in refused(*command)
    assert not (tmp_path / "books").exists()
    found, err = securefl(
        *command[:3], tmp_path / "run", *options, "--moments-clip", "0,1", "--json"
    )
    assert "means and deviations of 64 features were released for a part of the promise" in err
    assert "per record (one row of L2 norm at most 8 replaced)" in json.loads(found)["privacy"]
    test = work / "digits" / "test.npz"
    out, _ = securefl("predict", tmp_path / "run", test, "--json")
    assert json.loads(out)["accuracy"] > 0.7
    out, _ = securefl("dp", "account", tmp_path / "books", "--delta", 1e-5)
    assert "2 events" in out
    assert "epsilon 20 at delta 1e-05 per record" in out
    events = (tmp_path / "books").read_text()
    assert "noisy means and deviations of 64 features, for their scaling" in events
    _, err = securefl(*command, "--public", test, check=1)
    assert "budget" in err.strip().splitlines()[-1]
    for more, message in (
        (("--moments-clip", "a"), "expected NORM or LOW,HIGH"),
        (("--moments-clip", "4", "--public", test), "say the same; give one of them"),
    ):
        _, err = securefl(*command, *more, check=2)
        assert message in err


PROMISE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "record", "--norm", 4)
RELEASED = ("--method", "kahm-record-private", *PROMISE)


@pytest.mark.slow  # the head itself: tests/secure_fl/trainers/linear/test_kahm_record_private.py
def test_machines_that_hide_every_record_answer_by_codes_and_are_paid_once(work, tmp_path):
    options = (*RELEASED, "--aggregate", "secure", "--ledger", tmp_path / "books")
    found = trained(work, tmp_path / "run", *options)
    assert {each["machines"] for each in found["clients"].values()} == {10}
    statements = {json.dumps(each) for each in found["privacy"].values()}
    assert len(statements) == 1
    assert "epsilon 8, delta 1e-05 per record (one row" in statements.pop()
    facts = found["manifest"]
    assert facts["unit"] == "record"
    assert 0 < facts["low"] < facts["high"] < 1
    test = work / "digits" / "test.npz"
    answers = {}
    for mode in ("plain", "simulate"):
        out, _ = securefl("infer", test, "--run", tmp_path / "run", "--mode", mode, "--json", "-q")
        answers[mode] = json.loads(out)["accuracy"]
    assert answers["plain"] > 0.8
    assert abs(answers["simulate"] - answers["plain"]) < 0.03
    out, _ = securefl("report", tmp_path / "run", "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "masked sums" in page
    _, err = securefl("train", work / "clients", "--out", tmp_path / "again", *options, check=1)
    assert "budget" in err.strip().splitlines()[-1]
    assert not (tmp_path / "again").exists()


def test_machines_that_hide_every_record_need_masks_and_two_clients(work, tmp_path):
    base = ("--out", tmp_path / "run", *RELEASED, "--ledger", tmp_path / "books")
    assert "--aggregate secure" in refused("train", work / "clients", *base)
    alone = work / "clients" / "client-00.npz"
    assert "2 are needed" in refused("train", alone, *base, "--aggregate", "secure")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_machines_that_hide_every_record_answer_under_encryption(work, tmp_path):
    run, keys = tmp_path / "run", tmp_path / "keys"
    trained(work, run, *RELEASED, "--aggregate", "secure", "--ledger", tmp_path / "books")
    securefl("keys", "new", run, "--out", keys, "--failure", 40)
    test = work / "digits" / "test.npz"
    rows = ("--rows", "0:4")
    securefl("encrypt", test, "--run", run, "--keys", keys, "--out", tmp_path / "sent", *rows)
    securefl("infer", tmp_path / "sent", "--keys", keys, "--out", tmp_path / "answer")
    out, _ = securefl("decrypt", tmp_path / "answer", "--keys", keys, "--run", run, "--json")
    simulated, _ = securefl("infer", test, "--run", run, "--mode", "simulate", "--json", *rows)
    assert json.loads(out)["classes"] == json.loads(simulated)["classes"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ((*RELEASED, "--batch-size", 9), "--batch-size"),
        ((*RELEASED, "--rounds", 9), "--rounds"),
        (("--method", "fedavg", "--epsilon", 1), "--client-epsilon"),
        (("--method", "fednewton", "--bits", 8), "--bits"),
        (("--rounds", 3), "--rounds"),
        (("--aggregate", "secure"), "--aggregate"),
        (("--method", "fedavg", "--proximal", 1), "--proximal"),
        (("--method", "fedavg", "--solver", "cg"), "--solver"),
        (("--method", "fedavg", "--memory", 1), "--memory"),
        (("--method", "fedavg", "--compressor", "top-k"), "--compressor"),
        (("--method", "fedavg", "--damping", 1), "--damping"),
        (("--method", "krr", "--rounds", 5), "--rounds"),
        (("--method", "krr", "--learning-rate", 1), "--learning-rate"),
        (("--method", "krr", "--clip", 1), "--clip"),
        (("--budget", 1), "--budget"),
        (("--norm", 1), "--norm"),
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

"""`securefl dp plan` says what a release will be like and spends nothing; remarks beforehand."""

import json

import numpy as np
import pytest

from tests.cli.command import run, securefl

WEAK = ("--epsilon", "0.3", "--delta", "0", "--unit", "element", "--bounds", "-1", "1")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    (tmp_path / "clients").mkdir()
    np.savez(tmp_path / "clients" / "a.npz", X=np.tanh(rng.normal(y[:, None], 0.3, (90, 4))), y=y)
    return tmp_path


def files(folder):
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def test_a_plan_says_noise_implied_epsilon_and_accuracy_and_writes_nothing(folder):
    before = files(folder)
    out, err = securefl("dp", "plan", folder / "clients" / "a.npz", *WEAK, "--json", "--quiet")
    found = json.loads(out)
    assert err == ""
    assert found["noise_of_range"] == pytest.approx(found["noise"] / 2)
    # Four entries of 0.3 at delta 0 are 1.2; the delta of 1e-5 that a record is given takes little.
    assert found["record_level"][0]["epsilon"] == pytest.approx(1.2, rel=1e-3)
    assert found["expected"]["records"] == 22
    assert len(found["expected"]["private"]) == 3
    assert files(folder) == before


def test_a_plan_without_records_needs_columns(folder):
    out, err = securefl("dp", "plan", "--columns", "4", *WEAK)
    assert "2.4 of their range" in out
    assert "remark: noise of standard deviation 4.71 on entries in [-1, 1]" in err
    code, _, err = run("dp", "plan", *WEAK)
    assert code == 2
    assert "give PUBLIC, a file of public records, or --columns" in err
    code, _, err = run("dp", "plan", "--columns", "4", "--runs", "2", *WEAK)
    assert code == 2
    assert "--runs has no meaning without PUBLIC" in err
    code, _, err = run("dp", "plan", folder / "clients" / "a.npz", "--columns", "4", *WEAK)
    assert code == 2
    assert "--columns has no meaning beside PUBLIC" in err


def test_a_plan_with_released_scaling_says_what_is_left_for_the_heads(folder):
    """And trains on public records as a run will, in books that are thrown away."""
    promise = ("--epsilon", 8, "--delta", 1e-5, "--unit", "element", "--bounds", -2, 2)
    whole = ("--distance", 4, "--scaling", "moments")
    before = files(folder)
    public = folder / "clients" / "a.npz"
    out, _ = securefl("dp", "plan", public, *promise, *whole, "--runs", 1)
    assert "means and deviations are released before" in out
    assert "they leave epsilon 7.2 at delta 5e-06" in out
    assert "expected accuracy" in out
    assert files(folder) == before
    out, _ = securefl("dp", "plan", "--columns", 4, *promise, *whole, "--json")
    assert json.loads(out)["left"]["epsilon"] == pytest.approx(7.2)
    _, err = securefl("dp", "plan", public, *promise, "--scaling", "moments", check=2)
    assert "give --distance 4, the whole of --bounds" in err
    _, err = securefl("dp", "plan", "--columns", 4, *promise, "--scaling", "range", check=2)
    assert "--scaling has no meaning without PUBLIC" in err
    # And so it is trained: one event more in every client's book, and the budget holds both.
    np.savez(folder / "clients" / "b.npz", **np.load(public))
    options = (*promise, *whole, "--public", public, "--budget", 8)
    run_folder = folder / "run"
    securefl("train", folder / "clients", "--out", run_folder, *options)
    assert json.loads((run_folder / "federation.json").read_text())["scaling"] == "released"
    statement = (run_folder / "clients" / "a" / "statement.txt").read_text()
    assert "epsilon 7.2, delta 5e-06" in statement
    assert "were released before" in statement
    for name in "ab":
        out, _ = securefl(
            "dp", "account", folder / f"clients.ledgers/{name}.jsonl", "--delta", 1e-5
        )
        assert "2 events" in out
    # What comes later is scaled by the same constants, and its statement says so still.
    np.savez(
        folder / "more.npz", **{k: v[:30] + (k == "X") / 9 for k, v in np.load(public).items()}
    )
    securefl("update", run_folder, "--client", "a", "--add", folder / "more.npz")
    statement = (run_folder / "clients" / "a" / "statement.txt").read_text()
    assert "came in 2 arrivals" in statement
    assert "were released before" in statement
    out, _ = securefl("infer", public, "--run", run_folder, "--mode", "plain", "--json", "-q")
    assert json.loads(out)["accuracy"] > 1 / 3
    _, err = securefl("train", folder / "clients", "--out", folder / "again", *options, check=1)
    assert "budget" in err.strip().splitlines()[-1]


def test_train_remarks_on_a_promise_that_says_little_before_it_spends(folder):
    weak = ("--epsilon", "0.3", "--delta", "0.02", "--unit", "element", "--bounds", "-1", "1")
    _, err = securefl("train", folder / "clients", "--out", folder / "run", *weak)
    assert "remark: delta 0.02 is large: a mechanism that publishes 1.8 of 90 records" in err
    assert "remark: noise of standard deviation" in err
    client = ("--client-epsilon", "4", "--client-delta", "0.01", "--clip", "1", "--rounds", "1")
    np.savez(folder / "clients" / "b.npz", **np.load(folder / "clients" / "a.npz"))
    options = ("--method", "fedavg", "--aggregate", "secure", *client)
    _, err = securefl("train", folder / "clients", "--out", folder / "model", *options)
    assert "remark: delta 0.01 is large: a mechanism that publishes each client as it is" in err


def test_a_release_remarks_on_its_noise(folder):
    np.save(folder / "m.npy", np.zeros((5, 4)))
    arguments = (folder / "m.npy", folder / "out", "--ledger", folder / "books", *WEAK)
    _, err = securefl("dp", "release", *arguments)
    assert "remark: noise of standard deviation 4.71" in err

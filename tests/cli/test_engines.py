"""The batched engine by the command: the same steps, other keys."""

import json

import pytest

from .command import digits_of, refused, securefl


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Digits, three clients, a run with 4-bit codes and keys of the batched engine."""
    folder = tmp_path_factory.mktemp("work")
    digits_of(folder, 3)
    securefl("train", folder / "clients", "--out", folder / "run", "--bits", 4)
    out, _ = securefl(
        "keys", "new", folder / "run", "--engine", "bgv", "--out", folder / "keys", "--json"
    )
    assert json.loads(out)["engine"] == "bgv"
    return folder


@pytest.mark.slow  # the roles by themselves: tests/fhe/batched/test_roles.py
def test_a_batch_goes_through_all_roles(work):
    """All test digits at once, with known answers; equal to the same codes in the clear."""
    queries, run, keys = work / "digits" / "test.npz", work / "run", work / "keys"
    sent, answer, audit = work / "sent", work / "answer", work / "audit"
    known = ("--audit", 9, "--audit-file", audit)
    securefl("encrypt", queries, "--run", run, "--keys", keys, "--out", sent, *known)
    _, err = securefl("infer", sent, "--keys", keys, "--out", answer)
    assert "by engine tfhe and" in err
    assert "in core-seconds; cheaper: " in err
    read = ("decrypt", answer, "--keys", keys, "--run", run, "--audit-file", audit, "--json")
    out, err = securefl(*read)
    assert "all 9 known answers are right" in err
    simulated, _ = securefl("infer", queries, "--run", run, "--mode", "simulate", "--json")
    assert json.loads(out)["classes"] == json.loads(simulated)["classes"]
    assert "was answered before" in refused("infer", sent, "--keys", keys, "--out", work / "again")
    page = work / "report.html"
    given = ("--keys", keys, "--contributions", sent, "--answer", answer)
    securefl("report", run, "--out", page, *given)
    assert "bgv" in page.read_text()


def test_inspect_names_the_engine_and_what_a_batch_costs(work):
    out, _ = securefl("keys", "inspect", work / "keys")
    assert "engine bgv: 3 contributors, 10 classes, 4-bit codes, up to 16,384 queries" in out
    assert "core-seconds for up to 16,384 queries" in out


def test_options_of_the_other_engine_are_refused(work, tmp_path):
    options = ("--engine", "bgv", "--failure", 64, "--out", tmp_path / "keys")
    _, err = securefl("keys", "new", work / "run", *options, check=2)
    assert "--failure and --block are of --engine tfhe" in err

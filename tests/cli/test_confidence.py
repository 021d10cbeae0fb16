"""`securefl data calibrate`, and "unknown" in the clear and on ciphertexts, as a user runs them."""

import json

import numpy as np
import pytest

from tests.cli.command import refused, securefl

CENTRES = np.array([[2, 2], [6, 2], [2, 6]])


def blobs(rng, count):
    y = np.arange(count) % 3
    return CENTRES[y] + rng.normal(0, 0.3, (count, 2)), y


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Two clients, public records, a run with a threshold, and queries of which two are strange."""
    folder = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(0)
    (folder / "clients").mkdir()
    for name, count in (("clients/a", 60), ("clients/b", 60), ("public", 150)):
        X, y = blobs(rng, count)
        np.savez(folder / f"{name}.npz", X=X, y=y)
    np.savez(folder / "queries.npz", X=[*CENTRES, [4, 4], [9, 9]], y=[0, 1, 2, 0, 0])
    securefl("train", folder / "clients", "--out", folder / "run", "--bits", 4)
    (folder / "before.json").write_text((folder / "run" / "federation.json").read_text())
    common = ("data", "calibrate", folder / "public.npz", "--run", folder / "run")
    out, _ = securefl(*common, "--unknown-above", 0.3, "--set", "--json")
    return folder, json.loads(out)


def plain(folder, *more, run="run"):
    out, _ = securefl(
        *("infer", folder / "queries.npz", "--run", folder / run, "--mode", "plain", "--json"),
        *more,
    )
    return json.loads(out)


EXPECTED = ["0", "1", "2", "unknown", "unknown"]


def test_a_calibration_tells_the_curve(work):
    _, found = work
    assert found["unknown_above"] == 0.3
    assert found["answered"] > 0.95
    assert found["accuracy"] == 1
    assert found["strangers"] > 0.98
    assert found["curve"][0]["answered"] == pytest.approx(0.5, abs=0.01)


def test_a_run_with_a_threshold_says_unknown(work):
    folder, _ = work
    found = plain(folder)
    assert found["classes"] == EXPECTED
    assert (found["answered"], found["accuracy"]) == (0.6, 0.6)
    assert plain(folder, "--unknown-above", 0.99)["classes"][3] != "unknown"


def test_the_best_classes_have_calibrated_probabilities(work):
    folder, _ = work
    (first, *_) = plain(folder, "--top", 2)["top"]
    assert (first[0]["class"], first[1]["class"] != "0") == ("0", True)
    assert first[0]["probability"] > 0.9
    out, err = securefl(
        *("infer", folder / "queries.npz", "--run", folder / "run", "--mode", "plain"),
        *("--top", 1, "--rows", "0:1"),
    )
    assert out.startswith("0\t0 0.9")
    assert "calibrated on public data" in err


@pytest.mark.slow  # Compiles a circuit of its own; the rule without ciphertexts is tried every day.
def test_the_encrypted_answer_is_that_in_the_clear(work):
    """The threshold is a contribution of its own, made without any head."""
    folder, _ = work
    keys, sent = folder / "keys", folder / "sent"
    securefl("keys", "new", folder / "run", "--out", keys, "--failure", 40, "--block", 1)
    common = ("--run", folder / "run", "--keys", keys, "--out", sent, "--batch", "b1")
    rows = ("--rows", "2:4")
    securefl("encrypt", folder / "queries.npz", *common, *rows, "--client", "a", "--client", "b")
    assert not (sent / "unknown.contribution").exists()
    answer = ("infer", sent, "--keys", keys, "--out", folder / "answer")
    assert "contributions: 2 of 3, positions 2 are missing" in refused(*answer)
    securefl("encrypt", folder / "queries.npz", *common, *rows, "--client", "unknown")
    securefl(*answer)
    out, _ = securefl("decrypt", folder / "answer", "--keys", keys, "--run", folder / "run")
    assert out.split() == EXPECTED[2:4]


def test_what_does_not_fit_together_is_refused(work, tmp_path):
    folder, _ = work
    calibrate = ("data", "calibrate", folder / "public.npz", "--run", folder / "run")
    _, err = securefl(*calibrate, "--share", 0.9, "--accuracy", 0.9, check=2)
    assert "give one of --share, --accuracy and --unknown-above" in err
    assert "has the largest code" in refused(*calibrate, "--unknown-above", 0.999)
    np.save(tmp_path / "bare.npy", np.zeros((80, 2)))
    bare = ("data", "calibrate", tmp_path / "bare.npy", "--run", folder / "run")
    assert "holds no labels" in refused(*bare)
    asked = ("infer", folder / "queries.npz", "--run", folder / "run")
    _, err = securefl(*asked, "--mode", "simulate", "--top", 2, check=2)
    assert "--top is of --mode plain" in err
    _, err = securefl("infer", folder / "public.npz", "--top", 2, check=2)
    assert "by the federation's own threshold" in err

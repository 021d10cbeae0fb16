"""Queries without labels get their classes; only the accuracy is not told."""

import json

import numpy as np
import pytest

from tests.cli.command import refused, securefl


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Two clients' csv files, heads of them and a trained model, and the same queries four times.

    Class k0 lies about 0, class k1 about 1.
    """
    folder = tmp_path_factory.mktemp("unlabelled")
    (folder / "clients").mkdir()
    rng = np.random.default_rng(0)
    for client in "ab":
        rows = [f"{x:.3f},{y:.3f},k{i % 2}" for i, (x, y) in enumerate(_points(rng, 20))]
        (folder / "clients" / f"{client}.csv").write_text("\n".join(["x,y,label", *rows]))
    points = _points(rng, 6)
    rows = [f"{x},{y}" for x, y in points]
    (folder / "bare.csv").write_text("\n".join(["x,y", *rows]))
    (folder / "turned.csv").write_text("\n".join(["y,x", *(f"{y},{x}" for x, y in points)]))
    (folder / "named.csv").write_text("\n".join(["x,y,class", *(f"{row},k0" for row in rows)]))
    np.savez(folder / "bare.npz", X=points)
    securefl("train", folder / "clients", "--out", folder / "heads")
    securefl("train", folder / "clients", "--out", folder / "model", "--method", "krr")
    return folder


def _points(rng, n):
    return rng.uniform(-0.2, 0.2, (n, 2)) + (np.arange(n) % 2)[:, None]


@pytest.mark.parametrize("file", ["bare.csv", "turned.csv", "bare.npz"])
def test_queries_without_labels_are_classified(work, file):
    for out, _ in (
        securefl("predict", work / "model", work / file, "--json"),
        securefl("infer", work / file, "--mode", "plain", "--run", work / "heads", "--json"),
    ):
        assert json.loads(out) == {"classes": ["k0", "k1"] * 3}


def test_a_label_column_of_another_name_is_asked_for_or_taken_by_its_name(work):
    line = refused("predict", work / "model", work / "named.csv")
    assert "--label-column class" in line
    named = ("predict", work / "model", work / "named.csv", "--label-column", "class", "--json")
    assert json.loads(securefl(*named)[0])["accuracy"] == 0.5


def test_a_label_column_that_was_named_must_be_there(work):
    line = refused("predict", work / "model", work / "bare.csv", "--label-column", "class")
    assert 'no label column "class"' in line


def test_what_needs_labels_says_so(work, tmp_path):
    options = ("--out", tmp_path / "page.html", "--test", work / "bare.csv")
    assert "holds no labels" in refused("report", work / "model", *options)


def test_clients_need_labels_as_ever(work, tmp_path):
    (tmp_path / "a.csv").write_text((work / "bare.csv").read_text())
    assert 'no label column "label"' in refused("data", "describe", tmp_path)

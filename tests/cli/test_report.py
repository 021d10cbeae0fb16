"""`securefl report` as a user runs it, with keys and messages of a real batch."""

import json
import re

import numpy as np
import pytest

from tests.cli.command import refused, securefl


def write_clients(folder, names, seed=0):
    """Two classes around two centres, 24 records a client."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for name in names:
        y = np.arange(24) % 2
        X = (0.3 + 0.4 * y[:, None] + 0.1 * rng.standard_normal((24, 4))).astype(np.float32)
        np.savez(folder / f"{name}.npz", X=X, y=y)


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A run, its keys, and three queries that went through all roles."""
    folder = tmp_path_factory.mktemp("day")
    write_clients(folder / "clients", ("east", "west"))
    write_clients(folder / "more", ("test",), seed=1)
    run, keys = folder / "run", folder / "keys"
    securefl("train", folder / "clients", "--out", run)
    securefl("keys", "new", run, "--out", keys, "--failure", 40)
    test = folder / "more" / "test.npz"
    batch = (test, "--run", run, "--keys", keys, "--rows", "0:3")
    securefl("encrypt", *batch, "--out", folder / "sent")
    securefl("infer", folder / "sent", "--keys", keys, "--out", folder / "answer")
    return folder


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8")))


def test_keys_and_messages_are_counted_byte_by_byte(day, tmp_path):
    page = tmp_path / "page.html"
    out, _ = securefl(
        *("report", day / "run", "--out", page, "--keys", day / "keys", "--json"),
        *("--contributions", day / "sent", "--answer", day / "answer"),
        *("--test", day / "more" / "test.npz"),
    )
    found = json.loads(out)
    assert found["bytes"] == page.stat().st_size
    assert found["accuracy"] > 0.9
    assert found["promises"] == {}
    text = text_of(page)
    sent = [path.stat().st_size for path in (day / "sent").iterdir()]
    assert f"contributions the evaluator 2 {sum(sent):,} {sum(sent) // 6:,}" in text
    size = (day / "answer").stat().st_size
    assert f"answer the querier 1 {size:,} {size // 3:,}" in text
    assert f"{(day / 'keys' / 'evaluation.key').stat().st_size:,}" in text
    assert "at most 2^-40" in text
    assert "bootstrap key: GLWE of rank" in text


def test_no_key_material_enters_the_page(day, tmp_path):
    page = tmp_path / "page.html"
    securefl("report", day / "run", "--out", page, "--keys", day / "keys", "--quiet")
    text = page.read_bytes()
    for name in ("secret.key", "public.key", "evaluation.key"):
        content = (day / "keys" / name).read_bytes()
        for start in range(600, 2000, 64):
            assert content[start : start + 16] not in text
            assert content[start : start + 16].hex().encode() not in text


def test_an_older_page_is_replaced_and_nothing_is_printed_when_quiet(day, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    _, err = securefl("report", day / "run", "--out", page, "--quiet")
    assert err == ""
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_keys_and_messages_of_another_federation_are_refused(day, tmp_path):
    write_clients(tmp_path / "clients", ("a", "b", "c"))
    run = tmp_path / "run"
    securefl("train", tmp_path / "clients", "--out", run)
    page = tmp_path / "page.html"
    line = refused("report", run, "--out", page, "--keys", day / "keys")
    assert "keys for 2 contributors" in line
    assert "the federation has 3" in line
    line = refused("report", run, "--out", page, "--answer", day / "answer")
    assert "of another federation" in line
    assert not page.exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    line = refused("report", tmp_path, "--out", tmp_path / "page.html")
    assert "federation.json: not found" in line

"""An evaluator that answers with other ciphertexts than the contributions give."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from fhe.checking import compare
from fhe.errors import AnswerError, InputError


def contributions(made, batch="b"):
    return [
        fhe.contribute(
            made.codes[:3, i],
            fhe.load_public_key(made.folder / "north"),
            contributor=i,
            name=name,
            federation=made.manifest.fingerprint,
            batch=batch,
        )
        for i, name in enumerate(made.manifest.clients)
    ]


def command(*arguments, threads):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "MKL_NUM_THREADS")
    return subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()", *map(str, arguments)],
        env={**os.environ, **dict.fromkeys(names, threads)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_an_evaluation_is_the_same_to_the_bit_in_every_process(made, tmp_path):
    """With one thread and with several; and an answer of other contributions is found."""
    keys = made.folder / "evaluator"
    for i, each in enumerate(contributions(made)):
        each.save(tmp_path / f"{i}.contribution")
    done = command("infer", tmp_path, "--keys", keys, "--out", tmp_path / "answer", threads="1")
    assert (tmp_path / "answer").exists(), done.stderr
    done = command("infer", tmp_path, "--keys", keys, "--check", tmp_path / "answer", threads="2")
    assert "3 encrypted answers, equal to the bit" in done.stdout, done.stderr
    given = fhe.Answer.load(tmp_path / "answer")
    evaluation, public = fhe.load_evaluation_keys(keys), fhe.load_public_key(keys)
    # The same codes, encrypted once more, and one contributor left out without a word.
    for other in (contributions(made), contributions(made)):
        mine = fhe.evaluate(other, evaluation, public)
        with pytest.raises(AnswerError, match="blocks differ from what these contributions give"):
            compare(given, mine, source="answer")
    mine = fhe.evaluate(contributions(made, "c"), evaluation, public)
    with pytest.raises(InputError, match="batch b, the contributions have c"):
        compare(given, mine, source="answer")
    (keys / "answered").unlink()

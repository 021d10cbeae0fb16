"""An option that has no meaning where it is given is refused: in silence it could only mislead."""

import numpy as np
import pytest

from tests.cli.command import securefl

RECORD = ("--epsilon", 1, "--delta", 1e-5, "--unit", "record")
ELEMENT = ("--epsilon", 1, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
TRAIN = ("train", "clients", "--out", "out")
MLP = ("--model", "mlp")
DIVIDE = ("data", "partition", "clients/a.npz", "out", "--clients", 2)
RELEASE = ("dp", "release", "x.npy", "out", "--ledger", "books")
PLAIN = ("infer", "clients/a.npz", "--mode", "plain", "--run", "heads")
EVALUATOR = ("serve", "evaluator", "heads", "--identity", "x.npy", "--state", "state")
AUDIT = ("dp", "audit", *RECORD, "--method", "private-gradient")

IDLE = [
    ((*TRAIN, "--superlink", "x"), "--superlink has no meaning without --runtime flower"),
    ((*TRAIN, "--method", "krr", "--ledger", "b"), "--ledger has no meaning without noise"),
    (
        (*TRAIN, "--method", "krr", "--kernel-deviation", 2),
        "--kernel-deviation has no meaning without --random-features",
    ),
    (
        (*TRAIN, "--method", "fedrco", "--model", "mlp", "--no-monitor", "--reset-above", 20),
        "--reset-above has no meaning without --monitor",
    ),
    (
        (
            *TRAIN,
            "--method",
            "fedrco",
            "--model",
            "mlp",
            "--no-monitor",
            "--monitored-norm",
            "joint",
        ),
        "--monitored-norm has no meaning without --monitor",
    ),
    (
        (*TRAIN, "--method", "fedavg", "--model", "mlp", "--feature-scale", "paper"),
        "feature-scale: of --model fourier, not of mlp",
    ),
    (
        (*TRAIN, "--method", "fedavg", "--model", "mlp", "--local-epochs", 2, "--local-steps", 3),
        "--local-epochs has no meaning beside --local-steps",
    ),
    (
        (*TRAIN, "--method", "fedavg", "--model", "mlp", *RECORD, "--ledger", "b"),
        "--ledger has no meaning for networks that hide records",
    ),
    ((*TRAIN, *ELEMENT, "--norm", 1), "--norm has no meaning for --unit element"),
    (
        (*TRAIN, *RECORD, "--bounds", 0, 1, "--norm", 1, "--distance", 2),
        "--distance has no meaning for --unit record",
    ),
    ((*RELEASE, *ELEMENT, "--norm", 1), "--norm has no meaning for --unit element"),
    ((*AUDIT, "--bounds", 0, 1), "--bounds has no meaning for --method private-gradient"),
    (("dp", "audit", *ELEMENT, "--noise-share", 1), "--noise-share has no meaning for --method"),
    ((*DIVIDE, "--how", "iid", "--alpha", 1), "--alpha has no meaning for --how iid"),
    ((*DIVIDE, "--shards-per-client", 3), "--shards-per-client has no meaning for --how dirichlet"),
    ((*DIVIDE, "--group-column", "g"), "it belongs to group"),
    ((*PLAIN, "--out", "answer"), "--out has no meaning for --mode plain"),
    (
        ("infer", "clients", "--out", "answer", "--keys", "heads", "--rows", "0:1"),
        "--rows has no meaning for encrypted answers",
    ),
    (
        ("report", "model", "--out", "page.html", "--label-counts"),
        "--label-counts has no meaning for a trained model's run",
    ),
    (
        ("infer", "clients", "--out", "answer", "--keys", "heads", "--members", "x.npy"),
        "--members has no meaning without --workers",
    ),
    ((*EVALUATOR, "--members", "x.npy"), "--members has no meaning without --workers"),
    ((*EVALUATOR, "--authority", "x.npy"), "--authority has no meaning without --workers"),
    ((*EVALUATOR, "--workers", "a=https://a"), "--workers needs --members; all calls are signed"),
    (("bench", "run", "fhe", "--all", "--out", "out"), "--all has no meaning beside names"),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("idle")
    (folder / "clients").mkdir()
    for i, name in enumerate("ab"):
        X = np.random.default_rng(i).uniform(0, 1, (12, 3)).astype(np.float32)
        np.savez(folder / "clients" / f"{name}.npz", X=X, y=np.arange(12) % 3)
    np.save(folder / "x.npy", X)
    securefl("train", folder / "clients", "--out", folder / "heads")
    securefl("train", folder / "clients", "--out", folder / "model", "--method", "krr")
    return folder


@pytest.mark.parametrize(("arguments", "line"), IDLE, ids=[line for _, line in IDLE])
def test_an_option_without_a_meaning_is_refused_and_nothing_is_left(
    work, monkeypatch, arguments, line
):
    monkeypatch.chdir(work)
    out, err = securefl(*arguments, check=2)
    assert line in " ".join(err.split())
    assert out == ""
    assert {path.name for path in work.iterdir()} == {"clients", "x.npy", "heads", "model"}


def test_a_column_to_ignore_where_no_file_has_columns_is_refused(work, tmp_path):
    _, err = securefl("data", "describe", work / "clients", "--ignore-column", "id", check=2)
    assert 'no column "id" to ignore: none of the files is csv' in err

"""`securefl train --model`: networks, records hidden by DP-SGD, each client's own books."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from cli.main import securefl as group
from dp import Ledger
from fhe.envelope import read_envelope, write_envelope
from secure_fl.data import Dataset
from secure_fl.errors import FormatError, InputError
from secure_fl.training.loading import load_model
from secure_fl.training.model_files import NETWORK
from secure_fl.training.networks import train_network
from tests.cli.command import securefl
from tests.cli.test_train_methods import trained, work  # noqa: F401  # a fixture
from tests.secure_fl.methods import network

PRIVATE = ("--epsilon", 8, "--delta", 1e-4, "--unit", "record")
LOCAL = ("--rounds", 4, "--local-batch", 80, "--learning-rate", 2, "--local-momentum", 0)


def test_a_network_is_trained_saved_and_predicts(work, tmp_path):  # noqa: F811
    test = work / "digits" / "test.npz"
    options = ("--method", "fedavgr", "--model", "mlp", "--hidden", "32,16", "--local-epochs", 5)
    found = trained(work, tmp_path / "run", *options, "--rounds", 10, "--test", test)
    assert found["figures"]["accuracy"] > 0.8
    out, _ = securefl("predict", tmp_path / "run", test, "--json")
    assert json.loads(out)["accuracy"] == pytest.approx(found["figures"]["accuracy"])


def test_settings_give_the_network_that_fits_the_records():
    from secure_fl.trainers.networks import ConvNet, FourierModel

    plain = network("fedavg", model="cnn")
    assert plain.specification(10, 784) == ConvNet(10, (1, 28, 28))
    fourier = network("fedavg", model="fourier")
    assert fourier.specification(3, 5) == FourierModel(3, 5, 100, 1.0)
    paper = network("fedavgr", model="fourier", feature_scale="paper")
    assert paper.specification(3, 5) == FourierModel(3, 5, 100, 1.0, normalised=False)
    shaped = network("fedavg", model="cnn", image=(3, 16, 12))
    assert shaped.specification(2, 576) == ConvNet(2, (3, 16, 12))
    grouped = network("fedavg", model="cnn", groups=4)
    assert grouped.specification(10, 784) == ConvNet(10, (1, 28, 28), groups=4)
    with pytest.raises(InputError, match="3 groups, expected 0 or a divisor of 16"):
        network("fedavg", model="cnn", groups=3).specification(10, 784)
    for wrong, features in ((plain, 64), (plain, 50), (shaped, 784)):
        with pytest.raises(InputError, match=r"10 x 10|give --image"):
            wrong.specification(10, features)


def test_a_promise_without_a_scaling_names_both_that_may_be_given(
    work,  # noqa: F811  # the fixture that is imported
    tmp_path,
):
    options = ("--method", "fedavg", "--model", "mlp", "--rounds", 1, *PRIVATE)
    books = ("--ledgers", tmp_path / "books")
    _, said = securefl("train", work / "clients", "--out", tmp_path / "run", *options, *books)
    assert "public ranges (--scaling range --public FILE)" in said
    assert "--scaling moments --moments-clip NORM" in said
    given = ("--scaling", "moments", "--moments-clip", "0,1")
    _, said = securefl(
        "train", work / "clients", "--out", tmp_path / "two", *options, *books, *given
    )
    assert "features are not scaled" not in said


def test_the_model_is_the_rounds_average_where_that_is_asked_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    halves = (slice(0, 20), slice(20, 40))
    clients = [Dataset(X[own], y[own], ("a", "b"), f"c{own.start}") for own in halves]

    def parameters(rounds, **settings):
        found = train_network(clients, network("fedavg", rounds=rounds, **settings))
        return found.model.parameters

    rounds = np.stack([parameters(count) for count in (1, 2, 3)]).astype(np.float64)
    np.testing.assert_allclose(parameters(3, averaging=0.0), rounds.mean(axis=0), atol=1e-6)
    assert np.ptp(rounds, axis=0).max() > 1e-3


def test_records_are_hidden_and_every_client_books_it(work, tmp_path):  # noqa: F811
    ledgers = tmp_path / "books"
    options = ("--method", "fedavg", "--model", "fourier", "--kernel-deviation", 0.3, *LOCAL)
    options = (*options, *PRIVATE, "--ledgers", ledgers, "--aggregate", "secure")
    test = work / "digits" / "test.npz"
    found = trained(work, tmp_path / "run", *options, "--budget", 8, "--test", test)
    assert found["figures"]["accuracy"] > 0.5
    assert "per record (one record's contribution" in found["privacy"]
    files = sorted(ledgers.glob("*.jsonl"))
    assert len(files) == 4
    for file in files:
        spent = Ledger.open(file).get_epsilon(1e-4).epsilon
        assert 7.5 < spent <= 8.0
    before = [file.read_bytes() for file in files]
    more = ("train", work / "clients", "--out", tmp_path / "more", *options, "--seed", 1)
    _, err = securefl(*more, check=1)
    assert "the budget is 8 (7.9" in err
    assert [file.read_bytes() for file in files] == before
    page = tmp_path / "page.html"
    securefl("report", tmp_path / "run", "--ledgers", ledgers, "--out", page, "--test", test)
    text = page.read_text()
    assert "network (FourierModel)" in text
    assert text.count("one record&#39;s contribution") >= 4


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--method", "krr", "--model", "mlp"), "method krr: trains a linear model"),
        (("--method", "fedavgr"), "(--model mlp, cnn or fourier), not a linear model"),
        (("--method", "fedavg", "--hidden", "3"), "--hidden has no meaning"),
        (("--method", "fedavg", "--model", "mlp", "--ridge", 1), "--ridge has no meaning"),
        (("--method", "fedavg", "--model", "mlp", "--hidden", "a"), "whole numbers"),
        (
            ("--method", "fedavg", "--model", "mlp", "--hidden", "0"),
            "whole numbers, each at least 1",
        ),
        (("--method", "fedavg", "--model", "mlp", "--epsilon", 1), "needs all of"),
        (("--method", "fedavg", "--model", "mlp", "--norm", 1), "--norm has no meaning"),
        (("--method", "fedavg", *PRIVATE), "--epsilon has no meaning"),
        (("--model", "mlp"), "--model has no meaning"),
        (
            ("--method", "fedavg", "--model", "mlp", *PRIVATE, "--client-epsilon", 1),
            "leave out one",
        ),
        (("--method", "fedrco"), "(--model mlp, cnn or fourier), not a linear model"),
        (("--method", "fedrco", "--model", "mlp", *PRIVATE), "second moments"),
        (("--method", "localnewton", "--model", "mlp", *PRIVATE), "Take fedavgr, or hide whole"),
        (("--method", "fedpm", "--model", "mlp", *PRIVATE), "cannot hide single records"),
        (
            ("--method", "fedpm", "--model", "mlp", "--client-epsilon", 1, "--clip", 1),
            "not positive definite. Take fedrco",
        ),
        (("--method", "fedrco", "--model", "mlp", "--mmd", 1), "--mmd has no meaning"),
        (("--method", "fedavg", "--model", "mlp", "--damping", 1), "--damping has no meaning"),
        (("--method", "fedpm", "--model", "mlp", "--no-monitor"), "--monitor has no meaning"),
        (("--method", "fedrco", "--model", "mlp", "--damping", 0), "number above 0"),
        (("--method", "fedavg", "--model", "cnn", "--hidden", "3"), "hidden: of --model mlp"),
        (("--method", "fedavg", "--model", "mlp", "--groups", 4), "groups: of --model cnn"),
        (("--method", "fedrco", "--model", "cnn", "--groups", 4), "--groups has no meaning"),
        (("--method", "fedavgr", "--model", "mlp", "--averaging", -1), "at least 0"),
        (("--method", "fedavg", "--model", "mlp", "--mmd", -1), "--mmd has no meaning"),
        (("--method", "fedavgr", "--model", "fourier", "--mmd", -1), "at least 0"),
        (("--method", "fedavgr", "--model", "fourier", "--trace", "nan"), "at least 0"),
        (
            ("--method", "fedrco", "--model", "mlp", "--local-momentum", 0.5),
            "--local-momentum has no meaning",
        ),
        (("--method", "fedrco", "--model", "mlp", "--reset-above", 1), "at least rollback-above"),
    ],
)
def test_options_that_do_not_go_together_are_refused(work, tmp_path, options, part):  # noqa: F811
    command = ["train", work / "clients", "--out", tmp_path / "no", *options]
    found = CliRunner().invoke(group, list(map(str, command)))
    assert found.exit_code != 0
    assert part in found.output or part in str(found.exception)
    assert not (tmp_path / "no").exists()


def test_a_damaged_network_is_refused(work, tmp_path):  # noqa: F811
    trained(work, tmp_path / "run", "--method", "fedavg", "--model", "mlp", "--rounds", 1)
    file = tmp_path / "run" / "model"
    good = read_envelope(file, NETWORK)
    assert np.isfinite(load_model(file).weights).all()
    for change in (
        {"model": {**good.header["model"], "hidden": [10**9]}},
        {"model": {**good.header["model"], "hidden": ["a"]}},
        {"model": {**good.header["model"], "kind": "os.system"}},
        {"classes": good.header["classes"][1:]},
        {"scale": float("1e400")},
        {"features": ["a"]},
    ):
        header = {**good.header, **change}
        if change.get("scale") is not None:
            header["scale"] = "inf"
        write_envelope(file, NETWORK, header, good.payload)
        with pytest.raises(FormatError, match="do not belong together"):
            load_model(file)
    write_envelope(file, NETWORK, good.header, good.payload[:-8])
    with pytest.raises(FormatError, match="do not belong together"):
        load_model(file)


CURVED = ("--model", "mlp", "--hidden", "16", "--local-steps", 10, "--local-batch", 32)


def in_process(*arguments):
    """The command without a process of its own, which would import torch anew."""
    found = CliRunner().invoke(group, list(map(str, arguments)))
    assert found.exit_code == 0, found.output
    return found.stdout


def trained_here(work, out, *options):  # noqa: F811
    return json.loads(in_process("train", work / "clients", "--out", out, "--json", *options))


def test_fedrco_bounds_exploding_steps_and_the_report_counts_them(work, tmp_path):  # noqa: F811
    """At 250 times the default rate the clients' steps explode."""
    test = work / "digits" / "test.npz"
    options = (*CURVED, "--rounds", 4, "--learning-rate", 5, "--test", test)
    found = trained(work, tmp_path / "run", "--method", "fedrco", *options)
    figures = found["figures"]
    assert figures["rollbacks"] > 0
    assert 0 <= figures["personal_accuracy"] <= 1
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert {name: last[name] for name in figures} == figures
    page = tmp_path / "page.html"
    in_process("report", tmp_path / "run", "--out", page)
    text = page.read_text()
    assert "Rounds in which the monitor acted" in text
    assert f">{figures['rollbacks']:.0f}<" in text
    assert "No promise covers it" in text


@pytest.mark.parametrize("method", ["localnewton", "fedpm", "fedrco-ori"])
def test_second_order_networks_learn_from_the_command(work, tmp_path, method):  # noqa: F811
    test = work / "digits" / "test.npz"
    options = ("--method", method, *CURVED, "--rounds", 10, "--test", test)
    found = trained_here(work, tmp_path / "run", *options)
    assert found["figures"]["accuracy"] > 0.6


def test_a_fedrco_run_cut_in_two_ends_at_the_same_model_and_counts(work, tmp_path):  # noqa: F811
    """Factors, monitor and personal models are the clients' state, which the checkpoint keeps."""
    options = ("--method", "fedrco", *CURVED, "--learning-rate", 1, "--rounds", 4)
    whole = trained_here(work, tmp_path / "whole", *options)
    checkpoint = tmp_path / "checkpoint"
    trained_here(work, tmp_path / "half", *options[:-1], 2, "--checkpoint", checkpoint)
    rest = trained_here(work, tmp_path / "rest", *options, "--checkpoint", checkpoint)
    assert rest["figures"] == whole["figures"]
    assert whole["figures"]["rollbacks"] + whole["figures"]["resets"] > 0
    for part in (".", "personal/client-00"):
        models = [load_model(tmp_path / run / part).weights for run in ("whole", "rest")]
        assert np.array_equal(*models)


def test_without_its_monitor_fedrco_says_so_in_the_report(work, tmp_path):  # noqa: F811
    options = ("--method", "fedrco-ori", *CURVED, "--rounds", 1, "--no-monitor")
    found = trained_here(work, tmp_path / "run", *options)
    assert found["figures"]["rollbacks"] == found["figures"]["resets"] == 0
    page = tmp_path / "page.html"
    in_process("report", tmp_path / "run", "--out", page)
    assert "The monitor was off" in page.read_text()


def test_a_client_is_hidden_in_fedrco_and_nothing_is_counted_without_noise(
    work,  # noqa: F811
    tmp_path,
):
    books = tmp_path / "books"
    options = ("--method", "fedrco", *CURVED, "--client-epsilon", 8, "--clip", 1, "--rounds", 2)
    options = (*options, "--ledger", books, "--test", work / "digits" / "test.npz")
    found = trained_here(work, tmp_path / "run", *options)
    assert "per client (one client's contribution" in found["privacy"]
    assert set(found["figures"]) == {"accuracy"}
    page = tmp_path / "page.html"
    in_process("report", tmp_path / "run", "--ledgers", books, "--out", page)
    assert "not counted: sums carry noise" in page.read_text()
    assert found["personal"] == [f"client-{k:02}" for k in range(4)]
    own = tmp_path / "run" / "personal" / "client-02"
    assert (own / "model").stat().st_mode & 0o777 == 0o600
    # The promise is of the global model; a client's own model has seen its records as they are.
    told = load_model(own).origin
    assert (told["client"], told["privacy"]) == ("client-02", None)
    assert load_model(tmp_path / "run").origin["privacy"] == found["privacy"]


def test_clients_own_models_have_the_accuracy_that_the_run_says(work, tmp_path):  # noqa: F811
    """Each on its client's mix of classes, counted here from the answers of `predict`."""
    test, run = work / "digits" / "test.npz", tmp_path / "run"
    options = ("--method", "fedrco", *CURVED, "--rounds", 3, "--test", test)
    found = trained_here(work, run, *options)
    truth = np.load(test)["y"].astype(str)
    rates = []
    for name in found["personal"]:
        answer = in_process("predict", run / "personal" / name, test, "--json")
        answers = np.array(json.loads(answer)["classes"])
        labels = np.load(work / "clients" / f"{name}.npz")["y"].astype(str)
        rates.append(np.mean([np.mean(answers[truth == label] == label) for label in labels]))
    assert np.mean(rates) == pytest.approx(found["figures"]["personal_accuracy"])
    own = [load_model(run / "personal" / name).weights for name in found["personal"]]
    assert len({each.tobytes() for each in own}) == 4

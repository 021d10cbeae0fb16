"""A run whose model diverged ends in one line; what was sound stays in the checkpoint."""

import numpy as np
import pytest

import dp
from cli.main import main
from secure_fl.data import Dataset
from secure_fl.errors import InputError
from secure_fl.federation import Client, DivergedError, Federation, FederationError, checkpoint
from secure_fl.objectives import SoftmaxLoss
from secure_fl.trainers.linear import AveragingState, NewtonState, fednewton_head
from secure_fl.trainers.registry import make, names
from secure_fl.training.linear import train_linear_model
from secure_fl.training.loop import remedy_of
from tests.secure_fl.methods import linear


def write_clients(folder):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "ab":
        y = rng.integers(0, 3, 60)
        np.savez(folder / f"{name}.npz", X=rng.normal(y[:, None], 1, (60, 4)), y=y)
    return folder


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.mark.parametrize(
    "method",
    [["fedavg"], ["fedprox"], ["fedavgm"], ["fedadam"], ["fedavg", "--model", "mlp"]],
    ids=" ".join,
)
def test_a_rate_of_a_million_ends_with_one_line_and_code_one(tmp_path, capsys, method):
    folder = write_clients(tmp_path / "clients")
    options = ("--learning-rate", "1e6", "--rounds", "5", "--quiet")
    code = run("train", folder, "--out", tmp_path / "run", "--method", *method, *options)
    said = capsys.readouterr().err.strip().splitlines()
    assert code == 1
    assert len(said) == 1
    assert method[0] in said[0]
    assert "round" in said[0]
    assert "lower the learning rate" in said[0]


@pytest.mark.parametrize(("method", "rate"), [("fedavg", 100), ("localnewton", 300)])
def test_a_network_that_answers_every_record_alike_is_noticed_by_its_loss(
    tmp_path, capsys, method, rate
):
    """Its units are dead, its parameters not so large that the server alone could tell."""
    folder = write_clients(tmp_path / "clients")
    options = ("--model", "mlp", "--hidden", 4, "--learning-rate", rate, "--rounds", 1, "--quiet")
    assert run("train", folder, "--out", tmp_path / "run", "--method", method, *options) == 1
    line = capsys.readouterr().err.strip()
    assert "the mean loss of the training records is" in line
    assert "that of answers by chance 1.1" in line
    assert not (tmp_path / "run").exists()


def test_a_diverged_run_that_was_paid_for_is_delivered_with_a_remark(tmp_path, capsys):
    folder = write_clients(tmp_path / "clients")
    noise = ("--client-epsilon", 5, "--clip", 1, "--server-rate", 1e6, "--rounds", 2)
    assert run("train", folder, "--out", tmp_path / "r", "--method", "fedavg", *noise) == 0
    assert "remark: the objective is above" in capsys.readouterr().err
    sound = ("--client-epsilon", 50, "--clip", 1, "--rounds", 2)
    assert run("train", folder, "--out", tmp_path / "s", "--method", "fedavg", *sound) == 0
    assert "remark" not in capsys.readouterr().err


def test_a_bad_run_that_did_not_diverge_is_kept(tmp_path):
    folder = write_clients(tmp_path / "clients")
    options = ("--learning-rate", "1e-9", "--rounds", "2", "--quiet")
    assert run("train", folder, "--out", tmp_path / "r", "--method", "fedavg", *options) == 0


def members():
    rng = np.random.default_rng(0)
    return [Client(n, rng.normal(size=(9, 2)), rng.integers(0, 2, 9)) for n in ("a", "b")]


def test_the_checkpoint_keeps_the_last_sound_state(tmp_path):
    file = tmp_path / "checkpoint"
    states = [AveragingState(np.full((2, 2), value)) for value in (1.0, 2.0, np.inf, 3.0)]
    with Federation(members(), seed=0) as fed, pytest.raises(DivergedError, match="round 2"):
        list(fed.rounds(iter(states), checkpoint=file))
    with Federation(members(), seed=0) as fed:
        np.testing.assert_array_equal(fed.resume(file).weights, 2.0)


def test_a_checkpoint_of_another_method_is_refused_with_both_names(tmp_path):
    file = tmp_path / "checkpoint"
    with Federation(members(), seed=0) as fed:
        fed.resume(file, method="fedavg")
        list(fed.rounds(iter([AveragingState(np.zeros((2, 2)))]), checkpoint=file))
    with (
        Federation(members(), seed=0) as fed,
        pytest.raises(FederationError, match="of fedavg, this run trains by fednewton"),
    ):
        fed.resume(file, method="fednewton")


def begun(file, **settings):
    with Federation(members(), seed=0) as fed:
        fed.resume(file, method="fedavg", settings=settings)
        list(fed.rounds(iter([AveragingState(np.zeros((2, 2)))]), checkpoint=file))


def test_a_checkpoint_of_other_settings_is_refused_with_both_values(tmp_path):
    """A run whose rate changed on the way is not the run that its model's file describes."""
    file = tmp_path / "checkpoint"
    begun(file, **{"learning-rate": 0.1, "hidden": (4, 2)})
    same = {"learning-rate": 0.1, "hidden": (4, 2)}
    with Federation(members(), seed=0) as fed:
        assert fed.resume(file, method="fedavg", settings=same) is not None
    with (
        Federation(members(), seed=0) as fed,
        pytest.raises(FederationError, match=r"learning-rate was 0\.1, this run has 0\.3; resume"),
    ):
        fed.resume(file, method="fedavg", settings=same | {"learning-rate": 0.3})


def test_a_checkpoint_that_keeps_settings_is_not_judged_by_older_defaults(tmp_path):
    file = tmp_path / "checkpoint"
    begun(file, rate=0.3)
    with Federation(members(), seed=0) as fed:
        fed.resume(file, method="fedavg", settings={"rate": 0.3}, moved={"rate": (0.1, 0.3)})


def test_a_run_may_be_longer_than_it_began(tmp_path):
    file, clients = (
        tmp_path / "checkpoint",
        [Dataset(each.features, each.targets, ("x", "y"), each.name) for each in members()],
    )
    train_linear_model(clients, linear("fedavg", rounds=1), checkpoint=file)
    assert train_linear_model(clients, linear("fedavg", rounds=3), checkpoint=file).rounds == 3
    with pytest.raises(FederationError, match="local-epochs was 1, this run has 2"):
        train_linear_model(clients, linear("fedavg", rounds=4, local_epochs=2), checkpoint=file)


def test_a_checkpoint_of_a_later_version_is_refused_with_both_named(tmp_path, monkeypatch):
    file = tmp_path / "checkpoint"
    monkeypatch.setattr(checkpoint, "VERSION", 3)
    begun(file)
    monkeypatch.undo()
    with (
        Federation(members(), seed=0) as fed,
        pytest.raises(FederationError, match="of version 3, this is version 2"),
    ):
        fed.resume(file)


@pytest.mark.parametrize("targets", [np.array(["x", "y"] * 3), np.array([None] * 6)])
def test_targets_that_are_no_numbers_are_refused_by_the_client(targets):
    with pytest.raises(FederationError, match=r'client "a": targets of type .* class codes'):
        Client("a", np.zeros((6, 2)), targets)


def test_labels_that_are_no_codes_are_refused_with_what_is_expected():
    loss = SoftmaxLoss(1e-3, 2)
    with pytest.raises(InputError, match="labels of type float64, expected class codes"):
        loss.value(loss.zeros(2), np.zeros((3, 2)), np.array([0.5, 1.0, 0.0]))


def test_fednewton_head_needs_no_solver():
    loss = SoftmaxLoss(1e-2, 2)
    with Federation(members(), seed=0) as fed:
        *_, state = fednewton_head(fed, loss, start=NewtonState(loss.zeros(2)), rounds=2)
    assert np.isfinite(state.weights).all()


def test_a_release_of_records_takes_a_mechanism_that_fits_them():
    found = dp.release(
        np.zeros((5, 2)),
        epsilon=1.0,
        delta=1e-5,
        adjacency=dp.Record(1.0),
        bounds=(-1.0, 1.0),
        grid=2.0**-8,
    )
    assert "gaussian" in found.statement.mechanism.lower()


@pytest.mark.parametrize("name", names("linear"))
def test_the_advice_names_options_that_the_method_has(name):
    settings = make(name, "linear", {})
    advice = remedy_of(settings)
    own = {declared.name for declared in settings.declared()}
    for option in ("learning_rate", "step_size", "damping", "safeguard", "ridge"):
        assert option in own or option.replace("_", " ") not in advice
    assert advice.endswith("scale the features down")

"""The page of a trainer's run: what the server saw, what the ledger says, and no record."""

import json
import shutil

import numpy as np
import pytest

import dp
from secure_fl.data import Dataset, ReadOptions
from secure_fl.errors import InputError
from secure_fl.federation import ClientPrivacy
from secure_fl.federation.privacy import UNIT
from secure_fl.report.trained import METRICS, gather_trained, is_trained, render_trained
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.methods.newton import FedNewton
from secure_fl.training.linear import train_linear_model
from secure_fl.training.model_files import FILE
from tests.browser import ABSENT, find_browser, open_browser
from tests.secure_fl.report.conftest import CLASSES, draw_clients
from tests.secure_fl.report.test_page import numbers_in, prints_of, text_of

READING = ReadOptions()


def train(folder, settings, privacy=None, *, secure=False):
    clients = tuple(Dataset(X, y, CLASSES, name, "drawn") for name, X, y in draw_clients())
    folder.mkdir()
    trained = train_linear_model(
        clients, settings, secure=secure, privacy=privacy, metrics=folder / METRICS
    )
    trained.model.save(folder / FILE)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(tmp_path_factory.mktemp("plain") / "run", FedNewton(rounds=3))


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """Under secure aggregation, with noise; its ledger lies beside it."""
    folder = tmp_path_factory.mktemp("private")
    ledger = dp.Ledger.create(folder / "ledger", "all", dp.Budget(50.0, 1e-5, UNIT))
    noise = ClientPrivacy(clip=1.0, noise_multiplier=1.0, sums=3, ledger=ledger)
    return train(folder / "run", FedAvg(rounds=3), noise, secure=True)


def page_of(run, **sources):
    return render_trained(gather_trained(run, reading=READING, **sources))


def test_a_trainers_run_is_told_from_a_run_of_heads(plain, clear_run):
    assert is_trained(plain)
    assert not is_trained(clear_run)


def test_the_server_of_a_plain_run_saw_every_update(plain):
    text = text_of(page_of(plain))
    assert "The server saw every update." in text
    assert "the server (aggregator) no yes yes yes" in text


def test_the_server_of_a_secure_private_run_saw_noisy_sums(private):
    text = text_of(page_of(private, ledger=private.parent / "ledger"))
    assert "the server (aggregator) no no: masked the noisy sum noisy" in text
    total = dp.Ledger.open(private.parent / "ledger").get_epsilon(1e-5)
    assert f"{UNIT.unit} 3 {total.epsilon:.4g} 1e-05" in text
    assert "do not sign" not in text


def test_a_ledger_that_was_spent_further_warns(private, tmp_path):
    shutil.copy(private.parent / "ledger", tmp_path / "ledger")
    event = dp.Event("more", UNIT, gaussian=dp.Gaussian(2.0, discrete=True))
    dp.Ledger.open(tmp_path / "ledger").spend(event)
    text = text_of(page_of(private, ledger=tmp_path / "ledger"))
    assert "do not sign for the model's words" in text


def test_rounds_and_bytes_come_from_the_log(plain):
    lines = [json.loads(line) for line in (plain / METRICS).read_text().splitlines()]
    up = sum(line["bytes_up"] for line in lines) / 1e6
    text = text_of(page_of(plain))
    assert f"rounds {len(lines)} MB from clients {up:.4g}" in text


def test_accuracy_is_that_of_the_models_scores(plain, test_file):
    """The oracle multiplies by hand."""
    facts = gather_trained(plain, test=test_file, reading=READING)
    with np.load(test_file) as stored:
        X = stored["X"].astype(float)
    scores = np.concatenate([X, np.ones((len(X), 1))], axis=1) @ facts.model.weights
    found = scores.argmax(axis=1)
    truth = np.arange(len(X)) % 2
    for a in range(2):
        for b in range(2):
            assert facts.counts[a, b] == np.sum((truth == a) & (found == b))


def test_no_record_enters_the_page(plain, private, test_file):
    records = np.concatenate([X.ravel() for _, X, _ in draw_clients()])
    with np.load(test_file) as stored:
        queries = stored["X"].ravel()
    for run in (plain, private):
        seen = numbers_in(page_of(run, test=test_file))
        for each in (records, queries):
            assert not {p for p in prints_of(each) if len(p) >= 8} & seen


def test_a_folder_without_ledgers_is_refused(plain, tmp_path):
    with pytest.raises(InputError, match="no client's ledger"):
        gather_trained(plain, ledger=tmp_path, reading=READING)


@pytest.mark.skipif(find_browser() is None, reason=ABSENT)
def test_the_page_opens_without_a_request_or_a_message(private, test_file, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(page_of(private, test=test_file, ledger=private.parent / "ledger"))
    with open_browser(find_browser(), tmp_path / "profile") as browser:
        for width in (1280, 400):
            found = browser.visit(page, width)
            assert found.requests == [page.resolve().as_uri()]
            assert found.messages == []
            assert found.width <= width

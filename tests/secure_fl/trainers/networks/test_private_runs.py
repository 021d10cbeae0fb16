"""Whole private runs: books, budgets, workers, kills, and client-level noise for every trainer."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Budget, Ledger, compose
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    FixedNumber,
    PrivacyError,
    SecureAggregation,
    StepError,
    calibrate,
)
from secure_fl.trainers.networks import (
    DPSGD,
    FourierModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    Regularization,
    SecondOrder,
    accuracy,
    fedavg,
    fedavgr,
    fedrco,
    make_plan,
    privacy_spent,
)
from secure_fl.trainers.networks.record_privacy import UNIT, Books
from tests.secure_fl.trainers.networks import killed_network
from tests.secure_fl.trainers.networks.test_averaging import last, pooled

MODEL = FourierModel(3, 5, 20, 0.5)
PROMISE = DPSGD(4.0, 1e-4, rounds=3)
TRAINING = LocalTraining(0.5, steps=4, batch_size=40, privacy=PROMISE)
TERMS = Regularization(1e-4, 1e-3, 0.05)


def large_clients(tmp_path, budget=None, count=3):
    rng = np.random.default_rng(3)
    centres = 2.0 * rng.normal(size=(3, 5))
    found = []
    for k in range(count):
        y = rng.choice([k % 3, (k + 1) % 3], size=400)
        books = Ledger.create(tmp_path / f"c{k}.jsonl", f"c{k}", budget)
        X = centres[y] + rng.normal(size=(400, 5))
        found.append(Client(f"c{k}", X, y, ledger=books))
    return found


def train_by(method, fed, training=TRAINING, rounds=3, start=None):
    state = start or NetworkState(MODEL.initial(np.random.default_rng(0)))
    options = {"start": state, "rounds": rounds, "training": training}
    if method == "fedavgr":
        return last(fedavgr(fed, MODEL, **options, regularization=TERMS))
    if method == "fedprox":
        options["training"] = replace(training, proximal=0.1)
    return last(fedavg(fed, MODEL, **options))


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedavgr"])
def test_private_training_learns_and_every_client_books_what_it_promised(tmp_path, method):
    clients = large_clients(tmp_path)
    state = train_by(method, Federation(clients, aggregation=SecureAggregation(clip=50.0)))
    assert accuracy(MODEL, state.parameters, *pooled(clients)) > 0.85
    plan = make_plan(400, TRAINING, features=method == "fedavgr")
    for client in clients:
        events = client.ledger.events
        assert len(events) == 3 * (2 if method == "fedavgr" else 1)
        assert {e.gaussian for e in events} == {plan.steps, plan.features} - {None}
        assert {e.adjacency for e in events} == {UNIT}
        spent = client.ledger.get_epsilon(1e-4).epsilon
        assert 0.97 * PROMISE.epsilon < spent <= PROMISE.epsilon
    assert privacy_spent([c.ledger for c in clients], 1e-4).startswith(f"epsilon {spent:.4g} at")


@settings(max_examples=2)
@given(
    st.floats(0.5, 10),
    st.integers(50, 5000),
    st.integers(1, 64),
    st.integers(1, 20),
    st.booleans(),
)
def test_a_plan_of_all_rounds_never_exceeds_the_promise(epsilon, records, batch, rounds, features):
    training = LocalTraining(batch_size=batch, privacy=DPSGD(epsilon, 1e-5, rounds))
    plan = make_plan(records, training, features=features)
    assert compose([], plan.of(rounds), 1e-5).epsilon <= epsilon
    assert plan.steps.sample_rate >= min(1.0, batch / records)


def test_who_takes_part_less_often_spends_less(tmp_path):
    clients = large_clients(tmp_path)
    fed = Federation(clients, seed=4, participation=FixedNumber(1))
    seen = []
    state = NetworkState(MODEL.initial(np.random.default_rng(0)))
    for each in fedavg(fed, MODEL, start=state, rounds=3, training=TRAINING):
        assert each.round == len(seen) + 1
        seen.append(fed.survivors[0])
        fed.close_round()
    assert len(set(seen)) > 1
    for client in clients:
        assert len(client.ledger.events) == seen.count(client.name)


def test_a_budget_without_room_for_all_rounds_is_refused_before_anybody_trains(tmp_path):
    clients = large_clients(tmp_path)
    train_by("fedavg", Federation(clients))
    tight = clients[:2]
    books = Ledger.create(tmp_path / "tight.jsonl", "c2", Budget(3.5, 1e-4, UNIT))
    tight.append(Client("c2", clients[2].features, clients[2].targets, ledger=books))
    before = [c.ledger.path.read_bytes() for c in tight]
    with pytest.raises(StepError, match=r'client "c2".*BudgetError.*the budget is 3.5'):
        train_by("fedavg", Federation(tight, seed=1))
    assert [c.ledger.path.read_bytes() for c in tight] == before
    assert tight[0].state["dpsgd.steps"][0] == 3 * TRAINING.steps


def test_who_joins_late_is_asked_for_the_whole_plan_before_its_first_step(tmp_path):
    """Its budget would do for a round and not for three."""
    clients = large_clients(tmp_path, Budget(3.0, 1e-4, UNIT))
    fed = Federation(clients, seed=4, participation=FixedNumber(1))
    with pytest.raises(StepError, match="the budget is 3"):
        train_by("fedavg", fed)
    fed = Federation(clients, seed=4, participation=FixedNumber(1))
    state = NetworkState(MODEL.initial(np.random.default_rng(0)), round=1)
    with pytest.raises(StepError, match="the budget is 3"):
        train_by("fedavg", fed, start=state)
    assert all(client.ledger.events == () for client in clients)


def test_the_same_run_again_costs_nothing_and_another_seed_is_another_run(tmp_path):
    """The same request gets the same message, so an adversary learns nothing new from it."""
    clients = large_clients(tmp_path, Budget(4.0, 1e-4, UNIT))
    first = train_by("fedavg", Federation(clients))
    again = train_by("fedavg", Federation(clients))
    assert np.array_equal(first.parameters, again.parameters)
    assert all(len(c.ledger.events) == 3 for c in clients)
    with pytest.raises(StepError, match="BudgetError"):
        train_by("fedavg", Federation(clients, seed=1))
    other = NetworkState(MODEL.initial(np.random.default_rng(9)))
    with pytest.raises(StepError, match="were planned and all are spent"):
        train_by("fedavg", Federation(clients), start=other)
    changed = [Client(c.name, c.features + 1e-9, c.targets, ledger=c.ledger) for c in clients]
    with pytest.raises(StepError, match="BudgetError"):
        train_by("fedavg", Federation(changed))


def test_a_run_killed_between_two_events_of_a_round_still_fits_a_budget_without_slack(tmp_path):
    """What is booked must not be planned again, for either kind of event."""
    client = killed_network.make_clients(tmp_path, private=True)[0]
    client.begin(3, 0, 0)
    model, training = FourierModel(3, 5, 12), killed_network.PRIVATE
    plan = make_plan(len(client), training, features=True)
    for kind in ("features", "steps"):
        books = Books(client, model, training)
        books.book(kind, plan, books.request(kind))
        Books(client, model, training).check(plan)
    for number in (1, 2):
        client.begin(3, number, 0)
        books.book("steps", plan, books.request("steps"))
        Books(client, model, training).check(plan)


def test_what_cannot_be_promised_is_refused(tmp_path, clients):
    with pytest.raises(PrivacyError, match="4 asked for, 3 promised"):
        train_by("fedavg", Federation(clients), rounds=4)
    with pytest.raises(StepError, match="has no ledger"):
        train_by("fedavg", Federation(clients))
    with pytest.raises(PrivacyError, match="FedRCO: no record-level privacy"):
        SecondOrder(TRAINING)
    books = Ledger.create(tmp_path / "clients.jsonl", "all")
    both = Federation(clients, privacy=ClientPrivacy(1.0, 1.0, 3, books))
    with pytest.raises(PrivacyError, match="leave out one"):
        train_by("fedavg", both)
    assert books.events == ()
    with pytest.raises(ValueError, match="delta: found 0"):
        DPSGD(1.0, 0.0, 3)


def test_a_damaged_secret_is_refused(tmp_path):
    clients = large_clients(tmp_path)
    train_by("fedavg", Federation(clients), rounds=1)
    secret = tmp_path / "c0.jsonl.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    secret.write_bytes(b"short")
    with pytest.raises(StepError, match="found 5 bytes"):
        train_by("fedavg", Federation(clients), rounds=1)


# ------------------------------------------------------------------------------ whole processes


def run(folder, rounds, setting, *, workers=1, point="-", count=0):
    arguments = [str(folder), str(rounds), setting, str(workers), point, str(count)]
    command = [sys.executable, "-m", "tests.secure_fl.trainers.networks.killed_network", *arguments]
    return subprocess.run(command, check=False, timeout=300).returncode


def folders_of_one_secret(tmp_path, *names):
    """Noise follows from a client's secret: runs to compare must have the same."""
    secrets = [os.urandom(32) for _ in range(4)]
    for name in names:
        (tmp_path / name).mkdir()
        for k, secret in enumerate(secrets):
            (tmp_path / name / f"c{k}.jsonl.secret").write_bytes(secret)
    return [tmp_path / name for name in names]


def same_books(first, second):
    for k in range(4):
        mine, theirs = (Ledger.open(each / f"c{k}.jsonl") for each in (first, second))
        assert mine.events == theirs.events
    return True


@pytest.mark.slow  # three processes that train; every day two workers train without privacy
def test_two_workers_give_the_bits_and_the_books_of_one_process(tmp_path):
    found = []
    for folder, workers in zip(folders_of_one_secret(tmp_path, "a", "b"), (1, 2), strict=True):
        fed = Federation(killed_network.make_clients(folder, private=True), workers=workers)
        start = NetworkState(MODEL.initial(np.random.default_rng(0)))
        with fed:
            options = {"training": killed_network.PRIVATE, "regularization": TERMS}
            found.append(last(fedavgr(fed, MODEL, start=start, rounds=2, **options)).parameters)
    assert found[0].tobytes() == found[1].tobytes()
    assert same_books(tmp_path / "a", tmp_path / "b")


@pytest.mark.slow
def test_a_record_private_run_killed_before_its_first_checkpoint_and_resumed_in_workers(tmp_path):
    """Same bits and same books as the undisturbed run; budgets have no room for an event more."""
    whole, killed = folders_of_one_secret(tmp_path, "whole", "killed")
    assert run(whole, 3, "record") == 0
    assert run(killed, 3, "record", point="booked", count=3) == -signal.SIGKILL
    assert not (killed / "checkpoint").exists()
    assert run(killed, 3, "record", point="before checkpoint", count=2) == -signal.SIGKILL
    assert run(killed, 3, "record", workers=2) == 0
    assert (killed / "parameters").read_bytes() == (whole / "parameters").read_bytes()
    assert same_books(killed, whole)
    assert sum(len(Ledger.open(whole / f"c{k}.jsonl").events) for k in range(4)) == 3 * 3 * 2


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["client", "fedrco"])
def test_other_runs_killed_and_resumed_in_workers_give_the_same_bits(tmp_path, setting):
    start, whole, killed = (tmp_path / name for name in ("start", "whole", "killed"))
    start.mkdir()
    assert run(start, 1, setting) == 0
    for folder in (whole, killed):
        shutil.copytree(start, folder)
    (killed / "parameters").unlink()
    assert run(whole, 3, setting) == 0
    assert run(killed, 3, setting, point="sum", count=1) == -signal.SIGKILL
    assert run(killed, 3, setting, point="before checkpoint", count=1) == -signal.SIGKILL
    assert run(killed, 3, setting, workers=2) == 0
    assert (killed / "parameters").read_bytes() == (whole / "parameters").read_bytes()
    if setting == "client":
        mine, theirs = (Ledger.open(each / "ledger.jsonl") for each in (killed, whole))
        assert mine.events == theirs.events
        assert len(mine.events) == 3


# --------------------------------------------------------------------------- client-level noise


def every_trainer(fed, model, rounds):
    start = NetworkState(model.initial(np.random.default_rng(0)))
    training = LocalTraining(0.2, steps=5, batch_size=40)
    common = {"start": start, "rounds": rounds}
    return {
        "fedavg": lambda: fedavg(fed, model, **common, training=training),
        "fedprox": lambda: fedavg(fed, model, **common, training=replace(training, proximal=0.1)),
        "fedavgr": lambda: fedavgr(fed, model, **common, training=training, regularization=TERMS),
        "fedrco": lambda: fedrco(
            fed, model, **common, options=SecondOrder(replace(training, learning_rate=0.05))
        ),
    }


@pytest.mark.parametrize("secure", [False, True], ids=["central", "secure"])
@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedavgr", "fedrco"])
def test_client_level_noise_hides_updates_of_every_trainer(tmp_path, method, secure):
    """Each sum is booked, none more is given, and twelve clients still learn at epsilon 50."""
    rounds = 6
    sums = rounds * (2 if method == "fedavgr" else 1)
    model = MODEL if method != "fedrco" else Perceptron(3, 5, (8,))
    members = large_clients(tmp_path, count=12)
    books = Ledger.create(tmp_path / "all.jsonl", "all")
    noise = calibrate(50.0, 1e-3, sums)
    fed = Federation(
        members,
        aggregation=SecureAggregation() if secure else None,
        privacy=ClientPrivacy(1.0, noise, sums, books, delta=1e-3),
    )
    state = last(fed.rounds(every_trainer(fed, model, rounds)[method]()))
    assert accuracy(model, state.parameters, *pooled(members)) > 0.7
    assert len(books.events) == sums
    assert fed.spent.epsilon <= 50.0
    with pytest.raises(PrivacyError, match="planned"):
        last(every_trainer(fed, model, rounds)[method]())


def test_client_level_noise_changes_what_the_server_sees(tmp_path, clients):
    """The same run twice: noise differs, and a whole client within the clip drowns in it."""
    found = []
    for name in "ab":
        books = Ledger.create(tmp_path / f"{name}.jsonl", "all")
        fed = Federation(clients, privacy=ClientPrivacy(0.1, 50.0, 1, books))
        found.append(last(every_trainer(fed, MODEL, 1)["fedavg"]()).parameters)
    start = MODEL.initial(np.random.default_rng(0))
    expected = 0.1 * 50.0 / len(clients)
    for each in found:
        assert 0.7 * expected < (each - start).std() < 1.3 * expected
    assert abs(np.corrcoef(found[0] - start, found[1] - start)[0, 1]) < 0.35


def test_networks_under_secure_aggregation_differ_by_the_quantisation_alone(clients):
    model = Perceptron(3, 5, (8,))
    for method in ("fedprox", "fedrco"):
        found = []
        for aggregation in (None, SecureAggregation(clip=100.0)):
            fresh = [Client(c.name, c.features, c.targets) for c in clients]
            fed = Federation(fresh, aggregation=aggregation)
            found.append(last(every_trainer(fed, model, 2)[method]()).parameters)
        assert np.abs(found[0] - found[1]).max() < 1e-6

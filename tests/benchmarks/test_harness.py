import json

import click
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import _data
from benchmarks._harness import (
    COUNT,
    MINUTES,
    DataMissingError,
    Run,
    Table,
    benchmark,
    cifar10_long_tail,
    digits,
    environment,
    newsgroups,
    peak_memory,
    shared_data,
    spread,
    timed,
)
from secure_fl.errors import InputError
from secure_fl.federation import QuorumError


def need(*parts):
    try:
        return shared_data(*parts)
    except DataMissingError:
        pytest.skip(f"needs the public data file ../shared/data/{'/'.join(parts)}")


@benchmark("does a sum take time?")
def example(run: Run) -> None:
    """Sums a few numbers."""
    run.seeds(3, 4)
    run.parameter(terms=10 if run.quick else 1000)
    run.progress("summing")
    table = run.table("sums", ["method", "terms", "seconds", "right"])
    seconds, total = timed(lambda: sum(range(10)))
    table.add("python", np.int64(10), np.float64(seconds), np.bool_(total == 45))
    table.add("none", 1_234_567, float("nan"), None)
    run.note("one remark")


def test_json_holds_the_run_and_nothing_else_is_on_standard_output():
    done = CliRunner().invoke(example, ["--quick", "--json"])
    assert done.exit_code == 0
    run = json.loads(done.stdout)
    assert run["question"] == "does a sum take time?"
    assert run["quick"] is True
    assert run["seeds"] == [3, 4]
    assert run["parameters"] == {"terms": 10}
    assert run["notes"] == ["one remark"]
    first, second = run["results"]["sums"]["rows"]
    assert first["method"] == "python"
    assert first["right"] is True
    assert first["seconds"] >= 0
    assert second == {"method": "none", "terms": 1_234_567, "seconds": "nan", "right": None}
    assert run["environment"]["versions"]["numpy"] == np.__version__
    assert run["environment"]["cores"] >= 1
    assert run["peak_memory_bytes"] > 1_000_000
    assert "summing" in done.stderr


def test_tables_are_readable_and_say_where_they_were_measured():
    done = CliRunner().invoke(example, [])
    assert done.exit_code == 0
    for text in ("sums", "python", "1,234,567", "yes", "- one remark", "cores", "seeds: 3, 4"):
        assert text in done.stdout
    assert "summing" not in done.stdout


def test_help_shows_the_question():
    done = CliRunner().invoke(example, ["--help"])
    assert "Sums a few numbers." in done.output
    assert "--quick" in done.output


def test_absent_data_end_with_2_and_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("SECUREFL_DATA", str(tmp_path))

    @benchmark("what is in the data?")
    def missing(run: Run) -> None:
        newsgroups()

    done = CliRunner().invoke(missing, ["--json"])
    assert done.exit_code == 2
    message = (
        f"no newsgroups/minilm-train.npz in {tmp_path}; put the public data sets there or"
        " point SECUREFL_DATA at them"
    )
    assert done.stderr == f"error: {message}\n"
    failure = {"type": "DataMissingError", "message": message, "exit_code": 2}
    assert json.loads(done.stdout) == {"error": failure}


@pytest.mark.parametrize(("error", "code"), [(InputError("bad"), 2), (QuorumError("few"), 1)])
def test_a_failure_is_one_line_and_the_commands_exit_code(error, code):
    @benchmark("does it fail?")
    def failing(run: Run) -> None:
        raise error

    done = CliRunner().invoke(failing, [])
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", f"error: {error}\n")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x"])
@pytest.mark.parametrize("kind", [COUNT, MINUTES])
def test_numbers_of_rounds_and_minutes_are_above_0_and_finite(kind, value):
    with pytest.raises(click.BadParameter):
        kind.convert(value, None, None)
    assert kind.convert("3", None, None) == 3


def test_a_row_needs_one_cell_a_column():
    table = Table("t", ("a", "b"))
    with pytest.raises(ValueError, match="table 't': 1 cells for 2 columns"):
        table.add(1)
    with pytest.raises(TypeError, match="not ndarray"):
        table.add(1, np.ones(2))


def test_spread_is_mean_and_sample_deviation():
    assert spread([1.0, 2.0, 3.0]) == "2.0 ± 1.0"
    assert spread([79.06]) == "79.1"


def test_environment_and_memory_are_measured():
    facts = environment()
    assert facts["memory_bytes"] > 2**28
    assert {"python", "numpy", "scipy", "torch"} <= facts["versions"].keys()
    block = np.ones(20_000_000)
    assert peak_memory() > block.nbytes


def test_digits_are_split_by_class_and_by_seed():
    data = digits(np.random.default_rng(0))
    assert data.X_train.shape[1] == 64
    assert data.y_train.size + data.y_test.size == 1797
    share = np.bincount(data.y_test) / (np.bincount(data.y_test) + np.bincount(data.y_train))
    assert np.all(np.abs(share - 0.25) < 0.01)
    assert 0 <= data.X_train.min() <= data.X_train.max() <= 1
    again = digits(np.random.default_rng(0))
    other = digits(np.random.default_rng(1))
    assert np.array_equal(again.X_test, data.X_test)
    assert not np.array_equal(other.X_test, data.X_test)


def test_newsgroups_have_the_published_sizes():
    need("newsgroups", "minilm-train.npz")
    data = newsgroups()
    assert data.X_train.shape == (11314, 384)
    assert data.X_test.shape == (7532, 384)
    assert len(data.classes) == 20
    # Unit vectors times 10, stored as float16.
    assert np.allclose(np.linalg.norm(data.X_test, axis=1), 10, atol=0.01)


@pytest.mark.parametrize(("rho", "count"), [(10, 20431), (50, 13996), (100, 12406)])
def test_long_tails_have_the_published_sizes(rho, count):
    """CIFAR-10-LT of Cui et al. 2019: 20,431, 13,996 and 12,406 training images."""
    need("cifar10", "efficientnet-lite0-lt10.npz")
    data = cifar10_long_tail(rho)
    assert data.y_train.size == count
    sizes = np.bincount(data.y_train)
    assert sizes[0] == 5000
    assert sizes[9] == 5000 // rho
    assert data.X_test.shape == (10000, 1280)
    assert 0 <= data.X_train.min() <= data.X_train.max() <= 1


def test_a_shorter_tail_than_the_stored_one_is_refused():
    with pytest.raises(ValueError, match="rho 5"):
        cifar10_long_tail(5)


def test_data_are_sought_beside_the_repository(monkeypatch):
    monkeypatch.delenv("SECUREFL_DATA", raising=False)
    monkeypatch.setattr(_data, "REPOSITORY", _data.REPOSITORY / "nowhere")
    with pytest.raises(DataMissingError, match=r"no data folder in .*shared/data"):
        shared_data()


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "classes"),
    [
        ("a1a", 1605, 30956, 123, 2),
        ("svmguide1", 3089, 4000, 4, 2),
        ("splice", 1000, 2175, 60, 2),
        ("vehicle", 500, 346, 18, 4),
        ("dna", 2000, 1186, 180, 3),
    ],
)
def test_libsvm_sets_have_the_published_sizes(name, train, test, features, classes):
    """Vehicle has 846 records in one file; all are used, 500 for training."""
    need("libsvm", f"{name}.bz2")
    data = _data.libsvm(name)
    assert data.X_train.shape == (train, features)
    assert data.X_test.shape == (test, features)
    assert len(data.classes) == classes == len(np.unique(data.y_train))
    if name == "svmguide1":
        assert np.allclose(data.X_train.std(axis=0), 1, atol=1e-3)

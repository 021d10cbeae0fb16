"""Numbers in place of classes: from client files to predictions, errors and the report."""

import csv
import json

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score

from secure_fl.errors import InputError
from secure_fl.training.fitted import FittedModel, FittedRegression
from tests.cli.command import refused, securefl

RIDGE = 0.01
TARGETS = ("height", "weight")
FEATURES = ("a", "b", "c")
SLOPES = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]])
METHODS = {
    "krr": ("--ridge", RIDGE),
    "dkrr": ("--ridge", RIDGE),
    "oneshot": ("--ridge", RIDGE),
    "fednewton": ("--ridge", RIDGE, "--rounds", 8, "--memory", 4),
    "localnewton": ("--ridge", RIDGE, "--rounds", 8),
    "fedavg": ("--ridge", RIDGE, "--rounds", 40, "--learning-rate", 0.1),
    "fedavgm": ("--ridge", RIDGE, "--rounds", 60, "--learning-rate", 0.1),
    "fedadam": ("--ridge", RIDGE, "--rounds", 100, "--learning-rate", 0.1),
    "fedprox": ("--ridge", RIDGE, "--rounds", 40, "--learning-rate", 0.1),
}


def made(rng, n, shift=0.0):
    """Records with an intercept that the model's constant must find."""
    X = rng.normal(size=(n, 3)) + shift
    return X, X @ SLOPES + [4.0, -1.0] + 0.1 * rng.normal(size=(n, 2))


def write_table(path, X, Y, extra=()):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        # Targets among the features, and in another order than they are asked for.
        rows.writerow(["a", "weight", "b", "height", "c"])
        rows.writerows([x[0], y[1], x[1], y[0], x[2]] for x, y in zip(X, Y, strict=True))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two clients' tables and a test table, and the records of each."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    sets = {"north": made(rng, 60), "south": made(rng, 60, 0.5), "test": made(rng, 50)}
    (folder / "clients").mkdir()
    for name, (X, Y) in sets.items():
        own = folder if name == "test" else folder / "clients"
        write_table(own / f"{name}.csv", X, Y)
    return folder, sets


def train(folder, out, *options):
    command = ("train", folder / "clients", "--out", out, "--targets", ",".join(TARGETS))
    return (*command, "--scaling", "none", *options)


def trained(folder, out, *options):
    return json.loads(securefl(*train(folder, out, *options), "--json", "-q")[0])


def pooled(sets):
    return (np.concatenate([sets[name][i] for name in ("north", "south")]) for i in (0, 1))


def expected(sets):
    """Ridge regression with a constant that is penalised as the others are."""
    X, Y = pooled(sets)
    wide = np.column_stack([X, np.ones(len(X))])
    return Ridge(alpha=RIDGE * len(X), fit_intercept=False).fit(wide, Y).coef_.T


def test_pooled_ridge_regression_of_tables_is_scikit_learns(tables, tmp_path):
    folder, sets = tables
    options = ("--method", "krr", *METHODS["krr"], "--test", folder / "test.csv")
    out = trained(folder, tmp_path / "run", *options)
    model = FittedModel.load(tmp_path / "run")
    assert isinstance(model, FittedRegression)
    assert model.targets_ == TARGETS
    np.testing.assert_allclose(model.model.weights, expected(sets), atol=1e-9)
    X, Y = sets["test"]
    found = model.predict(X)
    np.testing.assert_allclose(out["figures"]["rmse"], mean_squared_error(Y, found) ** 0.5, 1e-5)
    # Queries are taken in single precision.
    wide = np.column_stack([X, np.ones(len(X))])
    np.testing.assert_allclose(found, wide @ expected(sets), atol=1e-5)
    assert out["targets"] == list(TARGETS)
    with pytest.raises(InputError, match="predicts numbers"):
        model.predict_proba(X)


@pytest.mark.parametrize("method", METHODS)
def test_linear_methods_predict_numbers(tables, tmp_path, method):
    """Noise of 0.1 is the least error; who predicts the mean has 2.3 and 3.6."""
    folder, _ = tables
    options = ("--method", method, *METHODS[method], "--test", folder / "test.csv")
    assert trained(folder, tmp_path / "run", *options)["figures"]["rmse"] < 0.4


def test_masked_sums_give_the_same_numbers(tables, tmp_path):
    folder, _ = tables
    options = ("--method", "krr", *METHODS["krr"])
    trained(folder, tmp_path / "plain", *options)
    trained(folder, tmp_path / "secure", *options, "--aggregate", "secure")
    models = [FittedModel.load(tmp_path / each).model for each in ("plain", "secure")]
    np.testing.assert_allclose(models[0].weights, models[1].weights, atol=1e-4)


def test_predict_tells_numbers_and_how_far_off_they_are(tables, tmp_path):
    """The features are found by their names; a file without targets gets numbers alone."""
    folder, sets = tables
    trained(folder, tmp_path / "run", "--method", "krr", *METHODS["krr"])
    found = json.loads(
        securefl("predict", tmp_path / "run", folder / "test.csv", "--json", "-q")[0]
    )
    X, Y = sets["test"]
    values = np.array(found["values"])
    for i, name in enumerate(TARGETS):
        error = found["errors"][name]
        np.testing.assert_allclose(error["rmse"] ** 2, mean_squared_error(Y[:, i], values[:, i]))
        np.testing.assert_allclose(error["r2"], r2_score(Y[:, i], values[:, i]))
    lines = ["c,b,a", *(f"{x[2]},{x[1]},{x[0]}" for x in X)]
    (tmp_path / "queries.csv").write_text("\n".join(lines) + "\n")
    out, err = securefl("predict", tmp_path / "run", tmp_path / "queries.csv")
    printed = np.array([[float(number) for number in line.split()] for line in out.splitlines()])
    np.testing.assert_allclose(printed, values, rtol=1e-5)
    assert "RMSE" not in err
    np.save(tmp_path / "queries.npy", X)
    out, _ = securefl("predict", tmp_path / "run", tmp_path / "queries.npy", "--rows", "0:2")
    assert len(out.splitlines()) == 2


def test_the_report_says_errors_and_no_accuracy(tables, tmp_path):
    folder, _ = tables
    trained(folder, tmp_path / "run", "--method", "krr", *METHODS["krr"])
    page = tmp_path / "report.html"
    securefl("report", tmp_path / "run", "--out", page, "--test", folder / "test.csv")
    text = page.read_text()
    assert "one linear regression for 2 clients, 2 targets" in text
    assert "RMSE" in text
    assert "height" in text
    assert "confusion" not in text.lower()


@pytest.mark.parametrize("kind", ["npz", "libsvm"])
def test_other_formats_name_the_columns_of_y(tmp_path, kind):
    rng = np.random.default_rng(1)
    (tmp_path / "clients").mkdir()
    for name in ("north", "south"):
        X, Y = made(rng, 40)
        if kind == "npz":
            np.savez(tmp_path / "clients" / f"{name}.npz", X=X, y=Y[:, 0])
            continue
        lines = [
            f"{y[0]} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(x))
            for x, y in zip(X, Y, strict=True)
        ]
        (tmp_path / "clients" / f"{name}.svm").write_text("\n".join(lines) + "\n")
    command = ("train", tmp_path / "clients", "--targets", "height", "--method", "krr")
    securefl(*command, "--out", tmp_path / "run", "--ridge", 1e-9, "--scaling", "none")
    weights = FittedModel.load(tmp_path / "run").model.weights[:, 0]
    np.testing.assert_allclose(weights, [*SLOPES[:, 0], 4.0], atol=0.1)


PRIVATE = ("--method", "private-ridge", "--aggregate", "secure", "--unit", "record")


def test_private_ridge_hides_every_record_and_approaches_ridge_regression(tables, tmp_path):
    """With hardly any noise its model is that without; its books say what was spent."""
    folder, sets = tables
    promise = ("--epsilon", 2000, "--delta", 1e-5, "--norm", 10, "--target-norm", 30)
    ledger = ("--ledger", tmp_path / "all.jsonl")
    out = trained(folder, tmp_path / "run", *PRIVATE, *promise, *ledger)
    assert "epsilon 2000 at delta 1e-05 per record" in out["privacy"]
    assert "2 targets of norm 30" in (tmp_path / "all.jsonl").read_text()
    X, Y = pooled(sets)
    weights = FittedModel.load(tmp_path / "run").model.weights
    near = np.linalg.lstsq(X, Y, rcond=None)[0]
    np.testing.assert_allclose(weights[:3], near, atol=0.5)
    assert not weights[3].any()


def test_what_has_no_meaning_for_numbers_is_refused(tables, tmp_path):
    folder, _ = tables
    out = tmp_path / "run"

    def said(*options):
        code_line = securefl(*train(folder, out, *options), check=2)[1].strip().splitlines()[-1]
        assert not out.exists()
        return code_line

    assert "--targets is of linear methods" in said("--method", "kahm")
    assert "is for classes; numbers (targets)" in said("--method", "fednewton-head")
    assert "is for classes; numbers (targets)" in said("--method", "fednl")
    assert "a norm of targets has no meaning" in said("--method", "krr", "--target-norm", 3)
    promise = ("--epsilon", 1, "--delta", 1e-5, "--norm", 4)
    assert "needs a public norm of a record's targets" in said(*PRIVATE, *promise)
    assert "--classes has no meaning beside --targets" in said("--method", "krr", "--classes", "a")
    plain = ("train", folder / "clients", "--out", out, "--method", "krr")
    line = securefl(*plain, "--targets", "height,height", check=2)[1]
    assert "each once" in line
    assert 'no column "age"' in refused(*plain, "--targets", "age")
    assert (
        "--target-norm has no meaning without --targets"
        in (securefl(*plain, "--target-norm", 1, check=2)[1])
    )


@pytest.mark.parametrize(
    ("cell", "message"), [("", 'feature "weight" in line 3'), ("nan", 'feature "weight"')]
)
def test_a_target_that_is_no_finite_number_is_named(tables, tmp_path, cell, message):
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "a.csv").write_text(f"a,weight\n1,2\n3,{cell}\n")
    command = ("train", tmp_path / "clients", "--out", tmp_path / "run", "--method", "krr")
    assert message in refused(*command, "--targets", "weight")

"""A run whose scaling is released: refused, or booked with what follows and stated with it."""

import attrs
import numpy as np
import pytest

import dp
from secure_fl import train
from secure_fl.data import Dataset, ReadOptions, Scaling
from secure_fl.errors import InputError
from secure_fl.privacy.promises import ClientPromise, RecordPromise, ReleasePromise
from secure_fl.report.trained import gather_trained, render_trained
from secure_fl.trainers.registry import find
from secure_fl.training.model_files import FILE
from secure_fl.training.released_scaling import split

PROMISE = RecordPromise(epsilon=20.0, delta=1e-5, norm=2.0)
UNIT = dp.Record(2.0)
RELEASE = ReleasePromise(epsilon=8.0, delta=1e-5, adjacency=UNIT, bounds=(-1.0, 1.0))
HEADS = {"method": "kahm", "secure": False}


def clients(seed=0, sizes=(120, 160, 140)):
    """Classes that lie far from 0, on features of other units."""
    rng = np.random.default_rng(seed)
    made = []
    for i, n in enumerate(sizes):
        y = rng.integers(0, 2, n)
        X = np.stack([50 + 2 * y + rng.normal(0, 0.5, n), 3 - 0.1 * y + rng.normal(0, 0.05, n)], 1)
        made.append(Dataset(X, y, ("a", "b"), f"c{i}"))
    return made


def run(tmp_path, method="private-ridge", **options):
    settings = {"secure": True, "scaling": "moments", "moments_clip": (0.0, 60.0), **options}
    settings = {"promise": PROMISE, "books": tmp_path / "books", **settings}
    return train(clients(), find(method)(), **settings)


@pytest.mark.parametrize("method", ["private-ridge", "private-gradient", "kahm-record-private"])
def test_scaling_and_method_are_two_events_of_one_promise(tmp_path, method):
    """The books hold both in one unit; what is stated is of both."""
    ranges = Scaling(kind="range", offsets=(40.0, 2.0), spreads=(20.0, 2.0))
    fitted = run(tmp_path, method, moments_clip=ranges)
    ledger = dp.Ledger.open(tmp_path / "books")
    first, second = ledger.events
    assert first.what == "noisy means and deviations of 2 features, for their scaling"
    assert {first.adjacency, second.adjacency} == {UNIT}
    total = ledger.get_epsilon(1e-5, UNIT).epsilon
    assert 0.97 * 20 < total <= 20 * (1 + 1e-9)
    if method == "kahm-record-private":
        assert fitted.manifest.scaling == "released"
        assert fitted.manifest.unit == "record"
        (_, statement), *_ = fitted.statements
        assert statement.epsilon == 20.0
        assert any("were released before" in each for each in statement.assumptions)
        return
    assert fitted.model.scale.kind == "released"
    (tmp_path / "run").mkdir()
    fitted.model.save(tmp_path / "run" / FILE)
    sources = {"ledger": tmp_path / "books", "reading": ReadOptions()}
    page = render_trained(gather_trained(tmp_path / "run", **sources))
    assert "means and deviations that were released before; the books hold both" in page
    assert "not what the model says" not in page
    assert f"epsilon {total:.4g}" in fitted.privacy
    assert "were released for a part of the promise" in fitted.remarks[-1]
    test = clients(1)[0]
    right = np.mean(fitted.predict(test.X) == np.array(test.classes)[test.y])
    assert right > 0.9


@pytest.mark.parametrize("unit", [UNIT, dp.Element(2.0)])
def test_heads_are_released_after_what_scales_them_in_every_clients_own_books(tmp_path, unit):
    """Both are in each book, together within the promise, by dp's accountant."""
    promise = attrs.evolve(RELEASE, adjacency=unit, budget=dp.Budget(8.0, 1e-5, unit))
    fitted = run(tmp_path, **HEADS, promise=promise, scaling="floored")
    assert fitted.manifest.scaling == "released"
    assert fitted.manifest.unit == unit.kind
    for name, statement in fitted.statements:
        ledger = dp.Ledger.open(tmp_path / "books" / f"{name}.jsonl")
        moments, head = ledger.events
        assert moments.what == "noisy means and deviations of 2 features, for their scaling"
        assert moments.adjacency == head.adjacency == unit
        total = ledger.get_epsilon(1e-5, unit).epsilon
        assert (0.99 if unit == UNIT else 0.9) * 8 < total <= 8 * (1 + 1e-9)
        assert statement.epsilon == pytest.approx(split(8.0, 1e-5)[2] if unit == UNIT else 0.9 * 8)
        assert "released before" in statement.assumptions[-1]
        implied = "For whole records" in statement.assumptions[-1]
        assert implied == (unit.kind == "element")


def network(tmp_path, epsilon=8.0, **options):
    method = find("fedavg", "network")(rounds=2, local_epochs=1, local_batch=30)
    promise = RecordPromise(epsilon=epsilon, budget=epsilon)
    common = {"scaling": "moments", "moments_clip": (0.0, 60.0), "books": tmp_path / "books"}
    return train(clients(), method, promise=promise, **{**common, **options})


def test_a_network_that_hides_records_plans_its_steps_beside_the_moments(tmp_path):
    """In each client's own books, together within the promise; and only if both fit."""
    fitted = network(tmp_path)
    assert fitted.model.scale.kind == "released"
    assert "were released for a part of the promise" in fitted.remarks[-1]
    unit = dp.Membership("record contribution")
    for name in ("c0", "c1", "c2"):
        ledger = dp.Ledger.open(tmp_path / "books" / f"{name}.jsonl")
        moments, *steps = ledger.events
        assert moments.what == "noisy means and deviations of 2 features, for their scaling"
        assert len(steps) == 2
        total = ledger.get_epsilon(1e-5, unit).epsilon
        assert 0.9 * 8 < total <= 8
        alone = dp.compose([], [moments.gaussian], 1e-5).epsilon
        assert alone == pytest.approx(0.1 * 8, rel=1e-2)
        assert dp.compose([], [each.gaussian for each in steps], 1e-5).epsilon < total - 0.01
    before = [path.read_bytes() for path in sorted((tmp_path / "books").glob("*.jsonl"))]
    with pytest.raises(dp.BudgetError):
        network(tmp_path, seed=1)
    assert before == [path.read_bytes() for path in sorted((tmp_path / "books").glob("*.jsonl"))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"moments_clip": None}, "needs public bounds of the records: give --moments-clip"),
        ({"secure": False}, "needs masked sums"),
        ({"checkpoint": "run.checkpoint"}, "would release means and deviations anew"),
        ({"scaling": "none"}, "moments-clip: is for means and deviations that are released"),
        ({"target_norm": 1.0}, "a norm of targets has no meaning"),
        (
            {**HEADS, "promise": attrs.evolve(RELEASE, delta=0.0)},
            "under Gaussian noise, which needs a --delta above 0",
        ),
        (
            {**HEADS, "promise": attrs.evolve(RELEASE, adjacency=dp.Element(1.0))},
            "a length in scaled features.*give --distance 2, the whole of --bounds",
        ),
        ({**HEADS, "promise": RELEASE, "moments_clip": None}, "needs public bounds"),
        (
            {"method": "fedavg", "promise": ClientPromise(epsilon=8.0, clip=1.0)},
            "heads' releases and methods that hide every record have them",
        ),
        (
            {"scaling": Scaling(kind="moments", offsets=(0.0, 0.0), spreads=(1.0, 1.0))},
            "not private",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line_and_nothing_is_spent(tmp_path, options, message):
    given = {**options}
    if "checkpoint" in given:
        given["checkpoint"] = tmp_path / given["checkpoint"]
    with pytest.raises(InputError, match=message) as caught:
        run(tmp_path, **given)
    assert "\n" not in str(caught.value)
    books = tmp_path / "books"
    assert not books.exists() or dp.Ledger.open(books).events == ()


def test_a_spent_ledger_refuses_before_anything_is_released(tmp_path):
    run(tmp_path)
    before = (tmp_path / "books").read_bytes()
    with pytest.raises(dp.BudgetError):
        run(tmp_path)
    assert (tmp_path / "books").read_bytes() == before


def test_constants_that_were_released_serve_another_run_for_nothing(tmp_path):
    """They are in the books already, and public."""
    fitted = run(tmp_path)
    again = run(tmp_path, scaling=fitted.model.scale, moments_clip=None, books=tmp_path / "other")
    assert again.model.scale.offsets == fitted.model.scale.offsets
    (event,) = dp.Ledger.open(tmp_path / "other").events
    assert "second moments" in event.what

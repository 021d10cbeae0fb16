"""What `train --test` says of a result, against data whose answer is known."""

import numpy as np
import pytest

from secure_fl.data import Dataset, Scaling
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.training.learned import learned, likely_cause, linear_probe
from secure_fl.training.train import train

CLASSES = ("a", "b")


def halves(rng, n, spread):
    """Two classes that a plane across the first feature separates; the second is large noise."""
    y = np.arange(n) % 2
    X = np.stack([2.0 * y - 1 + 0.1 * rng.normal(size=n), spread * rng.normal(size=n)], axis=1)
    return X, y.astype(np.int64)


def federation(spread):
    rng = np.random.default_rng(0)
    clients = [Dataset(*halves(rng, 40, spread), CLASSES, name) for name in ("c", "d")]
    return clients, Dataset(*halves(rng, 60, spread), CLASSES, "")


def test_features_of_uneven_units_are_named_as_the_cause_and_scaling_mends_it():
    clients, test = federation(1000.0)
    facts = {"private": False, "disjoint": False}
    raw = learned(train(clients, KAHMHeads(batch_size=100)), test, scaling=Scaling(), **facts)
    assert raw.accuracy < 0.9 < raw.probe
    assert "features are not scaled" in raw.warning
    assert "--scaling moments" in raw.warning
    fitted = train(clients, KAHMHeads(), scaling="moments")
    found = learned(fitted, test, scaling=fitted.manifest.scaling_map, **facts)
    assert found.accuracy > 0.95
    assert found.warning is None
    assert found.majority == 0.5
    assert "the most frequent class alone 50.0%, a linear probe" in found.text()


def test_the_probe_is_fitted_to_public_records_where_there_are_some():
    clients, test = federation(1.0)
    assert linear_probe(test, None) == 1.0
    flipped = Dataset(clients[0].X, 1 - clients[0].y, CLASSES, "")
    assert linear_probe(test, flipped) == 0.0


def test_no_probe_is_made_of_one_class_or_of_too_few_records():
    rng = np.random.default_rng(0)
    alone = Dataset(rng.normal(size=(9, 2)), np.zeros(9, np.int64), CLASSES, "")
    assert linear_probe(alone, None) is None
    few = Dataset(rng.normal(size=(4, 2)), np.array([0, 0, 1, 1]), CLASSES, "")
    assert linear_probe(few, None) is None


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"heads": True, "private": True, "disjoint": False}, "the noise of the promise"),
        ({"heads": False, "private": False, "disjoint": True}, "labels hardly meet"),
        ({"heads": True, "private": False, "disjoint": True}, "--batch-size"),
        ({"heads": False, "private": False, "disjoint": False}, "leave out --rounds"),
    ],
)
def test_the_likely_cause_follows_from_what_is_known(facts, named):
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert named in likely_cause(X, scaling=Scaling(), **facts)

"""Scaling in a manifest: what old files mean, what is kept, and what no manifest may say."""

import json
from pathlib import Path

import numpy as np
import pytest

from secure_fl.data import Scaling
from secure_fl.errors import InputError
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.heads.run_folder import query_features
from secure_fl.objectives import RandomFourierFeatures
from secure_fl.training.linear_model import LinearModel

GOLDEN = Path(__file__).parents[2] / "golden" / "v1"
FACTS = {"classes": ("a", "b"), "clients": ("c",), "n_features": 2}
SCALED = {**FACTS, "scaling": "moments", "offsets": (1.0, -2.0), "spreads": (0.5, 4.0)}


def test_a_manifest_of_before_has_no_scaling_and_is_written_as_then(tmp_path):
    old = load_manifest(GOLDEN)
    assert old.scaling_map == Scaling(factor=old.scale)
    assert (old.regularisation, old.regularisation_factor, old.tried) == ("absolute", 1.0, ())
    save_manifest(tmp_path, old)
    written = json.loads((tmp_path / "federation.json").read_text())
    assert written == json.loads((GOLDEN / "federation.json").read_text())


def test_a_scaling_is_kept_changes_the_fingerprint_and_is_applied_to_queries(tmp_path):
    tried = [("--batch-size 5", 3, 4), ("--batch-size 2", 2, 4, 900)]
    manifest = make_manifest(**SCALED, scale=10.0, tried=tried)
    save_manifest(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest
    plain = make_manifest(**FACTS, scale=10.0)
    assert len({plain.fingerprint, manifest.fingerprint}) == 2
    found = query_features(np.array([[1.5, 2.0]]), manifest, source="q")
    assert found.tolist() == [[10.0, 10.0]]
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"offsets": (1.0,), "spreads": (1.0,)}, "2 features, the scaling has 1"),
        ({"offsets": (1.0,)}, "1 offsets and 2 spreads"),
        ({"scaling": "none"}, '"none" has offsets or spreads'),
        ({"unit": "record"}, "'scaling' is of private means and spreads"),
        ({"tried": [("a", 1)]}, "'tried' is not a list of settings"),
        ({"unit": "element", "scaling": "range", "tried": [("a", 1, 2)]}, "'tried' sums"),
    ],
)
def test_what_does_not_fit_or_breaks_a_promise_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        make_manifest(**{**SCALED, **changed})


def test_a_model_keeps_its_scaling_and_readers_without_one_refuse_it(tmp_path):
    scaling = Scaling(kind="range", factor=3.0, offsets=[0.0, 1.0], spreads=[2.0, 5.0])
    random = RandomFourierFeatures.draw(2, 4, 1.0, np.random.default_rng(0))
    weights = np.zeros((4, 2))
    model = LinearModel(weights, ("a", "b"), 2, None, scaling, random, {"method": "krr"})
    model.save(tmp_path / "model")
    assert LinearModel.load(tmp_path / "model").scaling_map == scaling
    header = (tmp_path / "model").read_bytes()
    assert b'"scale":null' in header.replace(b" ", b"")

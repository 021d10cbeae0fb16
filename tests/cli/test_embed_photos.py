"""`securefl data embed` of photos, as a user runs it; Pillow alone is needed."""

import json

import numpy as np
import pytest

from tests.cli.command import refused, securefl

Image = pytest.importorskip("PIL.Image", reason="needs the extra `images`")


@pytest.fixture
def photos(tmp_path):
    for i in range(8):
        path = tmp_path / "north" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 6), (200 * (i % 2), i, 9)).save(path)
    return tmp_path / "north"


def test_photos_become_a_clients_file_that_trains(photos, tmp_path):
    out, err = securefl("data", "embed", photos, tmp_path / "c", "--encoder", "pixels:3", "--json")
    found = json.loads(out)
    assert (found["features"], found["clients"]["north"]["by_class"]) == (27, [4, 4])
    assert "encoding photos" in err
    assert "fingerprint sha256:" in err
    securefl("train", tmp_path / "c", "--out", tmp_path / "run", "--encoder", "pixels:3")
    manifest = json.loads((tmp_path / "run" / "federation.json").read_text())
    assert manifest["encoder"] == "pixels:3"
    assert manifest["encoder_fingerprint"] in err


def test_a_csv_names_the_labels(photos, tmp_path):
    (tmp_path / "labels.csv").write_text("file,what\na/0.png,x\nb/1.png,y\n")
    common = ("data", "embed", photos, tmp_path / "c", "--encoder", "pixels:1")
    securefl(*common, "--labels", tmp_path / "labels.csv", "--label-column", "what")
    assert np.load(tmp_path / "c" / "north.npz")["classes"].tolist() == ["x", "y"]


def test_a_damaged_image_leaves_nothing_behind_unless_it_is_dropped(photos, tmp_path):
    (photos / "a" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    common = ("data", "embed", photos, tmp_path / "c", "--encoder", "pixels:1")
    assert "a/2.png: " in refused(*common)
    assert not (tmp_path / "c").exists()
    out, err = securefl(*common, "--damaged", "drop", "--json")
    assert json.loads(out)["remarks"][0] == "1 of 8 images dropped, which cannot be read"
    assert "a/2.png: " in err


def test_options_of_the_other_kind_are_refused(photos, tmp_path):
    common = (tmp_path / "c", "--encoder", "pixels:1")
    _, err = securefl("data", "embed", photos, *common, "--long-texts", "cut", check=2)
    assert "--long-texts has no meaning for photos" in err
    (tmp_path / "t.csv").write_text("label,text\na,b\n")
    _, err = securefl("data", "embed", tmp_path / "t.csv", *common, "--damaged", "drop", check=2)
    assert "--damaged has no meaning for texts" in err
    assert "pixels:1: no such model folder" in refused("data", "embed", tmp_path / "t.csv", *common)

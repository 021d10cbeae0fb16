"""Photos to features: by folders or a csv, with a cache, without anything downloaded."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from secure_fl.encoders.embedding import embed_photos, encoder_fingerprint
from secure_fl.encoders.image import PixelEncoder, encode_pictures, image_encoder
from secure_fl.encoders.photo_folder import is_photo_folder
from secure_fl.encoders.pictures import Picture
from secure_fl.errors import ClientError, FormatError, InputError, LabelError
from tests.secure_fl.shared import one_line

Image = pytest.importorskip("PIL.Image", reason="needs the extra `images`")
COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255)}


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "north"
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (9, 5), colour).save(folder / name / f"{i}.png")
    return folder


def embedded(folder, encoder=None, **options):
    """The data sets and the remarks."""
    remarks = []
    found = embed_photos(
        folder,
        encoder or PixelEncoder(2),
        remark=remarks.append,
        progress=lambda *told: None,
        **options,
    )
    return found, remarks


def features(encoder, picture):
    return encoder.forward([encoder.prepare(Picture(Path("a.png"), picture))])


def refusal(kind, folder, **options):
    with pytest.raises(kind) as caught:
        embedded(folder, **options)
    assert isinstance(caught.value, InputError)
    return one_line(caught.value).replace(f"{folder.parent}/", "")


def test_a_folder_a_class_is_a_client(photos):
    (photos / "red" / "Thumbs.db").write_bytes(b"x")
    assert is_photo_folder(photos)
    (found,), remarks = embedded(photos)
    assert (found.name, found.classes) == ("north", ("blue", "red"))
    assert found.counts().tolist() == [3, 3]
    assert found.X.dtype == np.float32
    assert found.X[0].tolist() == [0, 0, 1] * 4
    assert remarks == [f"1 files left out, no images in a class's folder: {photos}/red/Thumbs.db"]


def test_a_csv_names_labels_and_clients(photos):
    labels = photos.parent / "labels.csv"
    labels.write_text("client;label;FILE\nb;warm;red/0.png\na;cold;blue\\1.png\na;warm;red/2.png\n")
    found, remarks = embedded(photos, labels=labels)
    assert [(each.name, len(each)) for each in found] == [("a", 2), ("b", 1)]
    assert found[0].classes == ("cold", "warm")
    assert found[0].X[0].tolist() == [0, 0, 1] * 4
    assert remarks[0].startswith("3 images left out, ")


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("file,label\n../x.png,a\n", FormatError, "does not lie in north; name a file below it"),
        ("file,label\n/etc/passwd,a\n", FormatError, "does not lie in north"),
        ("file,label\nred/9.png,a\n", FormatError, "line 2: north/red/9.png is not there"),
        ("file,label\nred/0.png,a\nred/0.png,b\n", FormatError, "is in line 2 already"),
        ("file,label\nred/0.png,\n", LabelError, "line 2: no label for red/0.png"),
        ("name,label\nred/0.png,a\n", FormatError, 'no column "file"'),
        ("file,label,client\nred/0.png,a,../b\n", ClientError, "cannot be a client's name"),
        ("file,label,client\nred/0.png,a,\n", ClientError, "'' cannot be a client's name"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused(photos, text, kind, told):
    labels = photos.parent / "labels.csv"
    labels.write_text(text)
    assert told in refusal(kind, photos, labels=labels)


def test_a_link_out_of_the_folder_is_refused(photos):
    (photos.parent / "secret.png").write_bytes((photos / "red" / "0.png").read_bytes())
    (photos / "link.png").symlink_to(photos.parent / "secret.png")
    (photos.parent / "labels.csv").write_text("file,label\nlink.png,a\n")
    assert "does not lie in" in refusal(FormatError, photos, labels=photos.parent / "labels.csv")


def test_a_damaged_image_is_refused_or_dropped_and_told(photos):
    (photos / "red" / "1.png").write_bytes(b"GIF89a")
    assert refusal(FormatError, photos).startswith("north/red/1.png: ")
    (found,), remarks = embedded(photos, drop_damaged=True)
    assert found.counts().tolist() == [3, 2]
    assert remarks[0] == "1 of 6 images dropped, which cannot be read"
    assert "red/1.png" in remarks[1]
    for path in photos.rglob("*.png"):
        path.write_bytes(b"x")
    assert "none of 6 images can be read" in refusal(FormatError, photos, drop_damaged=True)


class Counting(PixelEncoder):
    """Counts the pictures that it is given."""

    seen = 0

    def prepare(self, picture):
        type(self).seen += 1
        return super().prepare(picture)


def test_a_cache_spares_pictures_that_were_encoded(photos, tmp_path):
    cache, told = tmp_path / "cache", []
    files = sorted(photos.rglob("*.png"))
    first = encode_pictures(files, PixelEncoder(2), cache=cache, progress=lambda *t: told.append(t))
    again = encode_pictures(files, Counting(2), cache=cache, progress=lambda *t: None)
    assert Counting.seen == 0
    assert np.array_equal(first.features, again.features)
    encode_pictures(files, Counting(3), cache=cache, progress=lambda *t: None)
    assert Counting.seen == 6
    assert told[-1] == (6, 6)


def test_pixels_are_those_of_the_picture():
    """A box filter is the mean over each quarter."""
    pixels = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    (found,) = features(PixelEncoder(2), Image.fromarray(pixels))
    means = pixels.reshape(2, 2, 2, 2, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(found.reshape(2, 2, 3) * 255, means, atol=0.5)


@pytest.mark.parametrize("name", ["pixels:0", "pixels:", "pixels:129", "pixels:-1", "pixels:4x"])
def test_an_encoder_of_no_pixels_is_refused(name):
    with pytest.raises(InputError, match="expected pixels:N with N from 1 to 128"):
        image_encoder(name)


# ------------------------------------------------------------------------------------ models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny ResNet with random weights, as transformers keeps it."""
    transformers = pytest.importorskip("transformers", reason="needs the extra `images`")
    folder = tmp_path_factory.mktemp("models") / "resnet"
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic"
    )
    transformers.ResNetModel(config).save_pretrained(folder)
    described = {"size": {"shortest_edge": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    return folder


def test_a_models_features_are_those_of_its_own_library(model):
    """The oracle prepares the picture itself: 32 x 32 in, (x / 255 - 0.5) / 0.5, pooled out."""
    import torch
    from transformers import AutoModel

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    (found,) = features(image_encoder(str(model)), Image.fromarray(pixels))
    network = AutoModel.from_pretrained(model, local_files_only=True).eval()
    values = torch.tensor((pixels / 255 - 0.5) / 0.5, dtype=torch.float32).permute(2, 0, 1)
    with torch.inference_mode():
        expected = network(values[None]).pooler_output.flatten().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_of_a_model_of_images_and_texts_the_features_are_the_images(kind, tmp_path):
    """The whole folder, as it is published; the oracle goes through the model's own halves."""
    import torch

    transformers = pytest.importorskip("transformers", reason="needs the extra `images`")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    small["num_attention_heads"] = 2
    halves = {
        "vision_config": {**small, "image_size": 32, "patch_size": 8},
        "text_config": {**small, "vocab_size": 50, "max_position_embeddings": 10},
    }
    if kind == "CLIP":
        halves["projection_dim"] = 8
    whole = getattr(transformers, f"{kind}Model")
    network = whole(getattr(transformers, f"{kind}Config")(**halves)).eval()
    network.save_pretrained(tmp_path)
    described = {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(described))
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    (found,) = features(image_encoder(str(tmp_path)), Image.fromarray(pixels))
    values = torch.tensor((pixels / 255 - 0.5) / 0.5, dtype=torch.float32).permute(2, 0, 1)
    with torch.inference_mode():
        expected = network.vision_model(pixel_values=values[None]).pooler_output
        if kind == "CLIP":
            expected = network.visual_projection(expected)
    np.testing.assert_allclose(found, expected.flatten().numpy(), rtol=1e-4, atol=1e-5)


def test_a_fingerprint_is_of_the_content(model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    assert encoder_fingerprint(str(copy)) == encoder_fingerprint(str(model))
    (copy / "preprocessor_config.json").unlink()
    assert encoder_fingerprint(str(copy)) != encoder_fingerprint(str(model))
    assert encoder_fingerprint("pixels:2") != encoder_fingerprint("pixels:3")
    assert encoder_fingerprint("none") == ""


def edited(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def pickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (edited(auto_map={"AutoModel": "x.Y"}), "names code of the model's own (auto_map)"),
        (edited(model_type="bert"), "model 'bert'; expected one of beit, "),
        (pickled, "no safetensors weights; convert the model to safetensors"),
        (lambda f: (f / "config.json").write_text("[]"), "not a model's, or damaged"),
        (lambda f: (f / "config.json").unlink(), "no config.json; name a vision model"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x"), "not a usable model"),
        (
            lambda f: (f / "preprocessor_config.json").write_text('{"image_std": [0, 1, 1]}'),
            "not a usable description of pictures",
        ),
        (
            lambda f: (f / "preprocessor_config.json").write_text('{"size": {}, "crop_size": {}}'),
            None,
        ),
    ],
)
def test_a_model_that_is_more_than_data_or_less_than_one_is_refused(model, tmp_path, change, told):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    change(copy)
    encoder = image_encoder(str(copy))
    if told is None:
        # A description that says nothing of sizes leaves those of ImageNet.
        assert features(encoder, Image.new("RGB", (3, 3))).shape == (1, 8)
        return
    with pytest.raises(FormatError) as caught:
        features(encoder, Image.new("RGB", (3, 3)))
    assert told in one_line(caught.value)


def test_what_is_not_installed_or_not_there_is_refused():
    for name in ("package:no-such-package-at-all", "no/such/folder"):
        with pytest.raises(InputError):
            _ = image_encoder(name).fingerprint
    with pytest.raises(InputError, match="no such model folder"):
        encoder_fingerprint("no/such/folder")

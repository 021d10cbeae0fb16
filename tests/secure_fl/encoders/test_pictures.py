"""Hostile and odd images: RGB and upright, or refused in one line. Pillow alone is needed."""

import io
import struct
import zlib

import numpy as np
import pytest

from secure_fl.encoders.pictures import open_picture, read_picture_file
from secure_fl.errors import FormatError, InputError
from tests.secure_fl.shared import one_line

Image = pytest.importorskip("PIL.Image", reason="needs the extra `images`")


def stored(picture, kind="PNG", **options):
    found = io.BytesIO()
    picture.save(found, kind, **options)
    return found.getvalue()


def opened(content, tmp_path):
    found = open_picture(tmp_path / "a.png", content)
    return np.asarray(found.resized(found.size, Image.Resampling.BOX))


def refusal(content, tmp_path):
    with pytest.raises(FormatError) as caught:
        opened(content, tmp_path)
    assert isinstance(caught.value, InputError)
    return one_line(caught.value).removeprefix(f"{tmp_path}/")


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, body, *more):
    """A PNG of eight-bit greys by hand, for what no writer would write."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_a_picture_is_read_as_it_was_stored(tmp_path, kind):
    pixels = noise(5, 7, 3)
    lossless = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(
        opened(stored(Image.fromarray(pixels), kind, **lossless), tmp_path), pixels
    )


def test_a_turned_photo_stands_upright(tmp_path):
    """Orientation 6 is a camera turned to the right: rows were stored as columns."""
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    found = opened(stored(Image.fromarray(pixels), "JPEG", exif=exif, quality=95), tmp_path)
    assert found.shape == (16, 8, 3)
    assert found[:8].min() > 240
    assert found[8:].max() < 15


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    deep = np.array([[0, 257, 65_535, 32_896]], np.uint16)
    found = opened(stored(Image.fromarray(deep)), tmp_path)
    assert found[0].tolist() == [[v] * 3 for v in (0, 1, 255, 128)]


def test_cmyk_becomes_rgb(tmp_path):
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    found = opened(stored(red, "JPEG", quality=95), tmp_path)
    assert found.shape == (8, 8, 3)
    assert np.abs(found.astype(int) - [255, 0, 0]).max() < 12


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_on_white(tmp_path, mode):
    picture = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode if mode != "P" else "RGBA")
    options = {}
    if mode == "P":
        picture, options = Image.new("P", (4, 4), 0), {"transparency": 0}
    assert (opened(stored(picture, **options), tmp_path) == 255).all()


def test_grey_and_black_and_white_become_three_colours(tmp_path):
    assert opened(stored(Image.new("L", (2, 2), 9)), tmp_path).tolist() == [[[9] * 3] * 2] * 2
    assert opened(stored(Image.new("1", (2, 2), 1)), tmp_path).min() == 255


def test_of_an_animation_the_first_picture_counts(tmp_path):
    frames = [Image.new("L", (4, 4), value) for value in (40, 200)]
    content = stored(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert opened(content, tmp_path).max() == 40


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """The header says 2.5 gigapixels; a row of it is all that there is."""
    body = chunk(b"IDAT", zlib.compress(bytes(50_001)))
    told = refusal(png(50_000, 50_000, body), tmp_path)
    assert told == "a.png: more than 64,000,000 pixels; make it smaller"


def test_a_bomb_in_a_comment_is_refused(tmp_path):
    """A compressed comment that unpacks to 100 MB; Pillow's own cap is 64 MB in all, 1 MB each."""
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000)))
    body = chunk(b"IDAT", zlib.compress(b"\0\7"))
    content = png(1, 1, body, text)
    assert len(content) < 200_000
    assert refusal(content, tmp_path).startswith("a.png: damaged or truncated image (")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
def test_a_truncated_image_is_refused(tmp_path, kind):
    whole = stored(Image.fromarray(noise(40, 40, 3)), kind)
    for share in (0.3, 0.6, 0.9):
        told = refusal(whole[: int(share * len(whole))], tmp_path)
        assert told.endswith("copy it again or remove it") or "no image of a known" in told


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"<svg/>", b"%PDF-1.4", b"%!PS-Adobe"])
def test_what_is_no_image_is_refused(tmp_path, content):
    assert refusal(content, tmp_path).startswith("a.png: no image of a known format (JPEG, PNG,")


def test_greys_that_are_no_sixteen_bits_are_refused(tmp_path):
    deep = Image.fromarray(np.array([[0.5, 7.0]], np.float32))
    assert "grey values of floating point" in refusal(stored(deep, "TIFF"), tmp_path)
    wide = Image.fromarray(np.array([[0, 70_000]], np.int32))
    assert "outside of 0 to 65535" in refusal(stored(wide, "TIFF"), tmp_path)


def test_a_changed_image_is_read_or_refused(tmp_path):
    """Any other error would be a defect."""
    rng = np.random.default_rng(1)
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"):
        whole = stored(Image.fromarray(noise(12, 12, 3)), kind)
        for _ in range(60):
            changed = bytearray(whole)
            for place in rng.integers(0, len(whole), 3):
                changed[place] = rng.integers(256)
            try:
                assert opened(bytes(changed), tmp_path).shape[2] == 3
            except FormatError as error:
                one_line(error)


def test_files_of_no_size_and_of_none_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    for name, told in (("a", "0 bytes, expected 1 to"), ("b", "no such image"), (".", "no such")):
        with pytest.raises(FormatError, match=told):
            read_picture_file(tmp_path / name)

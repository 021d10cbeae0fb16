"""Large and hostile pictures take less than 200 MB beside their file, and are read as small ones.

Pictures are real ones at the bounds of their format, read in a process of their own.
"""

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from secure_fl.encoders import pictures
from secure_fl.encoders.decoding import MAX_PIXELS, MAX_SIDE
from secure_fl.encoders.pictures import open_picture
from secure_fl.errors import FormatError
from tests.secure_fl.encoders.test_pictures import chunk, noise, png, stored
from tests.secure_fl.shared import one_line

Image = pytest.importorskip("PIL.Image", reason="needs the extra `images`")
ImageOps = pytest.importorskip("PIL.ImageOps", reason="needs the extra `images`")
BOX, BICUBIC = Image.Resampling.BOX, Image.Resampling.BICUBIC
MODES = ("1", "L", "I;16", "LA", "P", "RGB", "RGBA", "CMYK")
MOST = 200_000_000
READING = """
import resource, sys
from pathlib import Path
from PIL import Image
from secure_fl.encoders.image import PixelEncoder
from secure_fl.encoders.pictures import open_picture

Image.init()
contents = [Path(path).read_bytes() for path in sys.argv[1:]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for content in contents:
    PixelEncoder(128).prepare(open_picture(Path("a"), content))
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def transparent_png(width, height):
    """A turned PNG of zeros, packed row by row."""
    packer, row = zlib.compressobj(1), bytes(1 + 4 * width)
    body = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    exif = turned(6).tobytes().removeprefix(b"Exif\0\0")
    parts = [(b"IHDR", header), (b"eXIf", exif), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def blank(mode, width, height, kind, **options):
    return stored(Image.new(mode, (width, height)), kind, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: transparent_png(7_150, 5_500),
        # 50.1 megapixels, as telephones' cameras have.
        lambda: blank("CMYK", 8_160, 6_144, "JPEG", exif=turned(8)),
        lambda: blank("RGB", 7_000, 3_900, "JPEG", progressive=True, subsampling=0),
        lambda: blank("RGBA", 4_032, 3_024, "WEBP", method=0),
        lambda: blank("RGBA", 6_000, 3_700, "TIFF", compression="tiff_lzw", tiffinfo={278: 3_700}),
    ],
    ids=["transparent and turned", "cmyk and turned", "progressive", "webp", "one strip"],
)
def test_the_largest_picture_of_a_format_takes_less_than_200_mb(make, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", READING, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert int(done.stdout) < MOST


def picture_of(mode):
    """Noise, nearly square; Pillow begins with the columns of pictures that are much taller."""
    pixels = noise(60, 64, 4)
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 251 + pixels[..., 1])
    if mode == "P":
        found = Image.fromarray(pixels[..., 0]).convert("P")
        found.putpalette(noise(768).tobytes())
        return found
    if mode == "CMYK":
        return Image.fromarray(pixels[..., :3]).convert("CMYK")
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", MODES)
def test_rows_at_a_time_give_the_same_pixels_as_the_whole(mode, orientation, monkeypatch):
    content = stored(
        picture_of(mode), "JPEG" if mode == "CMYK" else "PNG", exif=turned(orientation)
    )
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    whole = pictures._rgb(Path("a"), upright)
    found = open_picture(Path("a"), content)
    assert found.size == upright.size
    side = min(upright.size)
    left, top = (upright.width - side) / 2, (upright.height - side) / 2
    middle = (left, top, left + side, top + side)
    monkeypatch.setattr(pictures, "_BAND", 7 * 64)
    for limit in (pictures.STORED, 0):
        monkeypatch.setattr(pictures, "STORED", limit)
        for size, method, box in (
            ((8, 8), BOX, None),
            ((70, 70), BICUBIC, middle),
            ((13, 13), BICUBIC, middle),
        ):
            expected = whole.resize(size, method, box)
            assert np.array_equal(found.resized(size, method, box), expected), (limit, size)


def refusal(content):
    with pytest.raises(FormatError) as caught:
        open_picture(Path("a.png"), content)
    return one_line(caught.value)


def with_size(content, marker, width, height, **changes):
    """A JPEG whose header claims a size; `scan` claims the components of its first scan."""
    place = content.index(marker) + 5
    found = bytearray(content)
    found[place : place + 4] = struct.pack(">HH", height, width)
    if "scan" in changes:
        found[content.index(b"\xff\xda") + 4] = changes["scan"]
    return bytes(found)


def test_claims_beyond_the_bounds_are_refused_before_a_pixel_is_decoded():
    body = chunk(b"IDAT", zlib.compress(bytes(9)))
    assert refusal(png(9_000, 8_000, body)) == (
        f"a.png: 9,000 x 8,000 pixels, as this PNG at most {MAX_PIXELS:,} in all; make it smaller"
    )
    assert refusal(png(1, 50_000_000, body)) == (
        f"a.png: 1 x 50,000,000 pixels, a side has at most {MAX_SIDE:,}; make it smaller"
    )
    small = blank("RGB", 16, 16, "JPEG", subsampling=0)
    # What several scans keep of it would be 300 MB, whatever the size that it is decoded at.
    several = refusal(with_size(small, b"\xff\xc0", 8_000, 6_000, scan=1))
    assert several.startswith("a.png: 8,000 x 6,000 pixels, as this JPEG at most 28,")
    progressive = blank("RGB", 16, 16, "JPEG", subsampling=0, progressive=True)
    assert refusal(with_size(progressive, b"\xff\xc2", 8_000, 6_000)) == several
    webp = bytearray(blank("RGB", 16, 16, "WEBP"))
    webp[26:30] = struct.pack("<HH", 5_000, 5_000)
    assert "as this WEBP at most 12," in refusal(bytes(webp))

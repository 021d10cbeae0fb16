"""Image files that anybody may have made, opened as eight-bit RGB or refused in one line.

Only common formats are tried, sizes are checked before a pixel is decoded, and turns that cameras
note in EXIF are made. Sixteen-bit greys are scaled down, transparency is laid on white, of
animations the first picture counts.
"""

import struct
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secure_fl.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""Endings of files that are taken for images; what they are, their content says."""
MAX_BYTES = 64 * 2**20
MAX_PIXELS = 50_000_000
"""Of a picture: 150 MB as RGB, and more than any camera's that an encoder needs."""
_TOP = 65_535
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError)


def check_pillow() -> None:
    """Raises MissingExtraError unless Pillow is installed."""
    try:
        import PIL  # noqa: F401  # asked for by its presence alone
    except ImportError:
        raise MissingExtraError(
            "images need Pillow, which is not installed; run pip install 'securefl[images]'"
        ) from None


def open_picture(path: Path, content: bytes) -> "Image":
    """The picture in a file's content: RGB, upright.

    Args:
        path: of the file, for messages.
        content: its bytes.

    Raises:
        FormatError: no image of a known format, damaged or truncated, too many pixels, or values
            that are no grey or colour.
        MissingExtraError: Pillow is not installed.
    """
    check_pillow()
    from io import BytesIO

    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow warns of pictures that it thinks large; the cap here is lower.
            warnings.simplefilter("ignore")
            with Image.open(BytesIO(content), formats=FORMATS) as picture:
                _check_size(path, picture.size)
                picture.load()
                return _rgb(path, ImageOps.exif_transpose(picture))
    except FormatError:
        raise
    except Image.DecompressionBombError:
        raise FormatError(f"{path}: more than {MAX_PIXELS:,} pixels; make it smaller") from None
    except UnidentifiedImageError:
        raise FormatError(
            f"{path}: no image of a known format ({', '.join(FORMATS)}); convert or remove it"
        ) from None
    except (*_BROKEN, struct.error, zlib.error, OverflowError, MemoryError) as error:
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise FormatError(
            f"{path}: damaged or truncated image ({told[0][:100]}); copy it again or remove it"
        ) from None


def read_picture_file(path: Path) -> bytes:
    """The bytes of an image file.

    Raises:
        FormatError: absent, no regular file, empty, or larger than `MAX_BYTES`.
    """
    if not path.is_file():
        raise FormatError(f"{path}: no such image file; correct its name or copy it there")
    size = path.stat().st_size
    if not 0 < size <= MAX_BYTES:
        raise FormatError(f"{path}: {size:,} bytes, expected 1 to {MAX_BYTES:,}; replace the image")
    return path.read_bytes()


def _check_size(path: Path, size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise FormatError(
            f"{path}: {width:,} x {height:,} pixels, at most {MAX_PIXELS:,} in all; make it smaller"
        )


def _rgb(path: Path, picture: "Image") -> "Image":
    from PIL import Image

    if picture.mode == "F" or picture.mode.startswith("I"):
        return _from_deep(path, np.asarray(picture))
    if picture.mode == "P" or "transparency" in picture.info:
        picture = picture.convert("RGBA")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")


def _from_deep(path: Path, values: Any) -> "Image":
    """Greys of sixteen bits; Pillow's own conversion would cut them off at 255."""
    from PIL import Image

    if values.dtype.kind == "f":
        raise FormatError(f"{path}: grey values of floating point; store it with 8 or 16 bits")
    if values.min() < 0 or values.max() > _TOP:
        raise FormatError(f"{path}: grey values outside of 0 to {_TOP}; store it with 8 or 16 bits")
    eight = ((values.astype(np.uint32) * 255 + _TOP // 2) // _TOP).astype(np.uint8)
    return Image.fromarray(eight).convert("RGB")

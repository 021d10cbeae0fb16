"""Image files that anybody may have made, opened as eight-bit RGB or refused in one line.

Only common formats are tried, sizes are checked before a pixel is decoded, and turns that cameras
note in EXIF are made. Sixteen-bit greys are scaled down, transparency is laid on white, of
animations the first picture counts.
"""

import math
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secure_fl.encoders.decoding import (
    BYTES,
    MAX_PIXELS,
    STORED,
    bound_decoding,
    bytes_of_pixel,
)
from secure_fl.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling, Transpose

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""Endings of files that are taken for images; what they are, their content says."""
MAX_BYTES = 64 * 2**20
_TOP = 65_535
_BAND = 1 << 18
"""Pixels that are converted and resized at a time, at a few bytes each."""
_SUPPORT = 3
"""Pixels that a resampling filter of Pillow reaches to each side, before scaling."""
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""Puts a picture upright, by its orientation in EXIF."""
_SIDEWAYS = ("TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
"""Turns after which rows are what columns were."""
_BACKWARDS = ("FLIP_TOP_BOTTOM", "ROTATE_180", "TRANSVERSE", "ROTATE_90")
"""Turns after which the first row is the last row, or column, that is stored."""
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError)


def check_pillow() -> None:
    """Raises MissingExtraError unless Pillow is installed."""
    try:
        import PIL  # noqa: F401  # asked for by its presence alone
    except ImportError:
        raise MissingExtraError(
            "images need Pillow, which is not installed; run pip install 'securefl[images]'"
        ) from None


@dataclass(frozen=True, eq=False)
class Picture:
    """A decoded picture, RGB and upright where it is read.

    It stays as it was decoded: Pillow takes four bytes for a pixel of RGB, and a turned or
    converted copy of a large picture would take as much again.

    Attributes:
        path: of its file, for messages.
        stored: as its file has it.
        turn: Pillow's transposition that puts it upright; None if it is.
    """

    path: Path
    stored: "Image"
    turn: "Transpose | None" = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        width, height = self.stored.size
        return (height, width) if self._sideways else (width, height)

    def resized(
        self,
        size: tuple[int, int],
        method: "Resampling",
        box: tuple[float, float, float, float] | None = None,
    ) -> "Image":
        """A part of it, RGB, in another size.

        Where the picture and a copy of it are too large together, its rows are resized a few at a
        time and then its columns. That is what Pillow's `resize` does with the whole, which begins
        with the columns only of pictures much taller than wide.

        Args:
            size: wanted.
            method: of resampling.
            box: part of the upright picture; None for all of it.

        Raises:
            FormatError: colours or greys that cannot be read.
        """
        part = box or (0, 0, *self.size)
        with _told(self.path):
            if self._as_it_is:
                return self.stored.resize(size, method, part)
            width, height = self.size
            if width * height * (BYTES + bytes_of_pixel(self.stored.mode)) <= STORED:
                return self._whole().resize(size, method, part)
            return self._by_rows(size, method, part)

    @property
    def _as_it_is(self) -> bool:
        has_colour_key = "transparency" in self.stored.info
        return self.stored.mode == "RGB" and self.turn is None and not has_colour_key

    def _whole(self) -> "Image":
        from PIL import Image

        found = Image.new("RGB", self.size)
        for start, _, rows in self._bands(0, self.size[1]):
            found.paste(_rgb(self.path, rows), (0, start))
        return found

    def _by_rows(
        self, size: tuple[int, int], method: "Resampling", part: tuple[float, float, float, float]
    ) -> "Image":
        from PIL import Image

        left, top, right, bottom = part
        margin = math.ceil(_SUPPORT * max(1.0, (bottom - top) / size[1])) + 1
        first, last = max(0, int(top) - margin), min(self.size[1], math.ceil(bottom) + margin)
        narrow = Image.new("RGB", (size[0], last - first))
        for start, stop, rows in self._bands(first, last):
            resized = _rgb(self.path, rows).resize(
                (size[0], stop - start), method, (left, 0, right, stop - start)
            )
            narrow.paste(resized, (0, start - first))
        return narrow.resize(size, method, (0, top - first, size[0], bottom - first))

    def check(self) -> None:
        """Refuses greys that are no sixteen bits, wherever in the picture.

        Raises:
            FormatError: so.
        """
        if _is_deep(self.stored):
            for _, _, rows in self._bands(0, self.size[1]):
                _check_deep(self.path, np.asarray(rows))

    @property
    def _sideways(self) -> bool:
        return self.turn is not None and self.turn.name in _SIDEWAYS

    def _bands(self, first: int, last: int) -> "Iterator[tuple[int, int, Image]]":
        """Upright rows from `first` to `last`, a few at a time: where, and what is stored."""
        width, height = self.size
        step = max(1, _BAND // width)
        for start in range(first, last, step):
            stop = min(start + step, last)
            backwards = self.turn is not None and self.turn.name in _BACKWARDS
            low, high = (height - stop, height - start) if backwards else (start, stop)
            box = (low, 0, high, width) if self._sideways else (0, low, width, high)
            rows = self.stored.crop(box)
            yield start, stop, rows if self.turn is None else rows.transpose(self.turn)


def open_picture(path: Path, content: bytes) -> Picture:
    """The picture in a file's content.

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

    from PIL import Image
    from PIL.ExifTags import Base
    from PIL.Image import Transpose

    with _told(path):
        with Image.open(BytesIO(content), formats=FORMATS) as opened:
            bound_decoding(path, opened, content)
            opened.load()
            turn = _TURNS.get(opened.getexif().get(Base.Orientation, 1))
        # What is opened as WebP keeps its decoder with two more pictures.
        stored = opened.copy() if opened.format == "WEBP" else opened
        found = Picture(path, stored, None if turn is None else Transpose[turn])
        found.check()
        return found


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Says in one line what Pillow finds wrong with a file."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow warns of pictures that it thinks large; the bounds here are lower.
            warnings.simplefilter("ignore")
            yield
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


def _is_deep(picture: "Image") -> bool:
    return picture.mode == "F" or picture.mode.startswith("I")


def _rgb(path: Path, picture: "Image") -> "Image":
    from PIL import Image

    if _is_deep(picture):
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

    _check_deep(path, values)
    eight = ((values.astype(np.uint32) * 255 + _TOP // 2) // _TOP).astype(np.uint8)
    return Image.fromarray(eight).convert("RGB")


def _check_deep(path: Path, values: Any) -> None:
    if values.dtype.kind == "f":
        raise FormatError(f"{path}: grey values of floating point; store it with 8 or 16 bits")
    if values.min() < 0 or values.max() > _TOP:
        raise FormatError(f"{path}: grey values outside of 0 to {_TOP}; store it with 8 or 16 bits")

"""What decoding a picture takes of memory, bounded before a pixel is decoded.

A header of a few bytes may claim a picture that Pillow decodes into gigabytes. Bytes a pixel are
those that Pillow's decoders take, by format: its own storage, and what some decoders keep beside
it. They are computed from headers, so a picture that would take more than `DECODING` is refused,
or, where it is a JPEG, decoded at half its size, which the format allows.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from secure_fl.errors import FormatError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 64_000_000
"""Of a JPEG; cameras of 50 megapixels have up to 50.4 million."""
MAX_SIDE = 65_535
"""Of a picture, in pixels: a JPEG's largest."""
STORED = 158_000_000
"""Bytes of a picture as it is decoded; resizing takes up to 40 MB beside it."""
DECODING = 198_000_000
"""Bytes that a picture and its decoder take together."""
BYTES = 4
"""Of a pixel as Pillow stores RGB and most other modes."""
_GREYS = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
_WEBP = 16
"""The decoder's two canvases, the picture handed over, and Pillow's own."""
_COEFFICIENT = 2
_BITS, _ORIENTATION, _SAMPLES, _ROWS_PER_STRIP = 258, 274, 277, 278
_TILE_WIDTH, _TILE_LENGTH = 322, 323
"""Tags of TIFF 6.0."""
_UNCOMPRESSED = "raw"
_SCAN, _STANDALONE = 0xDA, {0x01, *range(0xD0, 0xD9)}
"""JPEG's marker of a scan, and those without a length (ITU T.81, table B.1)."""


def bound_decoding(path: Path, picture: "ImageFile", content: bytes) -> None:
    """Refuses an open picture that would take too much, or has it decoded at half its size.

    Args:
        path: of the file, for messages.
        picture: opened, nothing of it decoded.
        content: the file's bytes.

    Raises:
        FormatError: too many pixels for its format.
    """
    width, height = picture.size
    if max(width, height) > MAX_SIDE:
        raise FormatError(
            f"{path}: {width:,} x {height:,} pixels, a side has at most {MAX_SIDE:,}; make it"
            " smaller"
        )
    if picture.format in ("JPEG", "MPO"):
        beside, smallest = _coefficients(picture, content), 2
    else:
        beside, smallest = _beside(picture, len(content)), 1
    for scale in range(1, smallest + 1):
        stored = bytes_of_pixel(picture.mode) / scale**2
        most = min(MAX_PIXELS, int(STORED / stored), int(DECODING / (stored + beside)))
        if width * height <= most:
            if scale > 1:
                picture.draft(None, (width // scale, height // scale))
            return
    raise FormatError(
        f"{path}: {width:,} x {height:,} pixels, as this {picture.format} at most {most:,} in all;"
        " make it smaller"
    )


def bytes_of_pixel(mode: str) -> int:
    """As Pillow stores it."""
    return _GREYS.get(mode, BYTES)


def _beside(picture: "ImageFile", size: int) -> float:
    """Bytes a pixel that a decoder takes beside what it stores."""
    width, height = picture.size
    if picture.format == "WEBP":
        return _WEBP - BYTES + size / (width * height)
    if picture.format == "TIFF":
        return _beside_tiff(picture) / (width * height)
    return 0.0


def _beside_tiff(picture: Any) -> float:
    """Bytes of a strip or tile, which libtiff unpacks whole, and of a copy that Pillow turns."""
    tags, (width, height) = picture.tag_v2, picture.size
    turned = BYTES * width * height if tags.get(_ORIENTATION, 1) != 1 else 0
    if all(tile[0] == _UNCOMPRESSED for tile in picture.tile):
        return turned
    if _TILE_WIDTH in tags or _TILE_LENGTH in tags:
        pixels = int(tags[_TILE_WIDTH]) * int(tags[_TILE_LENGTH])
    else:
        pixels = width * min(height, int(tags.get(_ROWS_PER_STRIP, height)))
    # A colour of subsampled JPEG is unpacked to four bytes, whatever its tags say.
    bits = max(tags.get(_BITS, (8,))) * int(tags.get(_SAMPLES, 1))
    return turned + pixels * max(bits / 8, BYTES)


def _coefficients(picture: Any, content: bytes) -> float:
    """Bytes a pixel of a JPEG's coefficients, which are kept where they come in several scans."""
    layers = picture.layer
    if not picture.info.get("progressive") and _of_first_scan(content) >= len(layers):
        return 0.0
    areas = [across * down for _, across, down, _ in layers]
    largest = max(layer[1] for layer in layers) * max(layer[2] for layer in layers)
    # Without an area the decoder refuses the file.
    return _COEFFICIENT * sum(areas) / max(largest, 1)


def _of_first_scan(content: bytes) -> int:
    """Components of a JPEG's first scan; markers are found as libjpeg finds them."""
    place = 2
    while True:
        place = content.index(b"\xff", place)
        while content[place] == 0xFF:
            place += 1
        marker = content[place]
        place += 1
        if marker == _SCAN:
            return content[place + 2]
        if marker and marker not in _STANDALONE:
            place += int.from_bytes(content[place : place + 2], "big")

"""Client files in NumPy's archive format: arrays X and y, without pickle and with size caps."""

import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data._streams import MAX_BYTES, unreadable
from secure_fl.data.dataset import (
    Dataset,
    Records,
    as_float,
    check_name,
    client_name,
    require_finite,
)
from secure_fl.data.labels import label_text
from secure_fl.errors import ClientError, FeatureError, FormatError, LabelError, whose
from secure_fl.files import new_folder, private_file

_ARRAYS = ("X", "y", "classes", "features", "groups", "schema")
_REQUIRED = ("X", "y")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    struct.error,
    # A member's name that is not the UTF-8 that its flag says.
    UnicodeDecodeError,
)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes. Of other methods zipfile unpacks a piece whole, whatever it unpacks to."""
_PIECE = 2**20
"""Bytes that are read or unpacked at once; a directory of five arrays has fewer than 500."""


def read_npz(
    path: str | Path,
    *,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
    unlabelled: bool = False,
    targets: tuple[str, ...] = (),
) -> Records:
    """Reads arrays X (n, d) and y (n,), and where present classes, features, groups and schema.

    With `classes` (C names), y holds codes into it; without, y holds the labels themselves:
    whole numbers or text. `features` are d names, `groups` n group names, `schema` the digest of
    the schema that the records were prepared by. Other arrays are refused, so that a misspelt name
    is not dropped in silence.

    Args:
        path: the archive, compressed or not; arrays of Python objects are refused.
        name: the client; None takes it from the file's name (`naming.stem`), "" is no client.
        max_bytes: cap on the unpacked size of all arrays together, and on X as float numbers;
            what the archive says of sizes is not believed.
        unlabelled: y may be absent, as in queries.
        targets: names of the columns of y, which are then numbers, of shape (n,) or (n, C).

    Raises:
        FormatError: not such an archive, damaged, over the cap, an unknown or missing array.
        FeatureError: X is not a finite real matrix, holds a whole number that float64 does not, or
            its rows do not match y.
        LabelError: a label is not a whole number or text, a code is out of `classes`, or `classes`
            holds one name twice.
            Targets that are no finite numbers, or not as many as their names.
        ClientError: the name cannot be a client's.
    """
    path = Path(path)
    client = client_name(name, path)
    arrays = _load(path, max_bytes, _REQUIRED[:1] if unlabelled else _REQUIRED)
    _check_floats(path, arrays["X"], max_bytes)
    X = as_float(arrays["X"], client=client, source=str(path))
    y = arrays.get("y")
    wanted = None if y is None or not targets else _targets(y, X, targets, client, path)
    if wanted is not None:
        y = None
    if y is not None and y.ndim != 1:
        raise LabelError(f"{whose(client)}: y in {path} has shape {y.shape}; give one label a row")
    n = X.shape[0]

    labels = None if y is None else tuple(_labels(y, arrays.get("classes"), client, path))
    records = Records(
        client,
        str(path),
        labels,
        X,
        features=_names(arrays.get("features"), X.shape[1], "features", path),
        groups=_names(arrays.get("groups"), n, "groups", path, unique=False),
        schema=_schema(arrays.get("schema"), path),
        targets=wanted,
    )
    require_finite(records)
    return records


def _targets(
    y: NDArray[Any], X: NDArray[Any], names: tuple[str, ...], client: str, path: Path
) -> NDArray[np.float64]:
    columns = y[:, None] if y.ndim == 1 else y
    if y.dtype.kind not in "iuf" or columns.shape != (len(X), len(names)):
        raise LabelError(
            f"{whose(client)}: y in {path} is {y.dtype} of shape {y.shape}; {len(X)} records and"
            f" the targets {', '.join(names)[:200]} need numbers of shape ({len(X)}, {len(names)})"
        )
    found: NDArray[np.float64] = columns.astype(np.float64)
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        row, column = bad[0]
        raise LabelError(
            f"{whose(client)}: target {names[column]!r} in row {row} of {path} is"
            f" {found[row, column]}; fill it in or remove the record"
        )
    return found


def write_clients(folder: str | Path, datasets: Iterable[Dataset]) -> tuple[Path, ...]:
    """Writes one `NAME.npz` a client; the folder appears complete or not at all.

    The same data sets give the same bytes. The files are readable by their owner only.

    Args:
        folder: absent or empty; parents are made.
        datasets: with distinct names and dense features.

    Returns:
        The files, in the order given.

    Raises:
        InputError: the folder exists and is not empty.
        ClientError: a name twice, or one that cannot be a file's.
        FeatureError: sparse features.
        FormatError: a class, feature or group whose name ends in NUL, which arrays of text lose.
    """
    folder = Path(folder)
    with new_folder(folder) as aside:
        return tuple(folder / path.name for path in fill_clients(aside, datasets, folder))


def fill_clients(aside: Path, datasets: Iterable[Dataset], folder: Path) -> tuple[Path, ...]:
    """As `write_clients`, into what `new_folder` of that folder gave, which is still aside."""
    written: list[Path] = []
    taken: set[str] = set()
    for data in datasets:
        check_name(data.name, str(folder))
        if data.name.casefold() in taken:
            raise ClientError(f'client "{data.name}": twice in {folder}; rename one of them')
        if not isinstance(data.X, np.ndarray):
            raise FeatureError(f'client "{data.name}": sparse features; write X.toarray()')
        taken.add(data.name.casefold())
        _write(aside / f"{data.name}.npz", data)
        written.append(aside / f"{data.name}.npz")
    return tuple(written)


def write_queries(folder: str | Path, datasets: Iterable[Dataset]) -> tuple[Path, ...]:
    """Writes the features alone, one `NAME.npy` a data set; the folder appears complete or not.

    Args:
        folder: absent or empty; parents are made.
        datasets: with distinct names and dense features; their codes mean nothing.

    Returns:
        The files, in the order given.

    Raises:
        InputError: the folder exists and is not empty.
    """
    folder = Path(folder)
    written: list[Path] = []
    with new_folder(folder) as aside:
        for data in datasets:
            with private_file(aside / f"{data.name}.npy") as file:
                np.save(file, data.X)
            written.append(folder / f"{data.name}.npy")
    return tuple(written)


def _write(path: Path, data: Dataset) -> None:
    arrays: dict[str, NDArray[Any]] = {"X": data.X, "y": data.y.astype(np.int32)}
    named = {"classes": data.classes, "features": data.features, "groups": data.groups}
    for what, names in named.items():
        if names is not None:
            arrays[what] = _text_array(names, f"{data.source}: {what}")
    if data.schema:
        arrays["schema"] = np.array([data.schema], dtype=np.str_)
    with private_file(path) as file:
        np.savez(file, **arrays)


def _text_array(names: tuple[str, ...], what: str) -> NDArray[np.str_]:
    array = np.array(names, dtype=np.str_)
    for name, kept in zip(names, array.tolist(), strict=True):
        if name != kept:
            raise FormatError(f"{what} holds {name!r}; leave out the NUL at its end")
    return array


def _load(path: Path, max_bytes: int, required: Sequence[str]) -> dict[str, NDArray[Any]]:
    try:
        with _InPieces(path) as file, zipfile.ZipFile(file) as archive:
            members = _members(path, archive, max_bytes, required)
            return {name: _array(path, archive, info) for name, info in members.items()}
    except _DAMAGED:
        raise FormatError(
            f"{path}: not an npz archive, or damaged; write it with numpy.savez"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


class _InPieces(BufferedReader):
    """A file of which nobody reads more than a piece at once.

    An archive's directory is read at once, of the size that the archive says, and takes ten times
    its size in memory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path))

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(_PIECE + 1 if size is None or size < 0 else min(size, _PIECE + 1))
        if len(found) > _PIECE:
            raise zipfile.BadZipFile("a directory that is too large")
        return found


def _members(
    path: Path, archive: zipfile.ZipFile, max_bytes: int, required: Sequence[str]
) -> dict[str, zipfile.ZipInfo]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    for name in required:
        if name not in members:
            found = ", ".join(sorted(members)[:8]) or "nothing"
            raise FormatError(f"{path}: no array {name} (found {found}); store X and y")
    foreign = sorted(set(members) - set(_ARRAYS))
    if foreign or len(members) != len(archive.infolist()):
        what = f"array {foreign[0]!r}" if foreign else "an array twice"
        raise FormatError(f"{path}: {what}; an npz client file holds {', '.join(_ARRAYS)} only")
    total = sum(info.file_size for info in members.values())
    if total > max_bytes:
        raise FormatError(
            f"{path}: {total:,} bytes unpacked, the cap is {max_bytes:,}; split the file or raise"
            " max_bytes"
        )
    return members


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    if info.flag_bits & 1:
        raise FormatError(f"{path}: encrypted archive; write it with numpy.savez")
    if info.compress_type not in _METHODS:
        raise FormatError(
            f"{path}: {info.filename} is compressed by another method than numpy's; write it with"
            " numpy.savez or numpy.savez_compressed"
        )
    # archive.read would unpack a member whole and then cut it to the size that its header claims.
    content = BytesIO()
    with archive.open(info) as member:
        while piece := member.read(_PIECE):
            content.write(piece)
    if content.tell() != info.file_size:
        raise zipfile.BadZipFile("a member that ends early")
    content.seek(0)
    return _array_in(content, f"{path}: {info.filename}")


def _check_floats(path: Path, X: NDArray[Any], max_bytes: int) -> None:
    size = X.size * (4 if X.itemsize <= 2 or X.dtype == np.float32 else 8)
    if size > max_bytes:
        raise FormatError(
            f"{path}: X of shape {X.shape} has {size:,} bytes as float numbers, the cap is"
            f" {max_bytes:,}; split the file or raise max_bytes"
        )


def array_of(content: bytes, source: str) -> NDArray[Any]:
    """One array of NumPy's format; its header must promise exactly the bytes that follow it.

    Args:
        content: of a `.npy` file.
        source: whose it is, for messages.

    Raises:
        FormatError: damaged, or an array of Python objects or of values of size 0.
    """
    return _array_in(BytesIO(content), source)


def _array_in(stream: BytesIO, source: str) -> NDArray[Any]:
    try:
        shape, fortran, dtype = _header(stream)
    # What evaluating a header's text raises is for NumPy to choose.
    except (ArithmeticError, LookupError, RecursionError, SyntaxError, TokenError) as error:
        raise FormatError(f"{source} is not a NumPy array or is damaged") from error
    except (MemoryError, TypeError, ValueError) as error:
        raise FormatError(f"{source} is not a NumPy array or is damaged") from error
    if dtype.hasobject:
        raise FormatError(
            f"{source} holds Python objects, which are never loaded; store numbers or text"
        )
    body = stream.getbuffer()[stream.tell() :]
    if any(size < 0 for size in shape) or int(np.prod(shape, dtype=object)) * dtype.itemsize != len(
        body
    ):
        raise FormatError(f"{source} is truncated or its header is wrong")
    if dtype.itemsize == 0:
        raise FormatError(f"{source} holds values of size 0; store numbers or text")
    if dtype.kind == "U":
        points = np.frombuffer(body, f"{dtype.str[0]}u4")
        if points.max(initial=0) > sys.maxunicode:
            raise FormatError(f"{source} holds text with characters that do not exist")
    flat = np.frombuffer(body, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    # numpy ships these three functions without types.
    version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)  # type: ignore[no-untyped-call]
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)  # type: ignore[no-untyped-call]
    raise ValueError(f"array format {version}")


def _labels(y: NDArray[Any], classes: NDArray[Any] | None, client: str, path: Path) -> list[str]:
    def where(row: int) -> str:
        return f"row {row} of {path}"

    if classes is None:
        return label_text(y, client=client, where=where)
    if classes.ndim != 1:
        raise LabelError(f"{path}: classes has shape {classes.shape}; give one name a class")
    names = label_text(classes, client=client, where=lambda i: f"classes[{i}] of {path}")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise LabelError(f'{path}: classes holds "{twice}" twice; name each class once')
    if y.dtype.kind not in "iu":
        raise LabelError(
            f"{whose(client)}: y is of type {y.dtype} beside classes in {path}; store codes"
        )
    wrong = np.flatnonzero((y < 0) | (y >= len(names)))
    if wrong.size:
        first = int(wrong[0])
        raise LabelError(
            f"{whose(client)}: code {y[first]} in {where(first)}, classes has"
            f" {len(names)} entries; store codes from 0"
        )
    return [names[code] for code in y.tolist()]


def _schema(values: NDArray[Any] | None, path: Path) -> str:
    if values is None:
        return ""
    digest = str(values[0]) if values.shape == (1,) and values.dtype.kind == "U" else ""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise FormatError(f"{path}: schema holds no digest; prepare the file again")
    return digest


def _names(
    values: NDArray[Any] | None, count: int, what: str, path: Path, *, unique: bool = True
) -> tuple[str, ...] | None:
    if values is None:
        return None
    if values.dtype.kind not in "Uiu" or values.shape != (count,):
        raise FormatError(
            f"{path}: {what} is {values.dtype} of shape {values.shape}; store {count} names"
        )
    names = tuple(str(value) for value in values.tolist())
    if any("\0" in name for name in names):
        raise FormatError(f"{path}: {what} holds a name with a NUL; leave it out")
    if unique and len(set(names)) < count:
        raise FormatError(f"{path}: {what} holds a name twice; name each column once")
    return names

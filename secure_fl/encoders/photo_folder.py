"""A folder of photos with labels: a csv that names file and label, or a folder a class."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from secure_fl.data.dataset import check_name
from secure_fl.data.schemas.raw import RawTable, read_raw
from secure_fl.encoders.pictures import SUFFIXES
from secure_fl.errors import FormatError, LabelError

FILE, CLIENT = "file", "client"
"""Columns of a file of labels."""


@dataclass(frozen=True)
class Photo:
    """One labelled image.

    Attributes:
        path: of the file.
        label: its class.
        client: whose it is.
    """

    path: Path
    label: str
    client: str


def is_photo_folder(source: Path) -> bool:
    """Whether a folder holds a folder a class; folders of client files hold none."""
    return source.is_dir() and any(
        each.is_dir() for each in source.iterdir() if not each.name.startswith(".")
    )


def photos_of(
    folder: Path,
    labels: Path | None,
    *,
    label_column: str = "label",
    remark: Callable[[str], None],
) -> list[Photo]:
    """The photos of a folder, in the order of their names.

    Args:
        folder: of one client, called as the folder; or of several, where the labels say so.
        labels: a csv file with the columns `file` (a path below the folder), the label, and perhaps
            `client`; None for a folder a class.
        label_column: the column with the class.
        remark: receives a line for files that were left out.

    Raises:
        FormatError: no photos; a file that is listed twice, lies outside of the folder or is not
            there; or the csv cannot be read.
        LabelError: an empty label.
        ClientError: a name that cannot be a client's.
    """
    if not folder.is_dir():
        raise FormatError(f"{folder}: no folder; name the one with the photos")
    found = _by_class(folder, remark) if labels is None else _listed(folder, labels, label_column)
    if labels is not None:
        _remark_unlisted(folder, {photo.path for photo in found}, labels, remark)
    if not found:
        raise FormatError(f"{folder}: no images ({', '.join(SUFFIXES)}); put some there")
    return sorted(found, key=lambda photo: (photo.client, photo.path.as_posix()))


def _by_class(folder: Path, remark: Callable[[str], None]) -> list[Photo]:
    client = check_name(folder.resolve().name, str(folder))
    found, left_out = [], []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_dir() or any(part.startswith(".") for part in parts):
            continue
        if len(parts) < 2 or path.suffix.lower() not in SUFFIXES:
            left_out.append(path)
        else:
            found.append(Photo(path, parts[0].strip(), client))
    if left_out:
        remark(f"{len(left_out)} files left out, no images in a class's folder: {left_out[0]}")
    return found


def _listed(folder: Path, labels: Path, label_column: str) -> list[Photo]:
    raw = read_raw(labels, (FILE, label_column, CLIENT))
    files, classes = (_column(raw, name, labels) for name in (FILE, label_column))
    place = raw.place((CLIENT,))
    owners = None if place is None else raw.cells(place)
    found: list[Photo] = []
    seen: dict[Path, int] = {}
    for i, (name, label) in enumerate(zip(files, classes, strict=True)):
        where = f"{labels}: line {raw.lines[i]}"
        path = _inside(folder, name.strip(), where)
        if path in seen:
            raise FormatError(f"{where}: {name} is in line {seen[path]} already; list it once")
        seen[path] = raw.lines[i]
        if not label.strip():
            raise LabelError(f"{where}: no label for {name}; label the image or remove the line")
        owner = folder.resolve().name if owners is None else owners[i].strip()
        found.append(Photo(path, label.strip(), check_name(owner, where)))
    return found


def _column(raw: RawTable, name: str, labels: Path) -> list[str]:
    place = raw.place((name,))
    if place is None:
        raise FormatError(
            f'{labels}: no column "{name}" (the header has {", ".join(raw.header[:8])}); name the'
            f' image in "{FILE}" and its class in the label column (--label-column)'
        )
    return raw.cells(place)


def _inside(folder: Path, name: str, where: str) -> Path:
    """The file that a csv names, below the folder also after links are followed."""
    path = folder / name.replace("\\", "/")
    if not name or not path.resolve().is_relative_to(folder.resolve()):
        raise FormatError(f"{where}: {name!r} does not lie in {folder}; name a file below it")
    if not path.is_file():
        raise FormatError(f"{where}: {path} is not there; correct the name or remove the line")
    return path


def _remark_unlisted(
    folder: Path, listed: set[Path], labels: Path, remark: Callable[[str], None]
) -> None:
    others = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file() and path not in listed
    ]
    if others:
        remark(f"{len(others)} images left out, {labels} does not list them: {others[0]}")

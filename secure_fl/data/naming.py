"""What a file's name says: its format, its compression, and the client it belongs to."""

from pathlib import Path

LIBSVM_SUFFIXES = (".libsvm", ".svm", ".svmlight")
SUFFIXES = (".npz", ".csv", ".tsv", *LIBSVM_SUFFIXES)
"""Endings that name a format; anything else is LIBSVM text if its first line is."""
COMPRESSED = (".bz2", ".gz", ".xz")


def compression(path: Path) -> str:
    """`.bz2`, `.gz`, `.xz` or nothing, in whatever case the name has it."""
    suffix = path.suffix.lower()
    return suffix if suffix in COMPRESSED else ""


def format_suffix(path: Path) -> str:
    """The ending that names the format, below a compression: `.csv` of A.CSV.GZ; else nothing."""
    suffix = Path(_unpacked(path.name)).suffix.lower()
    return suffix if suffix in SUFFIXES else ""


def stem(path: Path) -> str:
    """The client of a file: its name without a known compression and a known format's ending.

    So `a.csv.gz` is of `a`, and `letter.scale.t.bz2` of `letter.scale.t`, which is another client
    than that of `letter.scale.bz2`.
    """
    name = _unpacked(path.name)
    suffix = format_suffix(path)
    return name[: len(name) - len(suffix)]


def _unpacked(name: str) -> str:
    return name[: len(name) - len(compression(Path(name)))]

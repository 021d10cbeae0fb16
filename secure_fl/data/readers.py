"""Reading client files by their extension: one file, or a folder with one file a client."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from secure_fl.data._streams import COMPRESSED, MAX_BYTES
from secure_fl.data.dataset import Dataset, Records, assemble, check_name
from secure_fl.data.labels import ClassList
from secure_fl.data.libsvm import read_libsvm
from secure_fl.data.npz import read_npz
from secure_fl.data.table import Columns, read_csv, stem
from secure_fl.errors import ClientError, FormatError

LIBSVM_SUFFIXES = (".libsvm", ".svm", ".svmlight")
SUFFIXES = (".npz", ".csv", *LIBSVM_SUFFIXES)


@dataclass(frozen=True)
class ReadOptions:
    """How client files are read.

    Attributes:
        columns: which column of a CSV file is what.
        delimiter: of CSV files.
        n_features: d of LIBSVM files, whose largest index may be below it; None: the largest.
        sparse: keep LIBSVM features sparse.
        max_bytes: cap on each file's unpacked size.
    """

    columns: Columns = field(default_factory=Columns)
    delimiter: str = ","
    n_features: int | None = None
    sparse: bool = False
    max_bytes: int = MAX_BYTES


def read_client(path: str | Path, options: ReadOptions | None = None) -> Records:
    """Reads one client file: .npz, .csv, .libsvm, .svm or .svmlight; text also .bz2 and .gz.

    Args:
        path: the file; the client's name is its name without extensions.
        options: None means `ReadOptions()`.

    Raises:
        FormatError: another extension, or what the format's reader raises.
        FeatureError, LabelError, ClientError: as the format's reader.
    """
    path = Path(path)
    options = options or ReadOptions()
    kind = _kind(path)
    if kind == ".npz":
        return read_npz(path, max_bytes=options.max_bytes)
    if kind == ".csv":
        return read_csv(
            path, options.columns, delimiter=options.delimiter, max_bytes=options.max_bytes
        )
    if kind in LIBSVM_SUFFIXES:
        return read_libsvm(path, options.n_features, options.sparse, max_bytes=options.max_bytes)
    raise FormatError(f"{path}: not a client file; use {', '.join(SUFFIXES)} (text also .bz2, .gz)")


_LEDGERS = (".ledger", ".ledgers")


def client_files(source: str | Path) -> dict[str, Path]:
    """The client files of a folder by client name, sorted.

    Names that start with a dot, and ledgers, are skipped.

    Args:
        source: a folder that holds one file a client and nothing else, or one client's file.

    Raises:
        ClientError: no such folder or file, no file in it, two files of one client, a name that
            cannot be a client's.
        FormatError: something that is not a client file.
    """
    source = Path(source)
    if not source.exists():
        raise ClientError(f"{source}: no such folder; name the folder with one file a client")
    files: dict[str, Path] = {}
    taken: dict[str, Path] = {}
    for path in sorted(source.iterdir()) if source.is_dir() else [source]:
        # Earlier versions kept ledgers of single files beside them; data are no ledgers.
        if path.name.startswith(".") or (source.is_dir() and path.suffix in _LEDGERS):
            continue
        if not path.is_file() or _kind(path) not in SUFFIXES:
            raise FormatError(
                f"{path}: not a client file; use {', '.join(SUFFIXES)} (text also .bz2, .gz) or"
                " move it elsewhere"
            )
        name = check_name(stem(path), str(path))
        other = taken.setdefault(name.casefold(), path)
        if other is not path:
            raise ClientError(
                f'client "{name}": named by both {other} and {path}; rename one of the files'
            )
        files[name] = path
    if not files:
        raise ClientError(f"{source}: no client files; put one file a client there")
    return dict(sorted(files.items()))


def read_clients(
    source: str | Path,
    options: ReadOptions | None = None,
    *,
    classes: ClassList | None = None,
    n_features: int | None = None,
    features: tuple[str, ...] | None = None,
    manifest: str = "federation.json",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Dataset, ...]:
    """Reads a folder with one file a client, or one client's file, and codes the labels.

    Args:
        source: as `client_files`.
        options: as `read_client`.
        classes, n_features, features, manifest: as `assemble`; LIBSVM files are read with
            `n_features` unless the options say otherwise.
        progress: called with files read and files in all.

    Returns:
        One data set a client, sorted by name.

    Raises:
        InputError: as `client_files`, `read_client` and `assemble`.
    """
    files = client_files(source)
    options = options or ReadOptions()
    if options.n_features is None and n_features is not None:
        options = replace(options, n_features=n_features)
    records = []
    for done, path in enumerate(files.values(), start=1):
        records.append(read_client(path, options))
        if progress is not None:
            progress(done, len(files))
    return assemble(
        records, classes=classes, n_features=n_features, features=features, manifest=manifest
    )


def _kind(path: Path) -> str:
    """The extension below a compression suffix: .csv of a.csv.gz."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSED:
        inner = Path(path.stem).suffix.lower()
        # An npz archive is compressed inside; outside it would be unpacked twice.
        return "" if inner == ".npz" else inner
    return suffix

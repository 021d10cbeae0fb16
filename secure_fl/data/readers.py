"""Reading client files by their extension: one file, or a folder with one file a client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from secure_fl.data._streams import MAX_BYTES
from secure_fl.data.assembly import assemble
from secure_fl.data.dataset import Dataset, Records, check_name
from secure_fl.data.labels import ClassList
from secure_fl.data.libsvm import looks_like_libsvm, read_libsvm
from secure_fl.data.naming import (
    COMPRESSED,
    LIBSVM_SUFFIXES,
    SUFFIXES,
    compression,
    format_suffix,
    stem,
)
from secure_fl.data.npz import read_npz
from secure_fl.data.table import Columns, read_csv, read_table
from secure_fl.data.targets import TargetSet, assemble_targets, labels_as_numbers
from secure_fl.errors import ClientError, FeatureError, FormatError


@dataclass(frozen=True)
class ReadOptions:
    """How client files are read.

    Attributes:
        columns: which column of a CSV file is what.
        delimiter: of CSV files; None takes the one that the header uses.
        n_features: d of LIBSVM files, whose largest index may be below it; None: the largest.
        public_width: whether d must be said: whose largest index it is tells about the records.
        sparse: keep LIBSVM features sparse.
        max_bytes: cap on each file's unpacked size.
    """

    columns: Columns = field(default_factory=Columns)
    delimiter: str | None = None
    n_features: int | None = None
    public_width: bool = False
    sparse: bool = False
    max_bytes: int = MAX_BYTES


def read_client(path: str | Path, options: ReadOptions | None = None) -> Records:
    """Reads one client file: .npz, .csv, .tsv, or LIBSVM text; text also .bz2, .gz and .xz.

    LIBSVM text is what ends in .libsvm, .svm or .svmlight, and any file of another ending or of
    none whose first line is `label index:value ...`. The case of endings does not matter.

    Args:
        path: the file; the client is called as the file without the endings that say its format
            and compression: `w7a` of w7a.bz2, `letter.scale.t` of letter.scale.t.bz2.
        options: None means `ReadOptions()`.

    Raises:
        FormatError: another extension, or what the format's reader raises.
        FeatureError: as the format's reader, or a LIBSVM file whose d must be said and is not.
        LabelError, ClientError: as the format's reader.
    """
    return _read(Path(path), options or ReadOptions(), None, all_ignored=True)


def read_records(
    path: str | Path,
    options: ReadOptions | None = None,
    *,
    all_ignored: bool = True,
    unlabelled: bool = False,
) -> Records:
    """Reads a file of records that are no client's, such as queries: any name will do.

    Args:
        path: the file, as `read_client`.
        options: None means `ReadOptions()`.
        all_ignored: whether every column to ignore must be there.
        unlabelled: whether labels may be absent, but for a label column that the options name;
            lines of LIBSVM text have a label always.

    Raises:
        FormatError, FeatureError, LabelError: as `read_client`.
    """
    options = options or ReadOptions()
    if unlabelled and (options.columns.targets or options.columns.label == Columns().label):
        options = replace(options, columns=replace(options.columns, unlabelled=True))
    return _read(Path(path), options, "", all_ignored=all_ignored)


def _read(path: Path, options: ReadOptions, name: str | None, *, all_ignored: bool) -> Records:
    kind = format_suffix(path)
    # An npz archive is compressed inside; outside it would be unpacked twice.
    if kind == ".npz" and not compression(path):
        unlabelled = options.columns.unlabelled
        return read_npz(
            path,
            name=name,
            max_bytes=options.max_bytes,
            unlabelled=unlabelled,
            targets=options.columns.targets,
        )
    if kind in (".csv", ".tsv"):
        read = read_csv if all_ignored else read_table
        return read(
            path,
            options.columns,
            delimiter=options.delimiter,
            name=name,
            max_bytes=options.max_bytes,
        )
    if _is_libsvm(path, kind):
        if options.public_width and options.n_features is None:
            raise FeatureError(
                f"{path}: LIBSVM files do not say how many features there are, and the largest"
                " index of private records must not; give the public number (--features, or the"
                " setting features)"
            )
        found = read_libsvm(
            path,
            options.n_features,
            options.sparse,
            name=name,
            max_bytes=options.max_bytes,
            numbers=bool(options.columns.targets),
        )
        return labels_as_numbers(found, options.columns.targets)
    raise _foreign(path, "")


def _is_libsvm(path: Path, kind: str) -> bool:
    return kind in LIBSVM_SUFFIXES or (not kind and looks_like_libsvm(path))


def _foreign(path: Path, more: str) -> FormatError:
    kinds, packed = ", ".join(SUFFIXES), ", ".join(COMPRESSED)
    return FormatError(
        f"{path}: not a client file; use {kinds} (text also {packed}) or LIBSVM text with another"
        f" ending{more}"
    )


def width_is_private(source: str | Path) -> bool:
    """Whether LIBSVM files alone decide how many features a folder's clients have.

    Raises:
        InputError: as `client_files`.
    """
    files = client_files(source).values()
    return all(_is_libsvm(path, format_suffix(path)) for path in files)


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
        kind = format_suffix(path)
        packed = kind == ".npz" and compression(path)
        if not path.is_file() or packed or not (kind or _is_libsvm(path, kind)):
            raise _foreign(path, "; or move it elsewhere")
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
        InputError: as `client_files`, `read_client` and `assemble`; or a column to ignore is in
            none of the files (in some of them is enough).
    """
    files = client_files(source)
    options = options or ReadOptions()
    if options.n_features is None and n_features is not None:
        options = replace(options, n_features=n_features)
    records = read_all(list(files.values()), options, progress)
    return assemble(
        records, classes=classes, n_features=n_features, features=features, manifest=manifest
    )


def read_targets(
    source: str | Path,
    options: ReadOptions,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[TargetSet, ...]:
    """As `read_clients`, of files whose targets (`options.columns.targets`) are numbers.

    Raises:
        InputError: as `client_files`, `read_client` and `assemble_targets`.
    """
    records = read_all(list(client_files(source).values()), options, progress)
    return assemble_targets(records, options.columns.targets)


def read_all(
    files: Sequence[Path],
    options: ReadOptions,
    progress: Callable[[int, int], None] | None = None,
) -> list[Records]:
    """Client files of one federation; a column to ignore need not be in all of them.

    Args:
        files: one a client.
        options: as `read_client`.
        progress: called with files read and files in all.

    Raises:
        InputError: as `read_client`; or a column to ignore is in none of the files.
    """
    records = []
    for done, path in enumerate(files, start=1):
        records.append(_read(path, options, None, all_ignored=False))
        if progress is not None:
            progress(done, len(files))
    _check_ignored(records, options.columns)
    return records


def _check_ignored(records: Sequence[Records], columns: Columns) -> None:
    """Refuses a column to ignore that no file has: misspelt, it would stay a feature unnoticed.

    Raises:
        FormatError: names the column.
    """
    headers = [set(each.header) for each in records if each.header is not None]
    if columns.ignore and not headers:
        raise FormatError(
            f'{records[0].source}: no column "{columns.ignore[0]}" to ignore: none of the files is'
            f" csv; leave out --ignore-column {columns.ignore[0]}"
        )
    for column in columns.ignore:
        if not any(column in header for header in headers):
            raise FormatError(
                f'{records[0].source}: no column "{column}" to ignore, nor in any other of'
                f" {len(headers)} csv files; correct or leave out --ignore-column {column}"
            )

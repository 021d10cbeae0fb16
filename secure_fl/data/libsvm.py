"""Client files in LIBSVM's text format: `label index:value ...`, indices from 1, ascending."""

import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from secure_fl.data._streams import MAX_BYTES, beginning, read_unmarked
from secure_fl.data.dataset import Records, client_name, require_finite
from secure_fl.data.numerals import is_rounded, large
from secure_fl.errors import FeatureError, FormatError, LabelError, whose

_MOST_DIGITS = 100
"""Of a label: 1e999999999 is one line in a file and a gigabyte as a number."""
_LINE = re.compile(rb"\s*([^\s:]+)((?:\s+[0-9]+:[^\s:]+)*)\s*")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# Said in full, so that they reach the check that names them as not finite.
_NUMBERED = re.compile(rb"\s*[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?(?:\s+[0-9]+:[^\s:]+)*\s*")
_SPECIAL = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def looks_like_libsvm(path: Path) -> bool:
    """Whether the lines up to the first with features are `label index:value ...`.

    The format's usual files have endings of their own or none: `w7a`, `letter.scale.t.bz2`.

    Raises:
        FormatError: the file cannot be read.
    """
    for line in beginning(path).split(b"\n"):
        line = line.partition(b"#")[0]
        if not line or line.isspace():
            continue
        if not _NUMBERED.fullmatch(line):
            return False
        if b":" in line:
            return True
    return False


def read_libsvm(
    path: str | Path,
    n_features: int | None = None,
    sparse: bool = False,
    *,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
    numbers: bool = False,
) -> Records:
    """Reads LIBSVM text (UTF-8); blank lines and what follows a # are skipped.

    Args:
        path: the file; .bz2, .gz and .xz are unpacked.
        n_features: d; a larger index is refused. None takes the largest index present, which
            may be fewer features than another file of the same data set has.
        sparse: features as `scipy.sparse.csr_array` instead of a dense matrix.
        name: the client; None takes it from the file's name (`naming.stem`), "" is no client.
        max_bytes: cap on the unpacked file, and on the dense matrix.
        numbers: labels are numbers to be predicted, and kept as they are written.

    Returns:
        Records with float64 features; labels are whole numbers as text ("+1" becomes "1").

    Raises:
        FormatError: names the line: an index below 1, not above the one before it, or above
            n_features; a label or value that is not a number; a damaged archive; over the cap.
        FeatureError: a value is not finite, or a whole number that float64 does not hold.
        LabelError: a label is not a whole number.
        ClientError: the name cannot be a client's.
    """
    path = Path(path)
    client = client_name(name, path)
    labels, starts, body, lines = _lines(path, read_unmarked(path, max_bytes))
    columns, values = _pairs(client, path, starts, body, lines)
    _check_indices(path, columns, starts, lines, n_features)
    width = n_features or int(columns.max(initial=0))
    if width == 0:
        raise FormatError(f"{path}: no features in {len(lines)} lines; name their number")
    if numbers:
        texts = [label.decode("utf-8", "replace") for label in labels]
    else:
        texts = _labels(client, path, labels, lines)
    X = _csr(values, columns - 1, starts, width)
    if not sparse:
        if 8 * len(lines) * width > max_bytes:
            raise FormatError(
                f"{path}: {len(lines)} records of {width} features are over {max_bytes:,} bytes;"
                " read with sparse=True"
            )
        X = X.toarray()
    records = Records(
        client,
        str(path),
        tuple(texts),
        X,
        lines=np.array(lines, dtype=np.int64),
        open_width=n_features is None,
    )
    require_finite(records)
    return records


def _lines(
    path: Path, content: bytes
) -> tuple[list[bytes], NDArray[np.int64], list[bytes], list[int]]:
    """Labels, the offset of each record's first pair, the records' pairs, and line numbers."""
    labels: list[bytes] = []
    body: list[bytes] = []
    counts = [0]
    numbers: list[int] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.partition(b"#")[0]
        if not line or line.isspace():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            _explain(path, number, line)
        label, pairs = match.groups()
        labels.append(label)
        body.append(pairs)
        counts.append(pairs.count(b":"))
        numbers.append(number)
    return labels, np.cumsum(counts, dtype=np.int64), body, numbers


def _explain(path: Path, number: int, line: bytes) -> NoReturn:
    """The error for a line that is not `label index:value ...`."""
    label, *pairs = (part.decode("utf-8", "replace") for part in line.split())
    if ":" in label:
        raise FormatError(f'{path}: line {number} starts with "{label[:40]}"; a label comes first')
    for pair in pairs:
        index, colon, value = pair.partition(":")
        if not colon or not value or ":" in value:
            raise FormatError(
                f'{path}: line {number}: "{pair[:40]}" is not index:value; correct it'
            )
        if not (index.isascii() and index.isdigit()):
            raise FormatError(
                f'{path}: line {number}: index "{index[:40]}" is not a whole number from 1;'
                " correct it"
            )
    raise FormatError(f"{path}: line {number} is not `label index:value ...`; correct it")


def _pairs(
    client: str, path: Path, starts: NDArray[np.int64], body: list[bytes], lines: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    tokens = b" ".join(body).replace(b":", b" ").split()
    for i, value in enumerate(tokens[1::2]):
        if not _NUMBER.fullmatch(value) and not _SPECIAL.fullmatch(value):
            line = lines[int(np.searchsorted(starts, i, side="right")) - 1]
            raise FormatError(
                f'{path}: line {line}: value "{value[:40].decode("utf-8", "replace")}" is not a'
                " number; correct it"
            )
    for i, index in enumerate(tokens[0::2]):
        if len(index) > 9 and len(index.lstrip(b"0")) > 9:
            line = lines[int(np.searchsorted(starts, i, side="right")) - 1]
            raise FormatError(f"{path}: line {line}: index {index[:40].decode()} is over 999999999")
    indices = tokens[0::2]
    if any(len(index) > 9 for index in indices):
        indices = [index.lstrip(b"0") or b"0" for index in indices]
    columns = np.array(indices, dtype="S9").astype(np.int64)
    values = np.array([float(value) for value in tokens[1::2]], dtype=np.float64)
    for (i,) in large(values):
        text = tokens[2 * i + 1].decode()
        if is_rounded(text):
            line = lines[int(np.searchsorted(starts, i, side="right")) - 1]
            raise FeatureError(
                f"{whose(client)}: feature {columns[i] - 1} in line {line} of {path} is"
                f" {text[:40]}, a whole number that float64 does not hold exactly; leave it out if"
                " it names something, or round it"
            )
    return columns, values


def _check_indices(
    path: Path,
    columns: NDArray[np.int64],
    starts: NDArray[np.int64],
    lines: list[int],
    n_features: int | None,
) -> None:
    previous = np.zeros_like(columns)
    previous[1:] = columns[:-1]
    firsts = starts[:-1][starts[:-1] < starts[1:]]
    previous[firsts] = 0
    wrong = columns <= previous
    if n_features is not None:
        wrong |= columns > n_features
    if not wrong.any():
        return
    i = int(np.flatnonzero(wrong)[0])
    line = lines[int(np.searchsorted(starts, i, side="right")) - 1]
    index, before = int(columns[i]), int(previous[i])
    if index == 0:
        raise FormatError(f"{path}: line {line}: index 0; LIBSVM counts features from 1")
    if index == before:
        raise FormatError(f"{path}: line {line}: index {index} twice; give each feature once")
    if index < before:
        raise FormatError(
            f"{path}: line {line}: index {index} after {before}; sort each line's indices"
        )
    raise FormatError(
        f"{path}: line {line}: index {index}, the data set has {n_features} features; correct the"
        " line or the number of features"
    )


def _labels(client: str, path: Path, labels: list[bytes], lines: list[int]) -> list[str]:
    """Whole numbers in one spelling, exact whatever their size."""
    known: dict[bytes, str] = {}
    for label, line in zip(labels, lines, strict=True):
        if label not in known:
            known[label] = _whole(client, path, label, line)
    return [known[label] for label in labels]


def _whole(client: str, path: Path, label: bytes, line: int) -> str:
    shown = label[:40].decode("utf-8", "replace")
    if not _NUMBER.fullmatch(label) and not _SPECIAL.fullmatch(label):
        raise FormatError(
            f'{path}: line {line}: label "{shown}" is not a number; LIBSVM labels are numbers'
        )
    try:
        value = Decimal(label.decode())
    except InvalidOperation:
        # An exponent beyond what decimals have.
        value = Decimal("NaN")
    if not value.is_finite() or value != value.to_integral_value():
        raise LabelError(
            f"{whose(client)}: label {shown} in line {line} of {path} is not a whole number; a"
            " class label is a whole number or text"
        )
    if value.adjusted() >= _MOST_DIGITS:
        raise LabelError(
            f"{whose(client)}: label {shown} in line {line} of {path} has more than"
            f" {_MOST_DIGITS} digits; give the class a shorter number"
        )
    return str(int(value))


def _csr(
    values: NDArray[np.float64],
    columns: NDArray[np.int64],
    starts: NDArray[np.int64],
    width: int,
) -> Any:
    from scipy.sparse import csr_array

    return csr_array((values, columns, starts), shape=(len(starts) - 1, width))

"""Real data of the benchmarks: the papers' public data sets, as arrays."""

import gzip
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.samples import digits_split

REPOSITORY = Path(__file__).resolve().parent.parent
MINILM_SCALE = 10.0
"""Factor on sentence embeddings: the value of the KAHM paper's experiments (section 4)."""

CIFAR10_HEAD = 5000
"""Training images of the largest class of CIFAR-10."""
CIFAR10_STORED_RHO = 10.0
"""Imbalance ratio of the stored long-tailed set; larger ratios are subsets of it."""


class DataMissingError(FileNotFoundError):
    """The public data sets are not beside the repository."""


@dataclass(frozen=True)
class Split:
    """Training and test records of one data set.

    Attributes:
        X_train: features, shape (n, d), float32.
        y_train: class codes 0..C-1, shape (n,), int64.
        X_test: features, shape (m, d), float32.
        y_test: class codes, shape (m,), int64.
        classes: C names.
        source: what the records are, for the table's notes.
    """

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    source: str

    def rows(self, train: NDArray[np.int64], test: NDArray[np.int64]) -> "Split":
        """These training and test records alone, in that order."""
        return replace(
            self,
            X_train=self.X_train[train],
            y_train=self.y_train[train],
            X_test=self.X_test[test],
            y_test=self.y_test[test],
        )


def shared_data(*parts: str) -> Path:
    """A file or folder of the public data sets.

    They lie in `../shared/data` beside the repository, or where SECUREFL_DATA points.

    Args:
        parts: path below the data folder, e.g. "newsgroups", "minilm-train.npz".

    Raises:
        DataMissingError: there is no such file or folder; the message says where it was sought.
    """
    root = Path(os.environ.get("SECUREFL_DATA", REPOSITORY.parent / "shared" / "data"))
    path = root.joinpath(*parts)
    if not path.exists():
        raise DataMissingError(
            f"no {'/'.join(parts) or 'data folder'} in {root}; put the public data sets there"
            " or point SECUREFL_DATA at them"
        )
    return path


def newsgroups(scale: float = MINILM_SCALE) -> Split:
    """20 Newsgroups by date, all-MiniLM-L6-v2 features times `scale`.

    11,314 training and 7,532 test documents, 384 features, 20 classes; stored as float16.

    Raises:
        DataMissingError: the files are absent.
    """
    train = _arrays("newsgroups", "minilm-train.npz")
    test = _arrays("newsgroups", "minilm-test.npz")
    factor = np.float32(scale)
    return Split(
        train["X"].astype(np.float32) * factor,
        train["y"].astype(np.int64),
        test["X"].astype(np.float32) * factor,
        test["y"].astype(np.int64),
        tuple(str(name) for name in train["classes"]),
        f"20 Newsgroups by date, all-MiniLM-L6-v2 features times {scale:g}",
    )


def cifar10_long_tail(rho: float) -> Split:
    """Long-tailed CIFAR-10, EfficientNet-Lite0 features in [0, 1], 1,280 a record.

    Class c keeps the first 5000 * rho^(-c/9) training images; the 10,000 test images are
    balanced. The images came from a JPEG copy, not the lossless original.

    Args:
        rho: imbalance ratio, at least 10 (the stored set has 10).

    Raises:
        ValueError: rho below 10.
        DataMissingError: the files are absent.
    """
    if not rho >= CIFAR10_STORED_RHO:
        raise ValueError(f"rho {rho}: the stored set has ratio 10, larger ratios only")
    train = _arrays("cifar10", "efficientnet-lite0-lt10.npz")
    test = _arrays("cifar10", "efficientnet-lite0-test.npz")
    y = train["y"].astype(np.int64)
    kept = np.concatenate(
        [np.flatnonzero(y == c)[: int(CIFAR10_HEAD * rho ** (-c / 9))] for c in range(10)]
    )
    return Split(
        train["X"][kept].astype(np.float32) / np.float32(255),
        y[kept],
        test["X"].astype(np.float32) / np.float32(255),
        test["y"].astype(np.int64),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        f"long-tailed CIFAR-10, rho {rho:g}, EfficientNet-Lite0 features of a JPEG copy",
    )


def digits(rng: np.random.Generator) -> Split:
    """scikit-learn's 1,797 handwritten digits, 64 features divided by 16 (so in [0, 1]).

    Args:
        rng: chooses the quarter of every class that goes to the test part.
    """
    train, test = digits_split(rng)
    source = "scikit-learn's handwritten digits, 8 x 8 pixels"
    return Split(train.X, train.y, test.X, test.y, train.classes, source)


def _arrays(*parts: str) -> dict[str, NDArray[Any]]:
    with np.load(shared_data(*parts), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


LIBSVM_FEATURES = {
    "a1a": 123,
    "svmguide1": 4,
    "splice": 60,
    "vehicle": 18,
    "dna": 180,
    "pendigits": 16,
    "satimage": 36,
    "usps": 256,
}
"""Data sets of LIBSVM's collection for classification, and their d."""

UNSPLIT = {"vehicle": 500}
"""Those without a test part, and how many records are drawn for training.

The papers say 500 and 446 for vehicle, which has 846 records: 346 are left for testing.
"""
UNSCALED = frozenset({"svmguide1"})
"""Those whose features have different units: divided by their deviations in the training part."""


def libsvm(name: str) -> Split:
    """One of LIBSVM_FEATURES, as its collection has it but for UNSPLIT and UNSCALED.

    Raises:
        DataMissingError: the files are absent.
    """
    from secure_fl.data import assemble, read_libsvm

    files = [("train", f"{name}.bz2")]
    if name not in UNSPLIT:
        files.append(("test", f"{name}.t.bz2"))
    records = [
        read_libsvm(shared_data("libsvm", file), LIBSVM_FEATURES[name], name=part)
        for part, file in files
    ]
    found = assemble(records)
    parts = [(each.X.astype(np.float32), each.y) for each in found]
    if name in UNSPLIT:
        ((X, y),) = parts
        order = np.random.default_rng(0).permutation(len(y))
        taken = np.split(order, [UNSPLIT[name]])
        parts = [(X[rows], y[rows]) for rows in taken]
    (X_train, y_train), (X_test, y_test) = parts
    if name in UNSCALED:
        deviation = X_train.std(axis=0)
        X_train, X_test = X_train / deviation, X_test / deviation
    return Split(
        X_train, y_train, X_test, y_test, found[0].classes, f"{name} of LIBSVM's collection"
    )


def mnist() -> Split:
    """MNIST: 60,000 and 10,000 images of 28 x 28 pixels, divided by 255 (so in [0, 1]).

    Raises:
        DataMissingError: the files are absent.
    """
    images = [_idx(f"{part}-images-idx3-ubyte.gz", 16) for part in ("train", "t10k")]
    labels = [_idx(f"{part}-labels-idx1-ubyte.gz", 8) for part in ("train", "t10k")]
    X_train, X_test = (
        each.reshape(-1, 28 * 28).astype(np.float32) / np.float32(255) for each in images
    )
    y_train, y_test = (each.astype(np.int64) for each in labels)
    return Split(X_train, y_train, X_test, y_test, tuple("0123456789"), "MNIST")


def _idx(name: str, header: int) -> NDArray[np.uint8]:
    with gzip.open(shared_data("mnist", name)) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=header)

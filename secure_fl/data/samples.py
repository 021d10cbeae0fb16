"""Real data that ships with a dependency, for a first try without a download."""

import numpy as np

from secure_fl.data import Dataset

TEST_SHARE = 0.25


def digits_split(rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """scikit-learn's 1,797 handwritten digits as data sets "train" and "test".

    Pixels are divided by their public maximum, 16. Every class gives a quarter of its records to
    the test set.

    Args:
        rng: chooses them.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    y = bunch.target.astype(np.int64)
    whole = Dataset(
        (bunch.data / 16).astype(np.float32),
        y,
        tuple(str(c) for c in range(10)),
        "digits",
        "scikit-learn's handwritten digits",
    )
    test = np.zeros(len(y), bool)
    for c in range(10):
        members = rng.permutation(np.flatnonzero(y == c))
        test[members[: round(TEST_SHARE * len(members))]] = True
    return whole.select(np.flatnonzero(~test), "train"), whole.select(np.flatnonzero(test), "test")

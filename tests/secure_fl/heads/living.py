"""Heads whose records come and go, and what they must equal: fitted at once, from the records.

The oracle has the records and `kahm.split`; it knows neither indexes nor updates.
"""

import numpy as np

from kahm import Bank, split
from secure_fl.data import Dataset
from secure_fl.heads.fitting import batches_stream, train_heads
from secure_fl.heads.head import Head, head_path, save_head, stored_type
from secure_fl.heads.manifest import make_manifest
from secure_fl.heads.run_folder import create_run

CLASSES = ("a", "b", "c")
CLIENT = "north"


def manifest(**changes):
    fields = {"classes": CLASSES, "clients": ("south", CLIENT), "n_features": 3, "batch_size": 4}
    return make_manifest(**{**fields, **changes})


def dataset(X, y, source="memory"):
    return Dataset(X, np.asarray(y, np.int64), CLASSES, CLIENT, source)


def train(folder, facts, X, y, seed=0):
    (head,) = train_heads([(CLIENT, X, np.asarray(y))], facts, seed=seed)
    create_run(folder, [head], facts)
    return folder


def fitted_at_once(folder, facts, arrivals, gone=(), seed=0):
    """The bytes of a head of all records but `gone`, which keep the batches of all.

    Args:
        arrivals: X and y of each.
        gone: row numbers over all arrivals.
    """
    batches, cells, types, first = [], [], [], 0
    for number, (X, y) in enumerate(arrivals):
        y, rng = np.asarray(y), batches_stream(facts, CLIENT, seed, number)
        stays = ~np.isin(first + np.arange(len(X)), gone)
        first += len(X)
        if stays.any():
            types.append(stored_type(X[stays]))
        for c in np.unique(y):
            own = np.flatnonzero(y == c)
            # Numbers beside the features, so that batches are formed by these alone.
            for part in _rows(X[own], facts, rng):
                left = X[own[part][stays[own[part]]]]
                if len(left):
                    batches.append(left.astype(types[-1]))
                    cells.append(int(c))
    widest = np.result_type(*types).type
    bank = Bank.fit(batches, cells, len(CLASSES), dtype=widest)
    save_head(folder, Head(CLIENT, bank), facts)
    return head_path(folder, CLIENT).read_bytes()


def _rows(X, facts, rng):
    """Which rows make each batch, found by their features among the batches of `kahm.split`."""
    batches = split(X, facts.batch_size, facts.batching, rng)
    free, found = list(range(len(X))), []
    for batch in batches:
        rows = []
        for record in batch:
            row = next(i for i in free if np.array_equal(X[i], record))
            free.remove(row)
            rows.append(row)
        found.append(np.array(rows))
    return found

"""Training a federation of heads: one pass, no rounds (kahm.txt, 3.7)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.head import Head, train_head
from secure_fl.manifest import Manifest

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with a phase, the steps done and all steps."""


def quiet(phase: str, done: int, total: int) -> None:
    """Reports nothing."""


def train_heads(
    clients: Sequence[tuple[str, Array, NDArray[np.integer[Any]]]],
    manifest: Manifest,
    *,
    seed: int = 0,
    progress: Progress = quiet,
) -> list[Head]:
    """One head per client; what one client's head is does not depend on the others.

    Args:
        clients: name, scaled features (n, n_features) and class codes (n,) of each client.
        manifest: the federation's facts.
        seed: of the batches when they are clusters; each client draws from a stream of its own.
        progress: told after every client.
    """
    streams = np.random.SeedSequence(seed).spawn(len(clients))
    heads = []
    for i, ((name, X, y), stream) in enumerate(zip(clients, streams, strict=True)):
        heads.append(train_head(name, X, y, manifest, np.random.default_rng(stream)))
        progress("training", i + 1, len(clients))
    return heads

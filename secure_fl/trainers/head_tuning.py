"""Settings of a head, and its features' scaling, by cross-validation inside the clients.

One masked sum a setting.

Every client leaves out a third of its records in turn, makes a head of the rest, and counts how
many of those that were left out this head alone classifies rightly. The server hears the sum of the
counts. A client knows its own classes only, so the sum is no estimate of the federation's accuracy;
which setting wins is what it tells.

The counts are not private: one record, in the part that is trained on, may change the answers to
all others. Where privacy is promised, tune on public records.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from fhe import CodeRange, encode_measures
from kahm import Bank, split
from secure_fl.data import Dataset, Scale, scaled_features
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation, Tree, client_step
from secure_fl.progress import Progress, quiet

FOLDS = 3


@attrs.frozen(kw_only=True)
class HeadChoice:
    """What is tuned of a head.

    Attributes:
        batch_size: records of a machine, N_b, at least 1.
        regularisation: one of `kahm.REGULARISATIONS`.
        regularisation_factor: on lambda*, above 0.
        measure: one of `kahm.MEASURES`.
        bits: of the integer codes that answers are compared by, 4 to 16; None compares measures.
        low, high: measures that the codes span.
    """

    batch_size: int = 100
    regularisation: str = "absolute"
    regularisation_factor: float = 1.0
    measure: str = "folding"
    bits: int | None = None
    low: float = 0.0
    high: float = 1.0

    def text(self) -> str:
        """As options of `securefl train`."""
        codes = f" --bits {self.bits} --range {self.low:g} {self.high:g}"
        return (
            f"--batch-size {self.batch_size} --lambda {self.regularisation} --lambda-factor"
            f" {self.regularisation_factor:g} --measure {self.measure}"
            f"{'' if self.bits is None else codes}"
        )

    def settings(self) -> dict[str, Any]:
        """As settings of the method kahm."""
        found = attrs.asdict(self)
        low, high, bits = (found.pop(name) for name in ("low", "high", "bits"))
        return found if bits is None else {**found, "bits": bits, "code_range": (low, high)}


CANDIDATES = (
    HeadChoice(batch_size=5, regularisation="relative", regularisation_factor=0.04),
    HeadChoice(batch_size=5, regularisation="relative"),
    HeadChoice(batch_size=20, regularisation="relative", regularisation_factor=0.09),
    HeadChoice(batch_size=20, regularisation="relative"),
    HeadChoice(batch_size=100, regularisation="relative"),
)
"""From fine to smooth; each was the best of a grid on some data set (docs/trainers.md)."""


@attrs.frozen
class Tried:
    """A setting, with records that were classified rightly and records in all.

    Attributes:
        choice: the setting.
        right, records: the counts.
        scaling: the name under which features were scaled; "" for public ranges.
    """

    choice: HeadChoice
    right: int
    records: int
    scaling: str = ""

    def text(self) -> str:
        """As options of `securefl train`."""
        return f"{f'--scaling {self.scaling} ' if self.scaling else ''}{self.choice.text()}"

    def recorded(self) -> tuple[str, int, int]:
        """As the manifest keeps it."""
        return self.text(), self.right, self.records


@client_step
def local_right_answers(
    client: Client,
    batch_size: int,
    regularisation: str,
    factor: float,
    measure: str,
    bits: int,
    low: float,
    high: float,
    classes: int,
) -> Tree:
    """Left out records that the client's own head classifies rightly, and all of them, shape (2,).

    A record whose class is in no other part is counted as wrong. 0 bits compare measures.
    """
    X, y = client.features, client.targets
    right = 0
    fold = folds_of(y)
    for part in range(FOLDS):
        rest, left = fold != part, fold == part
        if not left.any() or not rest.any():
            continue
        batches: list[NDArray[Any]] = []
        cells: list[int] = []
        for c in np.unique(y[rest]).tolist():
            own = split(X[rest & (y == c)], batch_size, "order", np.random.default_rng(0))
            batches += own
            cells += [c] * len(own)
        bank = Bank.fit(batches, cells, classes, regularisation=regularisation, factor=factor)  # type: ignore[arg-type]  # checked by `Bank.fit`
        values: NDArray[Any] = bank.measures(X[left], measure)  # type: ignore[arg-type]  # as above
        if bits:
            values = encode_measures(values, bits, CodeRange(low, high))
        right += int(np.sum(values.argmin(axis=1) == y[left]))
    return np.array([right, len(y)], np.int64)


def folds_of(y: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """The part in which every record is left out, shape (n,): every class is dealt out in turn."""
    found = np.empty(len(y), np.int64)
    start = 0
    for c in np.unique(y).tolist():
        rows = np.flatnonzero(y == c)
        found[rows] = (start + np.arange(len(rows))) % FOLDS
        start += len(rows)
    return found


def tune_head(
    clients: Sequence[Dataset],
    scalings: Mapping[str, Scale],
    candidates: Sequence[HeadChoice] = CANDIDATES,
    progress: Progress = quiet,
) -> tuple[Tried, ...]:
    """Counts for every candidate under every scaling, in their order, by one masked sum each.

    One client's sums are its own, and not masked.

    Args:
        clients: with the same classes and features.
        scalings: of the features, by name; at least one.
        candidates: at least one.
        progress: told after every sum.

    Raises:
        InputError: no candidate, or a setting out of range.
    """
    if not candidates or not scalings:
        raise InputError("tuning: no setting to try")
    found: list[Tried] = []
    for name, scale in scalings.items():
        for choice, right, records in _counted(clients, scale, candidates):
            found.append(Tried(choice, right, records, name))
            progress("tuning", len(found), len(scalings) * len(candidates))
    return tuple(found)


def _counted(
    clients: Sequence[Dataset], scale: Scale, candidates: Sequence[HeadChoice]
) -> Iterator[tuple[HeadChoice, int, int]]:
    """Candidates with right answers and records, under one scaling."""
    members = [
        Client(each.name, scaled_features(each.X, scale, np.float32, where=each.where), each.y)
        for each in clients
    ]
    masked = SecureAggregation(clip=2.0**40, outside="error") if len(members) > 1 else None
    with Federation(members, aggregation=masked) as fed:
        for each in candidates:
            *kernel, bits, low, high = attrs.astuple(each)
            asked = *kernel, bits or 0, low, high, len(clients[0].classes)
            total = fed.sum(local_right_answers, *asked)
            yield each, int(total[0]), int(total[1])


def best_of(tried: Sequence[Tried]) -> Tried:
    """The setting with the most right answers, the first one among equals."""
    return max(tried, key=lambda each: each.right)

"""Settings of a head, and its features' scaling, by cross-validation inside the clients.

One masked sum a setting.

Every client leaves out a third of its records in turn, makes a head of the rest, and measures those
that were left out with this head alone. The server hears sums over all clients: of a logarithmic
loss, which decides, and of right answers. A client knows its own classes only and meets none of the
others' machines, so neither estimates the federation's accuracy; which setting wins is what they
tell. Right answers hardly tell settings apart where a client has two or three classes; the loss
also asks by how much the right class is nearer, which is what stands when others' machines come
between.

The sums are not private: one record, in the part that is trained on, may change the answers to all
others. Where privacy is promised, tune on public records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
STEEPNESS = 8.0
"""Power of the measures' ratio that odds are taken to be. Of 1 to 32, 6 to 10 chose alike and best
on the divisions that the rule was made on (docs/how-to/your-own-data.md)."""
SMALLEST = 1e-4
"""Added to measures before their ratio: at a record that was trained on, a measure may be 0."""
LOSS_UNIT = 1e-3
"""Losses are summed as whole numbers of it, so that no order or mask changes a sum."""


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
    HeadChoice(batch_size=2, regularisation="relative-floor", regularisation_factor=0.2),
    HeadChoice(batch_size=5, regularisation="relative-floor", regularisation_factor=0.04),
    HeadChoice(batch_size=5, regularisation="relative-floor"),
    HeadChoice(batch_size=20, regularisation="relative-floor", regularisation_factor=0.09),
    HeadChoice(batch_size=100, regularisation="relative-floor"),
)
"""From fine to smooth. The first is the cheapest, and tells scalings apart as well as all do."""


@attrs.frozen
class Tried:
    """A setting, and what the clients' records that were left out say of it.

    Attributes:
        choice: the setting.
        right, records: records that were classified rightly, and in all.
        scaling: the name under which features were scaled; "" for public ranges.
        loss: summed over the records, in LOSS_UNIT nats; None in files of earlier versions.
    """

    choice: HeadChoice
    right: int
    records: int
    scaling: str = ""
    loss: int | None = None

    def text(self) -> str:
        """As options of `securefl train`."""
        return f"{f'--scaling {self.scaling} ' if self.scaling else ''}{self.choice.text()}"

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller is better."""
        return (1, -self.right) if self.loss is None else (0, self.loss)

    def recorded(self) -> tuple[str, int, int] | tuple[str, int, int, int]:
        """As the manifest keeps it."""
        found = self.text(), self.right, self.records
        return found if self.loss is None else (*found, self.loss)


@client_step
def local_left_out_answers(
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
    """Right answers, records and loss of left out records by the client's own head, shape (3,).

    A record whose class is in no other part is counted as wrong. 0 bits compare measures.
    """
    X, y = client.features, client.targets
    right, loss = 0, 0.0
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
            codes = encode_measures(values, bits, CodeRange(low, high))
            values = low + (high - low) / (2**bits - 1) * codes
        right += int(np.sum(values.argmin(axis=1) == y[left]))
        loss += float(np.sum(log_losses(values, y[left])))
    return np.array([right, len(y), round(loss / LOSS_UNIT)], np.int64)


def log_losses(values: NDArray[Any], y: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """The logarithmic loss of every record's class against the nearest other one, shape (n,), nats.

    Odds are the other class's measure over the own, to the power STEEPNESS: a factor on all
    measures, which settings differ by, is nothing to them.

    Args:
        values: measures, shape (n, classes), at least 2 classes.
        y: class codes, shape (n,).
    """
    logs = np.log(values.astype(np.float64) + SMALLEST)
    records = np.arange(len(y))
    own = logs[records, y]
    logs[records, y] = np.inf
    found: NDArray[np.float64] = np.logaddexp(0.0, STEEPNESS * (own - logs.min(axis=1)))
    return found


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
    """Every candidate under every scaling, in their order, by one masked sum each.

    One client's sums are its own, and not masked.

    Args:
        clients: with the same classes and features.
        scalings: of the features, by name; at least one.
        candidates: at least one.
        progress: told after every sum.

    Raises:
        InputError: no candidate, or a setting out of range.
    """
    _some(scalings, candidates)
    pairs = [(name, candidates) for name in scalings]
    return _noting(_tried(clients, scalings, pairs), len(scalings) * len(candidates), progress)


def tune_in_turn(
    clients: Sequence[Dataset],
    scalings: Mapping[str, Scale],
    candidates: Sequence[HeadChoice] = CANDIDATES,
    progress: Progress = quiet,
) -> tuple[Tried, ...]:
    """The first candidate under every scaling, then the others under the scaling that was best.

    Otherwise as `tune_head`, with a sum a scaling and candidate instead of one a pair of them.
    """
    _some(scalings, candidates)
    sums = len(scalings) + len(candidates) - 1

    def in_turn() -> Iterator[Tried]:
        first = []
        for each in _tried(clients, scalings, [(name, candidates[:1]) for name in scalings]):
            first.append(each)
            yield each
        yield from _tried(clients, scalings, [(best_of(first).scaling, candidates[1:])])

    return _noting(in_turn(), sums, progress)


def _some(scalings: Mapping[str, Scale], candidates: Sequence[HeadChoice]) -> None:
    if not candidates or not scalings:
        raise InputError("tuning: no setting to try")


def _noting(tried: Iterable[Tried], sums: int, progress: Progress) -> tuple[Tried, ...]:
    found = []
    for each in tried:
        found.append(each)
        progress("tuning", len(found), sums)
    return tuple(found)


def _tried(
    clients: Sequence[Dataset],
    scalings: Mapping[str, Scale],
    asked: Iterable[tuple[str, Sequence[HeadChoice]]],
) -> Iterator[Tried]:
    """Candidates under scalings, by their names, with the sums over the clients."""
    for name, candidates in asked:
        scale = scalings[name]
        members = [
            Client(each.name, scaled_features(each.X, scale, np.float32, where=each.where), each.y)
            for each in clients
        ]
        masked = SecureAggregation(clip=2.0**40, outside="error") if len(members) > 1 else None
        with Federation(members, aggregation=masked) as fed:
            for each in candidates:
                *kernel, bits, low, high = attrs.astuple(each)
                settings = *kernel, bits or 0, low, high, len(clients[0].classes)
                right, records, loss = fed.sum(local_left_out_answers, *settings).tolist()
                yield Tried(each, int(right), int(records), name, int(loss))


def best_of(tried: Sequence[Tried]) -> Tried:
    """The setting with the least loss, the first one among equals.

    Where a file of an earlier version has no losses, the one with the most right answers.
    """
    return min(tried, key=lambda each: each.rank)

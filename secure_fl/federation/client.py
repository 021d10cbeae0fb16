"""One client: its records, and what it keeps between rounds."""

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp import Ledger
from secure_fl.errors import FederationError
from secure_fl.federation.trees import Array


@dataclass(eq=False)
class Client:
    """What a client step receives.

    Attributes:
        name: unique within the federation, printable, at most 200 characters.
        features: (n, d) array, or scipy CSR of that shape.
        targets: one a record, shape (n,) or (n, C).
        weight: what it counts in means, above 0; the number of records by default.
        state: its own arrays, kept from round to round and part of the checkpoint.
        cache: derived objects (factorizations, models, scratch); may vanish at any time, is never
            saved.
        ledger: the books of its records, for steps that spend the privacy of single records.
    """

    name: str
    features: Any
    targets: Array
    weight: float = -1.0
    state: dict[str, Array] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)
    ledger: Ledger | None = None
    _key: tuple[int, int, int] = (0, 0, 0)
    _rng: np.random.Generator | None = None
    _hashed: Any = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and 0 < len(self.name) <= 200):
            raise FederationError(f"client {self.name!r}: its name must have 1 to 200 characters")
        if not self.name.isprintable():
            raise FederationError(f"client {self.name!r}: its name must be one printable line")
        records = self.features.shape[0]
        if len(self.targets) != records:
            raise FederationError(
                f'client "{self.name}": {records} records and {len(self.targets)} targets; give'
                " each record one target"
            )
        kind = np.asarray(self.targets).dtype
        if kind.kind not in "biuf":
            raise FederationError(
                f'client "{self.name}": targets of type {kind}, expected numbers: class codes'
                " 0..C-1 of type int64 (np.unique(labels, return_inverse=True) makes them)"
            )
        if self.weight == -1.0:
            self.weight = float(records)
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise FederationError(
                f'client "{self.name}": found weight {self.weight}, expected a finite number'
                " above 0; leave out a client without records"
            )

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def rng(self) -> np.random.Generator:
        """Experiment randomness of this call: derived from seed, name, round and call alone."""
        if self._rng is None:
            self._rng = np.random.default_rng([*self._key, *_digest(self.name)])
        return self._rng

    @property
    def seed(self) -> int:
        """Of the federation's experiment randomness, while a step runs."""
        return self._key[0]

    @property
    def round(self) -> int:
        """Of the federation, from 0, while a step runs."""
        return self._key[1]

    @property
    def word(self) -> int:
        """63 bits of the same, for a compiled loop that draws for itself; cheaper than `rng`."""
        if self._hashed is None:
            self._hashed = hashlib.blake2b(self.name.encode(), digest_size=8)
        found = self._hashed.copy()
        found.update(struct.pack("<QQQ", *self._key))
        return int.from_bytes(found.digest(), "little") >> 1

    def begin(self, seed: int, round_number: int, call: int) -> None:
        """Sets what `rng` is derived from; the runtime calls it before each step.

        Its own arrays are laid out as a checkpoint, or another process, gives them back: libraries
        sum a transposed matrix in another order, and a run that goes on would differ.
        """
        self._key = (seed, round_number, call)
        self._rng = None
        for name, array in self.state.items():
            self.state[name] = np.ascontiguousarray(array) if array.ndim > 1 else array

    def begin_as(self, other: "Client") -> None:
        """Sets the same as another client's, for a view of its records."""
        self.begin(*other._key)


def _digest(name: str) -> list[int]:
    whole = hashlib.sha256(name.encode()).digest()
    return [int.from_bytes(whole[i : i + 4], "little") for i in range(0, 16, 4)]

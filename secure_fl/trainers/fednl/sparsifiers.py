"""Compressors that keep k entries: Top-K, Rand-K, and Rand-K from a shared seed (B.3.3, B.3.4)."""

import functools
import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.federation import SparseArray, broadcastable
from secure_fl.trainers.fednl.compressors import INDEX_BITS, Class, Compressed, Compressor, LazyRng
from secure_fl.trainers.fednl.problem import Support
from secure_fl.trainers.fednl.triangles import packed_size

Array = NDArray[Any]


@dataclass(frozen=True)
class _Sparsifier(Compressor):
    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k = {self.k}: a sparse message needs at least 1 entry")

    def matrix_bits(self, d: int) -> float:
        """k floats and k indices, or the triangle where that is less."""
        size = packed_size(d)
        return min((64.0 + INDEX_BITS) * min(self.k, size), 64.0 * size)

    def vector_bits(self, d: int) -> float:
        """k floats and k indices, or the vector where that is less."""
        return min((64.0 + INDEX_BITS) * min(self.k, d), 64.0 * d)

    def entries(
        self, v: Array, rng: np.random.Generator, draw: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Places of the entries kept of a vector, and what becomes of them."""
        raise NotImplementedError

    def vector(self, v: Array, rng: np.random.Generator, draw: int = 0) -> Array:
        """The entries kept, and zeros."""
        out = np.zeros_like(v)
        places, kept = self.entries(v, rng, draw)
        out[places] = kept
        return out

    def compress_vector(
        self, v: Array, rng: np.random.Generator, draw: int, sparse: bool
    ) -> Compressed:
        """Values and places, where sums take them and they are fewer than all."""
        if not sparse or self.k >= len(v):
            return super().compress_vector(v, rng, draw, sparse)
        message = SparseArray(*self.entries(v, rng, draw), len(v))
        return Compressed(message, message.dense())


def _largest(values: Array, k: int) -> NDArray[np.int64]:
    from secure_fl.trainers.fednl.selection import largest_places

    out = np.empty(min(k, len(values)), np.int64)
    largest_places(np.ascontiguousarray(values), len(out), np.empty_like(values), out)
    return out


@broadcastable
@dataclass(frozen=True)
class TopK(_Sparsifier):
    """The k entries of largest magnitude of the lower triangle (B.3.3); exactly k, ties in order.

    delta = k/d^2 on matrices: a kept entry may stand on the diagonal, a dropped one counts twice.
    """

    def on_matrices(self, d: int) -> Class:
        """Contractive."""
        return Class(1.0 if self.k >= packed_size(d) else self.k / d**2)

    def on_vectors(self, d: int) -> Class:
        """Contractive with k/d."""
        return Class(min(self.k / d, 1.0))

    def entries(
        self, v: Array, rng: np.random.Generator, draw: int
    ) -> tuple[NDArray[np.int64], Array]:
        """The largest."""
        places = _largest(v, self.k)
        return places, v[places]

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """The largest entries."""
        return self.vector(values, None)  # type: ignore[arg-type]  # nothing random in it

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """See `Compressor.compress`."""
        if not sparse:
            return super().compress(values, support, rng, draw, sparse)
        places = _largest(values, self.k)
        kept = np.zeros_like(values)
        kept[places] = values[places]
        size = packed_size(support.d)
        return Compressed(SparseArray(support.index[places], values[places], size), kept)


@broadcastable
@dataclass(frozen=True)
class RandK(_Sparsifier):
    """k entries of the lower triangle at random, scaled to be unbiased (eq. 20).

    The entries are drawn from the whole triangle, so omega = T/k - 1 with T = d(d+1)/2.
    """

    def on_matrices(self, d: int) -> Class:
        """Unbiased."""
        return Class(None, max(packed_size(d) / self.k - 1, 0.0))

    def on_vectors(self, d: int) -> Class:
        """Unbiased with d/k - 1."""
        return Class(None, max(d / self.k - 1, 0.0))

    def places(self, size: int, word: int, draw: int) -> NDArray[np.int64]:
        """Ascending places of the entries sent.

        Args:
            size: of the triangle or vector.
            word: 63 random bits.
            draw: the round.
        """
        from secure_fl.trainers.fednl.selection import random_places

        out = np.empty(min(self.k, size), np.int64)
        random_places(word, np.zeros(size, np.uint8), out)
        return out

    def chosen(self, size: int, rng: LazyRng, draw: int) -> NDArray[np.int64]:
        """`places` of a generator's next word."""
        return self.places(size, int(rng().integers(2**63)), draw)

    def entries(
        self, v: Array, rng: np.random.Generator, draw: int
    ) -> tuple[NDArray[np.int64], Array]:
        """Random ones times d/k."""
        places = self.chosen(len(v), lambda: rng, draw)
        return places, v[places] * (len(v) / len(places))

    def picked(
        self, values: Array, support: Support, rng: LazyRng, draw: int
    ) -> tuple[NDArray[np.int64], Array, Array]:
        """Places, scaled entries at them, and the same on the support."""
        from secure_fl.trainers.fednl import kernels

        size = packed_size(support.d)
        places = self.chosen(size, rng, draw)
        sent = np.empty(len(places))
        kept = np.zeros(len(values))
        kernels.take_and_learn(support.index, values, places, size / len(places), 1.0, kept, sent)
        return places, sent, kept

    def values(self, values: Array, support: Support, rng: LazyRng, draw: int) -> Array:
        """Random entries times T/k."""
        return self.picked(values, support, rng, draw)[2]

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """See `Compressor.compress`."""
        places, sent, kept = self.picked(values, support, rng, draw)
        if not sparse:
            return Compressed(support.dense(kept), kept)
        return Compressed(SparseArray(places, sent, packed_size(support.d)), kept)


@functools.lru_cache(maxsize=4)
def _shared_places(seed: int, draw: int, size: int, k: int) -> NDArray[np.int64]:
    from secure_fl.trainers.fednl.selection import random_places

    word = hashlib.blake2b(struct.pack("<qq", seed, draw), digest_size=8).digest()
    places = np.empty(k, np.int64)
    random_places(int.from_bytes(word, "little") >> 1, np.zeros(size, np.uint8), places)
    places.setflags(write=False)
    return places


@broadcastable
@dataclass(frozen=True)
class SharedRandK(RandK):
    """Rand-K whose entries everybody derives from a public seed and the round.

    Indices cost nothing, and as they are the same at every client the values add up: the one sparse
    compressor that secure aggregation can sum.

    Attributes:
        k: entries, at least 1.
        seed: public; not a secret.
    """

    seed: int = 0

    @property
    def summable(self) -> bool:
        """The same entries everywhere."""
        return True

    def matrix_bits(self, d: int) -> float:
        """k floats."""
        return 64.0 * min(self.k, packed_size(d))

    def vector_bits(self, d: int) -> float:
        """k floats."""
        return 64.0 * min(self.k, d)

    def places(self, size: int, word: int, draw: int) -> NDArray[np.int64]:
        """Places that follow from seed and draw."""
        return _shared_places(self.seed, draw, size, min(self.k, size))

    def compress(
        self, values: Array, support: Support, rng: LazyRng, draw: int, sparse: bool
    ) -> Compressed:
        """Values alone, shape (k,)."""
        _, sent, kept = self.picked(values, support, rng, draw)
        return Compressed(sent, kept)

    def expand(self, total: Array, d: int, draw: int) -> Array:
        """Puts the summed values at their places."""
        out = np.zeros(packed_size(d))
        out[self.places(len(out), 0, draw)] = total
        return out

"""SEAL's objects of a rule, made of residues and turned into them.

SEAL writes an object as headers and 64-bit words. It checks the words it reads against their
primes, but takes its headers' word for the rest: flags, correction factors, trailing bytes. So no
header of a peer is ever given to it. Peers send residues alone (`packing`); a frame made here goes
around them, and what comes out must have the size and level that it was made for.
"""

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from fhe.errors import FormatError, LibraryError

from .chain import MODULUS, Chain
from .library import seal
from .packing import Residues, pack, packed_bytes, unpack

_HEADER = struct.Struct("<HBBBBHQ")
_WORD = 8
_VERSION = (4, 4)


class Scheme:
    """The library's context of a modulus, and the frames of its objects.

    Args:
        chain: the modulus.

    Raises:
        LibraryError: the library refuses the parameters, or does not lay objects out as expected.
    """

    def __init__(self, chain: Chain) -> None:
        library = seal()
        parameters = library.EncryptionParameters(library.scheme_type.bgv)
        parameters.set_poly_modulus_degree(chain.degree)
        primes = chain.key_primes
        parameters.set_coeff_modulus([library.Modulus(prime) for prime in primes])
        parameters.set_plain_modulus(MODULUS)
        self.chain = chain
        self.context = library.SEALContext(parameters, True, library.sec_level_type.tc128)
        if not self.context.parameters_set():
            raise LibraryError(f"seal: {self.context.parameter_error_message()}")
        self._ids = _identifiers(self.context, chain)
        self.encoder = library.BatchEncoder(self.context)
        self.evaluator = library.Evaluator(self.context)

    def identifier(self, level: int) -> list[int]:
        """The library's name of a level's modulus."""
        return self._ids[level]

    def transformed(self, plain: Any, level: int) -> Residues:
        """Values of a plaintext's polynomial at the roots modulo each prime, shape (primes, n)."""
        data = self.evaluator.transform_to_ntt(plain, self._ids[level]).to_bytes()
        return _words(data, (len(self.chain.primes(level)), self.chain.degree))

    def ciphertext(self, residues: Residues, level: int) -> Any:
        """A ciphertext of residues, shape (2, primes, n), each below its prime.

        Args:
            residues: values of its polynomials at the roots, as the library computes with.
            level: of the ciphertext.

        Raises:
            LibraryError: the library reads another object than was written.
        """
        words = np.ascontiguousarray(residues, "<u8").tobytes()
        found = seal().Ciphertext()
        frame = _frame(self._ids[level], residues.shape, self.chain.degree)
        found.load_bytes(self.context, frame + words)
        facts = (found.size(), found.coeff_modulus_size(), found.is_ntt_form(), found.parms_id())
        expected = (*residues.shape[:2], True, self._ids[level])
        if facts != expected:
            raise LibraryError(f"seal: a ciphertext came back as {facts[:3]}")
        return found

    def residues(self, ciphertext: Any) -> Residues:
        """Of a ciphertext, shape (polynomials, primes, n)."""
        shape = (ciphertext.size(), ciphertext.coeff_modulus_size(), self.chain.degree)
        return _words(ciphertext.to_string(), shape)

    def encryptor(self, public: Any) -> Any:
        """The library's encryptor under a public key."""
        return seal().Encryptor(self.context, public)

    def public_key(self, residues: Residues) -> Any:
        """A public key of residues, shape (2, primes, n)."""
        data = self._key_frame(residues.shape) + np.ascontiguousarray(residues, "<u8").tobytes()
        return self._read("from_public_str", data)

    def relinearisation_keys(self, residues: Sequence[Residues]) -> Any:
        """Keys of residues, each of shape (2, primes, n), as many as there are data primes."""
        frame = self._key_frame(residues[0].shape)
        identifier = struct.pack("<4Q", *self.context.key_context_data().parms_id())
        head = identifier + struct.pack("<QQ", 1, len(residues))
        size = len(head) + sum(len(frame) + each.nbytes for each in residues)
        words = (np.ascontiguousarray(each, "<u8").data for each in residues)
        # In one piece: they have hundreds of megabytes.
        data = b"".join([_header(size), head, *(part for w in words for part in (frame, w))])
        return self._read("from_relin_str", data)

    def _key_frame(self, shape: tuple[int, ...]) -> bytes:
        identifier = self.context.key_context_data().parms_id()
        return _frame(identifier, shape, self.chain.degree)

    def _read(self, method: str, data: bytes) -> Any:
        try:
            found = getattr(self.context, method)(data)
        except (RuntimeError, ValueError) as error:
            raise LibraryError(f"seal: does not read its own layout ({error})") from error
        if found.to_string() != data:
            raise LibraryError("seal: a key came back otherwise than it was written")
        return found

    def key_residues(self, data: bytes, keys: int) -> Residues:
        """Residues of the library's bytes of so many keys, shape (keys, 2, primes, n)."""
        shape = (2, len(self.chain.key_primes), self.chain.degree)
        frame = len(self._key_frame(shape))
        size = frame + _WORD * int(np.prod(shape))
        joined = data[len(data) - keys * size :]
        parts = [_words(joined[i * size : (i + 1) * size], shape) for i in range(keys)]
        return np.stack(parts)


def refuse_zero(residues: Residues) -> None:
    """Refuses a ciphertext that hides nothing: a polynomial that is zero modulo a prime.

    Raises:
        FormatError: so.
    """
    if not residues.any(axis=2).all():
        raise FormatError("a polynomial of a ciphertext is zero")


def packed_key_bytes(chain: Chain) -> int:
    """Bytes of one key's residues."""
    return packed_bytes(chain.key_primes, chain.degree, 2)


def pack_key(residues: Residues, chain: Chain) -> bytes:
    """One key's residues, shape (2, primes, n)."""
    return pack(residues, chain.key_primes)


def unpack_key(data: bytes, chain: Chain) -> Residues:
    """What `pack_key` made.

    Raises:
        FormatError: another length, a residue out of range, or no key at all.
    """
    found = unpack(data, chain.key_primes, chain.degree, 2)
    refuse_zero(found)
    return found


@functools.lru_cache(maxsize=4)
def scheme_of(chain: Chain) -> Scheme:
    """The library's context; takes half a second."""
    return Scheme(chain)


def _identifiers(context: Any, chain: Chain) -> list[list[int]]:
    data = context.first_context_data()
    found = []
    while data is not None:
        found.append(data.parms_id())
        data = data.next_context_data()
    found = found[::-1][len(chain.base) - 1 :]
    if len(found) != len(chain.levels) + 1:
        raise LibraryError(
            f"seal: a chain of {len(found)} levels, expected {len(chain.levels) + 1}"
        )
    return found


def _header(size: int) -> bytes:
    return _HEADER.pack(0xA15E, _HEADER.size, *_VERSION, 0, 0, _HEADER.size + size)


def _frame(identifier: list[int], shape: tuple[int, ...], degree: int) -> bytes:
    """What the library writes before the words of a ciphertext.

    Scale and correction factor are 1: the first is not BGV's, and no prime of a level changes the
    second.
    """
    polynomials, primes, _ = shape
    count = polynomials * primes * degree
    facts = struct.pack("<4Q", *identifier) + struct.pack(
        "<BQQQdQ", True, polynomials, degree, primes, 1.0, 1
    )
    words = _header(_WORD + _WORD * count) + struct.pack("<Q", count)
    return _header(len(facts) + len(words) + _WORD * count) + facts + words


def _words(data: bytes, shape: tuple[int, ...]) -> Residues:
    count = int(np.prod(shape))
    found = np.frombuffer(data, "<u8", count, len(data) - _WORD * count)
    return found.astype(np.uint64).reshape(shape)

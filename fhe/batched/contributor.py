"""The contributor of a batched rule: encrypts thermometers, a query a slot."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fhe.code import Ints
from fhe.envelope import PUBLIC, Payload
from fhe.errors import InputError
from fhe.long_file import write_in_parts

from .chain import MODULUS
from .ciphertexts import Centre
from .keys import BatchedPublicKey
from .layout import Bits
from .messages import BatchedContribution, contribution_bytes
from .packing import pack
from .scheme import scheme_of


def contribute_batched(
    codes: Ints,
    public: BatchedPublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> BatchedContribution:
    """Reduces a contributor's codes to one integer per query and encrypts its thermometers.

    Arguments and errors as `fhe.contribute`.
    """
    bits = _thermometers(codes, public, contributor, name)
    return _encrypted(bits, public, contributor, name, federation, batch)


def write_batched(
    path: Path,
    codes: Ints | int,
    public: BatchedPublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
    mode: int = PUBLIC,
) -> int:
    """As `contribute_batched` or `neutral_batched`, to a file, a ciphertext in memory at a time.

    Args:
        path: of the file.
        codes: as `fhe.contribute`; or the number of queries, for a neutral contribution.
        public, contributor, name, federation, batch: as `fhe.contribute`.
        mode: permission bits.

    Returns:
        Bytes of the file.

    Raises:
        InputError, StorageError: as `fhe.contribute`, or the file cannot be written.
    """
    if isinstance(codes, int):
        bits = public.parameters.layout.neutral(codes)
    else:
        bits = _thermometers(codes, public, contributor, name)
    nothing = Payload(b"", 0, 0)
    made = _message(bits, public, contributor, name, federation, batch, nothing)
    size = contribution_bytes(public.parameters, bits.shape[1])
    parts = encrypt_bits(bits, public)
    return write_in_parts(path, made.KIND, made.header(), parts, size, mode=mode)


def _thermometers(codes: Ints, public: BatchedPublicKey, contributor: int, name: str) -> Bits:
    parameters = public.parameters
    if not 0 <= contributor < parameters.contributors:
        raise InputError(
            f"contributor {name!r}: position {contributor}, the keys are for"
            f" {parameters.contributors} contributors"
        )
    if codes.ndim != 2 or len(codes) == 0:
        raise InputError(f"contributor {name!r}: codes of shape {codes.shape}, expected (q, C)")
    return parameters.thermometers(codes)


def neutral_batched(
    queries: int,
    public: BatchedPublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> BatchedContribution:
    """A contribution that changes no answer: no thermometer has a bit.

    Arguments as `fhe.neutral`.
    """
    bits = public.parameters.layout.neutral(queries)
    return _encrypted(bits, public, contributor, name, federation, batch)


def _encrypted(
    bits: Bits,
    public: BatchedPublicKey,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> BatchedContribution:
    content = b"".join(encrypt_bits(bits, public))
    held = Payload(content, 0, len(content))
    return _message(bits, public, contributor, name, federation, batch, held)


def _message(
    bits: Bits,
    public: BatchedPublicKey,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
    content: Payload,
) -> BatchedContribution:
    return BatchedContribution(
        parameters=public.parameters,
        key=public.key,
        federation=federation,
        batch=batch,
        queries=bits.shape[1],
        contributor=contributor,
        name=name,
        public=public.fingerprint,
        content=content,
    )


def encrypt_bits(bits: Bits, public: BatchedPublicKey) -> Iterator[bytes]:
    """Packed ciphertexts, set by set and bit by bit; slots beyond the queries are empty.

    Args:
        bits: shape (ciphertexts, queries), as `BatchedParameters.thermometers` gives them.
        public: the querier's.
    """
    parameters = public.parameters
    scheme, rule, degree = scheme_of(parameters.chain), parameters.circuit, parameters.degree
    centre = Centre(scheme)
    for start in range(0, bits.shape[1], degree):
        for number, row in enumerate(bits):
            level = rule.level_of(number)
            slots = np.zeros(degree, np.uint64)
            part = row[start : start + degree]
            slots[: len(part)] = part * rule.scale_of(number) % MODULUS
            zero = centre(public.encryptor.encrypt_zero(scheme.identifier(level)), level)
            scheme.evaluator.add_plain_inplace(zero, scheme.encoder.encode(slots))
            yield pack(scheme.residues(zero), parameters.chain.primes(level))

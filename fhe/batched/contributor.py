"""The contributor of a batched rule: encrypts thermometers, a query a slot."""

from collections.abc import Iterator

import numpy as np

from fhe.code import Ints
from fhe.envelope import Payload
from fhe.errors import InputError

from .chain import MODULUS
from .ciphertexts import Centre
from .keys import BatchedPublicKey
from .layout import Bits
from .messages import BatchedContribution
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
    parameters = public.parameters
    if not 0 <= contributor < parameters.contributors:
        raise InputError(
            f"contributor {name!r}: position {contributor}, the keys are for"
            f" {parameters.contributors} contributors"
        )
    if codes.ndim != 2 or len(codes) == 0:
        raise InputError(f"contributor {name!r}: codes of shape {codes.shape}, expected (q, C)")
    bits = parameters.thermometers(codes)
    return _encrypted(bits, public, contributor, name, federation, batch)


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
    return BatchedContribution(
        parameters=public.parameters,
        key=public.key,
        federation=federation,
        batch=batch,
        queries=bits.shape[1],
        contributor=contributor,
        name=name,
        public=public.fingerprint,
        content=Payload(content, 0, len(content)),
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

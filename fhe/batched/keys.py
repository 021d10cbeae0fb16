"""Keys of a batched rule: residues in the files of `fhe.keys` and `fhe.public_key`."""

import hashlib
import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fhe.code import Ints
from fhe.envelope import PRIVATE, Envelope, write_envelope
from fhe.errors import FormatError, LibraryError, SecretError, VersionError
from fhe.keys import EVALUATION_FILE, EVALUATION_KIND, SECRET_FILE, SECRET_KIND, seal_context
from fhe.public_key import PUBLIC_FILE, PUBLIC_KIND
from fhe.seal import seal as seal_bytes
from fhe.seal import unseal

from .chain import MODULUS, Chain
from .library import seal
from .noise import secret_bound
from .packing import Residues
from .parameters import BatchedParameters
from .scheme import Scheme, pack_key, packed_key_bytes, scheme_of, unpack_key

KEY_VERSION = 1


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


@attrs.frozen(slots=False)
class BatchedEvaluationKeys:
    """What the evaluator holds; it computes on ciphertexts and opens none.

    Attributes:
        parameters: of the rule.
        content: packed residues of the relinearisation keys, one a data prime.
    """

    parameters: BatchedParameters
    content: bytes = attrs.field(repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """Ties ciphertexts to these keys, 64 hexadecimal digits."""
        return _digest(self.parameters.fingerprint(), self.content)

    def check(self) -> None:
        """That the bytes are keys; without the library, whose tables would stay in the memory.

        Raises:
            FormatError: they are not.
        """
        for _ in self._unpacked():
            pass

    @cached_property
    def library_keys(self) -> Any:
        """The library's object.

        Raises:
            FormatError: the bytes are not evaluation keys.
        """
        return scheme_of(self.parameters.chain).relinearisation_keys(list(self._unpacked()))

    def _unpacked(self) -> Iterator[Residues]:
        chain = self.parameters.chain
        try:
            for part in _cut(self.content, packed_key_bytes(chain), _keys(chain)):
                yield unpack_key(part, chain)
        except FormatError as error:
            raise FormatError(f"evaluation keys: {error}; get them again") from None


def _keys(chain: Chain) -> int:
    return len(chain.key_primes) - 1


def _packed(scheme: Scheme, relinearisation: Any) -> bytes:
    residues = scheme.key_residues(relinearisation.to_string(), _keys(scheme.chain))
    return b"".join(pack_key(each, scheme.chain) for each in residues)


def _cut(content: bytes, size: int, count: int) -> list[bytes]:
    if len(content) != size * count:
        raise FormatError(f"{len(content)} bytes, expected {size * count}")
    return [content[i : i + size] for i in range(0, len(content), size)]


@attrs.frozen(slots=False)
class BatchedPublicKey:
    """What a contributor holds: it encrypts, and opens nothing, not even what it encrypted.

    Attributes:
        parameters: of the rule.
        key: fingerprint of the evaluation keys that go with it.
        content: packed residues.
    """

    parameters: BatchedParameters
    key: str
    content: bytes = attrs.field(repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """Ties ciphertexts to this key and to its evaluation keys, 64 hexadecimal digits."""
        return _digest(self.parameters.fingerprint(), self.key, self.content)

    @cached_property
    def encryptor(self) -> Any:
        """The library's encryptor.

        Raises:
            FormatError: the bytes are not a public key.
        """
        scheme = scheme_of(self.parameters.chain)
        return scheme.encryptor(scheme.public_key(self.residues()))

    def residues(self) -> Residues:
        """Of the key, shape (2, primes, n).

        Raises:
            FormatError: the bytes are not a public key.
        """
        try:
            return unpack_key(self.content, self.parameters.chain)
        except FormatError as error:
            raise FormatError(f"public key: {error}; get it again") from None


@attrs.frozen(slots=False, repr=False)
class BatchedSecretKeys:
    """The querier's keys. Whoever holds them reads every contribution and every answer.

    Attributes:
        parameters: of the rule.
        secret: the library's bytes of the secret key.
        evaluation: the keys to hand to the evaluator.
    """

    parameters: BatchedParameters
    secret: bytes
    evaluation: BatchedEvaluationKeys

    def __repr__(self) -> str:
        return f"BatchedSecretKeys({self.parameters}, {self.evaluation.fingerprint[:16]})"

    @cached_property
    def library_secret(self) -> Any:
        """The library's secret key."""
        return scheme_of(self.parameters.chain).context.from_secret_str(self.secret)

    @cached_property
    def decryptor(self) -> Any:
        """The library's decryptor."""
        scheme = scheme_of(self.parameters.chain)
        return seal().Decryptor(scheme.context, self.library_secret)


def generate_batched_keys(parameters: BatchedParameters) -> BatchedSecretKeys:
    """Fresh keys, from the operating system's randomness.

    A secret that is larger at a root than the noise is counted with, one of several hundred, is
    drawn again.

    Raises:
        LibraryError: the library refuses the parameters.
    """
    scheme = scheme_of(parameters.chain)
    while True:
        generator = seal().KeyGenerator(scheme.context)
        secret = generator.secret_key()
        if at_roots(ternary(scheme, secret)).max() <= secret_bound(parameters.degree):
            break
    relinearisation = generator.create_relin_keys()
    evaluation = BatchedEvaluationKeys(parameters, _packed(scheme, relinearisation))
    if evaluation.library_keys.to_string() != relinearisation.to_string():
        raise LibraryError("seal: keys are not laid out as expected; none were made")
    return BatchedSecretKeys(parameters, bytes(secret.to_string()), evaluation)


def make_batched_public_key(keys: BatchedSecretKeys) -> BatchedPublicKey:
    """A fresh public key of the querier."""
    scheme = scheme_of(keys.parameters.chain)
    made = seal().KeyGenerator(scheme.context, keys.library_secret).create_public_key()
    residues = scheme.key_residues(made.to_string(), 1)[0]
    content = pack_key(residues, scheme.chain)
    return BatchedPublicKey(keys.parameters, keys.evaluation.fingerprint, content)


def ternary(scheme: Scheme, secret: Any) -> Ints:
    """The secret's coefficients -1, 0 and 1: what (0, 1) decrypts to, for 0 + 1 s = s."""
    primes, degree = scheme.chain.primes(0), scheme.chain.degree
    one = np.zeros((2, len(primes), degree), np.uint64)
    one[1] = 1
    plain = seal().Decryptor(scheme.context, secret).decrypt(scheme.ciphertext(one, 0))
    count, data = plain.coeff_count(), plain.to_bytes()
    found = np.zeros(degree, np.int64)
    found[:count] = np.frombuffer(data, "<u8", count, len(data) - 8 * count).astype(np.int64)
    found[found > 1] -= MODULUS
    return found


def at_roots(coefficients: Ints) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Absolute values of a polynomial at the roots of X^n + 1."""
    n = len(coefficients)
    twisted = coefficients * np.exp(1j * math.pi * np.arange(n) / n)
    return np.abs(np.fft.fft(twisted))


def save_batched_secret_keys(folder: Path, keys: BatchedSecretKeys, passphrase: str) -> int:
    """Writes `secret.key`, sealed, mode 0600; returns its bytes."""
    header = _header(keys.evaluation)
    plain = len(keys.secret).to_bytes(8, "little") + keys.secret + keys.evaluation.content
    sealing, sealed = seal_bytes(plain, passphrase, seal_context(header))
    path = folder / SECRET_FILE
    return write_envelope(path, SECRET_KIND, {**header, "seal": sealing}, sealed, mode=PRIVATE)


def batched_secret_keys(envelope: Envelope, path: Path, passphrase: str) -> BatchedSecretKeys:
    """Opens a secret key file.

    Raises:
        SecretError: wrong passphrase or a changed file.
        VersionError: of another version; names both.
    """
    parameters = _parameters(envelope, path)
    header = dict(envelope.header)
    sealing = header.pop("seal", None)
    plain = unseal(envelope.payload, sealing, passphrase, seal_context(header))
    end = 8 + int.from_bytes(plain[:8], "little")
    evaluation = BatchedEvaluationKeys(parameters, plain[end:])
    if evaluation.fingerprint != header.get("key"):
        raise SecretError
    return BatchedSecretKeys(parameters, plain[8:end], evaluation)


def save_batched_evaluation_keys(folder: Path, keys: BatchedEvaluationKeys) -> int:
    """Writes `evaluation.key`; returns its bytes."""
    return write_envelope(folder / EVALUATION_FILE, EVALUATION_KIND, _header(keys), keys.content)


def batched_evaluation_keys(envelope: Envelope, path: Path) -> BatchedEvaluationKeys:
    """Of an evaluation key file.

    Raises:
        VersionError: of another version; names both.
        FormatError: its fingerprint does not fit its content.
    """
    keys = BatchedEvaluationKeys(_parameters(envelope, path), envelope.payload)
    if envelope.header.get("key") != keys.fingerprint:
        raise FormatError(f"{path}: its fingerprint does not fit its keys; get it again")
    return keys


def save_batched_public_key(folder: Path, public: BatchedPublicKey) -> int:
    """Writes `public.key`; returns its bytes."""
    header = {
        "parameters": public.parameters.to_json(),
        "key": public.key,
        "public": public.fingerprint,
        "version": KEY_VERSION,
    }
    return write_envelope(folder / PUBLIC_FILE, PUBLIC_KIND, header, public.content)


def batched_public_key(envelope: Envelope, path: Path) -> BatchedPublicKey:
    """Of a public key file.

    Raises:
        VersionError: of another version; names both.
        FormatError: its fingerprint does not fit its content, or its residues are none.
    """
    header, parameters = envelope.header, _parameters(envelope, path)
    members = {"parameters", "key", "public", "version"}
    if set(header) != members or not isinstance(header["key"], str):
        raise FormatError(f"{path}: header members are missing or unknown; get it again")
    public = BatchedPublicKey(parameters, header["key"], envelope.payload)
    if header["public"] != public.fingerprint:
        raise FormatError(f"{path}: its fingerprint does not fit its key; get it again")
    try:
        # Without the library, whose tables would stay in this process's memory.
        public.residues()
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return public


def _header(keys: BatchedEvaluationKeys) -> dict[str, Any]:
    return {
        "parameters": keys.parameters.to_json(),
        "key": keys.fingerprint,
        "version": KEY_VERSION,
    }


def _parameters(envelope: Envelope, path: Path) -> BatchedParameters:
    version = envelope.header.get("version", 0)
    if version != KEY_VERSION:
        raise VersionError(
            f"{path}: a key of engine bgv of version {version!s:.10}, this package reads version"
            f" {KEY_VERSION}; make new keys with this release"
        )
    return BatchedParameters.from_json(envelope.header.get("parameters"), source=str(path))

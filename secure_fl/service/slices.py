"""What an evaluator and its workers tell each other: files by digest, and slices to answer.

A worker is told of files (keys, contributions) by their SHA-256; those that it lacks it names, and
gets them once. Nothing is pickled: files are the product's own envelopes, read as those of any
peer, and circuits are compiled by each worker from the rule's public parameters.
"""

import json
import platform
import re
from importlib.metadata import PackageNotFoundError, version

import attrs

from fhe.envelope import load_json

EVALUATOR = "evaluator"
"""Name of the evaluator among the members of its workers' circle."""
PATIENCE = 20.0
"""Seconds that a request for a slice's answer is kept open."""
_LIBRARIES = ("concrete-python", "seal-python", "numpy")


@attrs.frozen(kw_only=True)
class Slice:
    """Queries of a batch, and the files that answer them.

    Attributes:
        release: of the evaluator, see `release`; a worker of another one refuses.
        evaluation, public: digests of the querier's key files.
        contributions: digests of the contributors' files.
        first, last: the queries of these contributions, first to last - 1.
    """

    release: str
    evaluation: str
    public: str
    contributions: tuple[str, ...]
    first: int
    last: int

    @property
    def files(self) -> tuple[str, ...]:
        """All digests."""
        return (self.evaluation, self.public, *self.contributions)

    def to_bytes(self) -> bytes:
        """As JSON; the same slice has the same bytes."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Slice":
        """Reads what `to_bytes` made.

        Raises:
            ValueError: something else.
        """
        found = load_json(data)
        if not isinstance(found, dict) or set(found) != {each.name for each in attrs.fields(cls)}:
            raise ValueError("not a slice")
        listed = found["contributions"]
        if not isinstance(listed, list) or not listed:
            raise ValueError("not a slice")
        made = cls(**{**found, "contributions": tuple(listed)})
        if not all(map(is_digest, made.files)) or type(made.release) is not str:
            raise ValueError("not a slice")
        if type(made.first) is not int or type(made.last) is not int:
            raise ValueError("not a slice")
        return made


def is_digest(value: object) -> bool:
    """Whether it is a SHA-256 in lower-case hexadecimal digits, and so a safe name of a file."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def release() -> str:
    """Versions of all that decides an answer's bytes: this package, the engines, the processor."""
    found = [f"securefl {version('securefl')}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} none")
    return ", ".join([*found, platform.machine()])

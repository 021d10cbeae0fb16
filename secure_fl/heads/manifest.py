"""The public facts of a federation, `federation.json`: what every party must agree on.

Nothing in it is computed from private records, except the class list and the clients' names, which
the consortium agrees to share. Its fingerprint is stored in every head and every message.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import deep_iterable, ge, gt, in_, instance_of, le, min_len, optional

from fhe.envelope import write_atomic
from kahm import BATCHINGS, MEASURES, REGULARISATIONS
from secure_fl.data.scaling import SCALINGS, Scaling
from secure_fl.errors import InputError
from secure_fl.files import read_json_object

FORMAT_VERSION = 1
FILE_NAME = "federation.json"
MODEL_FILE = "model"
"""What the run folder of a method by rounds has in its place."""
MAX_BYTES = 16 * 2**20
"""A manifest is small; anything larger is not one."""

RULES = ("tournament", "paper")
ROLES = ("querier", "evaluator")
"""Members of a federation on a network that are no clients."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def _unique(_: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    repeated = sorted({item for item in value if value.count(item) > 1})
    if repeated:
        raise ValueError(f"'{attribute.name}' holds {repeated[0]!r} more than once")


def _file_names(_: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    # A client's name is the name of its folder, so it must not lead out of the run folder.
    for name in value:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"'{attribute.name}' holds {name!r}; use letters, digits, '.', '_' and '-', not"
                " starting with '.', at most 64"
            )


def _finite(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise ValueError(f"'{attribute.name}' is an integer beyond float64") from None
    if not finite:
        raise ValueError(f"'{attribute.name}' must be finite, found {value}")


def _optional_tuple(value: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def _optional_numbers(value: Iterable[Any] | None) -> tuple[float, ...] | None:
    return None if value is None else tuple(float(each) for each in value)


def _pairs(value: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(pair) for pair in value]
    if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in pairs):
        raise ValueError("'members' is not a list of names with their keys")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _tried(value: Iterable[Iterable[Any]]) -> tuple[tuple[str, int, int], ...]:
    found = [tuple(each) for each in value]
    for each in found:
        if [type(part) for part in each] != [str, int, int]:
            raise ValueError("'tried' is not a list of settings, each with two counts")
    return tuple((each[0], each[1], each[2]) for each in found)


_names = [deep_iterable(instance_of(str), instance_of(tuple)), _unique]
_integer = instance_of(int)
_number = [instance_of((int, float)), _finite]


@attrs.frozen(kw_only=True)
class Manifest:
    """What the parties of a federation agree on before anything is trained.

    Attributes:
        classes: label names, at least 2; a class's code is its position.
        clients: names, at least 1, in the order in which the evaluator counts them.
        n_features: features of an encoded record, before and after scaling.
        features: names of the features in their order, where the files name them.
        encoder: what makes features of raw records, e.g. "package:NAME"; "none" for records that
            are features already.
        encoder_fingerprint: digest of the encoder's files; empty for "none".
        scale: constant factor on every feature, above 0.
        scaling: where `offsets` and `spreads` come from, see `secure_fl.data.Scaling`; "none" in
            manifests that do not say.
        offsets: of every feature, public; None without a scaling.
        spreads: of every feature, public, above 0; None without a scaling.
        batch_size: N_b of eq. (119), at least 1.
        batching: how a client's records of a class are split into batches.
        measure: option of eq. (102).
        regularisation: lambda* of eq. (149), "absolute", or "relative" to the records' root mean
            square; "absolute" in manifests that do not say.
        regularisation_factor: on lambda*, above 0; 1 in manifests that do not say.
        tried: settings that were compared before, with records that each classified rightly and
            records in all, by cross-validation inside the clients.
        bits: p of the integer code, 4 to 16.
        low: measure that gets the smallest code; public.
        high: measure that gets the largest code, above `low`; public.
        rule: encrypted rule, "tournament" or "paper".
        unit: what a client's differential privacy protects, "none" when there is no noise.
        members: where the parties meet on a network, their public keys by name: those of all
            clients, of "querier" and of "evaluator", each 128 hexadecimal digits (see
            `secure_fl.service.members`); else empty.
    """

    classes: tuple[str, ...] = attrs.field(validator=[*_names, min_len(2)], converter=tuple)
    clients: tuple[str, ...] = attrs.field(
        validator=[*_names, min_len(1), _file_names], converter=tuple
    )
    n_features: int = attrs.field(validator=[_integer, ge(1)])
    features: tuple[str, ...] | None = attrs.field(
        default=None,
        validator=optional(_names),
        converter=_optional_tuple,
    )
    encoder: str = attrs.field(default="none", validator=instance_of(str))
    encoder_fingerprint: str = attrs.field(default="", validator=instance_of(str))
    scale: float = attrs.field(default=1.0, validator=[*_number, gt(0)])
    batch_size: int = attrs.field(default=100, validator=[_integer, ge(1)])
    batching: str = attrs.field(default="order", validator=in_(BATCHINGS))
    measure: str = attrs.field(default="folding", validator=in_(MEASURES))
    bits: int = attrs.field(default=8, validator=[_integer, ge(4), le(16)])
    low: float = attrs.field(default=0.0, validator=[*_number, ge(0)])
    high: float = attrs.field(default=1.0, validator=[*_number, le(1)])
    rule: str = attrs.field(default="tournament", validator=in_(RULES))
    unit: str = attrs.field(default="none", validator=in_(("none", "element", "record")))

    scaling: str = attrs.field(default="none", validator=in_(SCALINGS))
    offsets: tuple[float, ...] | None = attrs.field(default=None, converter=_optional_numbers)
    spreads: tuple[float, ...] | None = attrs.field(default=None, converter=_optional_numbers)
    regularisation: str = attrs.field(default="absolute", validator=in_(REGULARISATIONS))
    regularisation_factor: float = attrs.field(default=1.0, validator=[*_number, gt(0)])
    tried: tuple[tuple[str, int, int], ...] = attrs.field(default=(), converter=_tried)
    members: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)

    def __attrs_post_init__(self) -> None:
        if self.unit != "none" and self.scaling == "moments":
            raise ValueError(
                f"'scaling' is of private means and spreads, and 'unit' {self.unit!r} promises"
                " privacy"
            )
        if self.unit != "none" and self.tried:
            raise ValueError(
                f"'tried' counts private records, and 'unit' {self.unit!r} promises privacy"
            )
        try:
            self.scaling_map.check_width(self.n_features, where="'offsets'")
        except InputError as error:
            raise ValueError(str(error)) from None

    @members.validator
    def _all_parties(self, _: object, value: tuple[tuple[str, str], ...]) -> None:
        names = [name for name, _ in value]
        if value and names != [*self.clients, *ROLES]:
            raise ValueError(
                f"'members' holds the keys of {', '.join(names)[:200]}; expected those of all"
                f" clients in their order, then of {' and '.join(ROLES)}"
            )
        for name, keys in value:
            if not re.fullmatch("[0-9a-f]{128}", keys):
                raise ValueError(f"'members' holds no keys of 128 hexadecimal digits for {name!r}")

    @high.validator
    def _above_low(self, _: object, value: float) -> None:
        if not value > self.low:
            raise ValueError(f"'high' must be above 'low' {self.low}, found {value}")

    @property
    def scaling_map(self) -> Scaling:
        """What is done to every feature."""
        return Scaling(
            kind=self.scaling, factor=self.scale, offsets=self.offsets, spreads=self.spreads
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The fields, without those of later versions that say nothing."""
        found = attrs.asdict(self)
        return {
            name: value
            for name, value in found.items()
            if name not in _LATER or value != _LATER[name]
        }

    @property
    def fingerprint(self) -> str:
        """Digest of all fields, 64 hexadecimal digits."""
        return _digest(self.facts)

    @property
    def heads_fingerprint(self) -> str:
        """Digest of what a head depends on: everything but `members`, whose keys may change."""
        return _digest({name: value for name, value in self.facts.items() if name != "members"})

    def client_index(self, name: str) -> int:
        """Position of a client.

        Raises:
            InputError: no client of that name.
        """
        if name not in self.clients:
            raise InputError(
                f"client {name!r}: unknown, the federation has {', '.join(self.clients[:10])}"
            )
        return self.clients.index(name)


_LATER: dict[str, Any] = {
    "members": (),
    "scaling": "none",
    "offsets": None,
    "spreads": None,
    "regularisation": "absolute",
    "regularisation_factor": 1.0,
    "tried": (),
}
"""Fields that the first manifests did not have, and what their absence means."""


def _digest(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def facts_of(scaling: Scaling) -> dict[str, Any]:
    """A scaling as fields of `Manifest`."""
    return {
        "scale": scaling.factor,
        "scaling": scaling.kind,
        "offsets": scaling.offsets,
        "spreads": scaling.spreads,
    }


def make_manifest(**fields: Any) -> Manifest:
    """A `Manifest`, with every refusal as an InputError of one line."""
    try:
        return Manifest(**fields)
    except (ValueError, TypeError) as error:
        raise InputError(f"federation: {_first_line(error)}") from error


def save_manifest(folder: Path, manifest: Manifest) -> Path:
    """Writes `federation.json` into a folder, whole or not at all."""
    content = {
        "format": FORMAT_VERSION,
        "fingerprint": manifest.fingerprint,
        **manifest.facts,
    }
    path = folder / FILE_NAME
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
    return path


def load_manifest(path: Path) -> Manifest:
    """Reads a manifest.

    Args:
        path: the file, or a folder with a `federation.json`.

    Raises:
        InputError: absent, a trainer's run folder, too large, not JSON, of another format version,
            with fields missing, unknown or out of range, or edited after it was written (the
            fingerprint differs).
    """
    if not (path / FILE_NAME).exists() and (path / MODEL_FILE).is_file():
        raise InputError(
            f"{path}: holds a model of `securefl train --method`, no heads; classify with"
            f" `securefl predict {path} QUERIES`"
        )
    path = path if path.is_file() else path / FILE_NAME
    content = read_json_object(
        path, MAX_BYTES, "manifest, as `securefl train` writes it into a run folder"
    )
    version = content.pop("format", None)
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {version}, this securefl reads version {FORMAT_VERSION}"
        )
    stored = content.pop("fingerprint", None)
    fields = {field.name for field in attrs.fields(Manifest)}
    if set(content) | set(_LATER) != fields:
        wrong = sorted((set(content) | set(_LATER)) ^ fields)
        raise InputError(f"{path}: missing or unknown fields {', '.join(wrong)}; train again")
    try:
        manifest = Manifest(**content)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InputError(f"{path}: {_first_line(error)}") from error
    if manifest.fingerprint != stored:
        raise InputError(f"{path}: edited after it was written (fingerprint); train again")
    return manifest


def _first_line(error: Exception) -> str:
    # attrs puts the message first and then the attribute and the value.
    text = error.args[0] if error.args else error
    return str(text).splitlines()[0]

"""The public facts of a federation, `federation.json`: what every party must agree on.

Nothing in it is computed from private records, except what the consortium agrees to share: the
class list, the clients' names and, where no privacy is promised, sums over all clients, which are
means and deviations of features and sums over settings that were tried. Its fingerprint is stored
in every head and every message.
"""

import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import (
    ge,
    gt,
    in_,
    instance_of,
    le,
    matches_re,
    min_len,
    optional,
)

from fhe.envelope import write_atomic
from kahm import BATCHINGS, MEASURES, REGULARISATIONS
from secure_fl.crypto.identities import EVALUATOR, QUERIER
from secure_fl.data.scaling import SCALINGS, Scaling
from secure_fl.errors import InputError
from secure_fl.files import read_json_object
from secure_fl.heads.manifest_fields import (
    INTEGER,
    NAMES,
    NUMBER,
    TriedFact,
    asking_names,
    file_names,
    lineage_of,
    members_of,
    number_or_none,
    optional_numbers,
    optional_tuple,
    tried_of,
)
from secure_fl.masked import RowCoding, VoteCoding

FORMAT_VERSION = 1
FILE_NAME = "federation.json"
MODEL_FILE = "model"
"""What the run folder of a method by rounds has in its place."""
MAX_BYTES = 16 * 2**20
"""A manifest is small; anything larger is not one."""

RULES = ("tournament", "paper", "masked", "votes")
SUMMED = ("masked", "votes")
"""Rules without keys and ciphertexts: one secure sum a batch."""
UNKNOWN = "unknown"
"""The answer that a query is of none of the classes, and who contributes its threshold."""
LATER = (
    *("schema", "members", "lineage", "unknown_above", "temperature"),
    *("scaling", "offsets", "spreads", "regularisation", "regularisation_factor", "tried"),
    *("answer_noise", "queriers"),
)
"""Fields of later versions: at their defaults, files and fingerprints are as before them."""
NOT_OF_HEADS = (
    *("members", "lineage", "unknown_above", "temperature", "answer_noise", "queriers"),
)
"""Fields that no head depends on."""


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
            square, also with a floor for machines of single records; "absolute" in manifests that
            do not say.
        regularisation_factor: on lambda*, above 0; 1 in manifests that do not say.
        tried: settings that were compared before, with records that each classified rightly,
            records in all and the loss that decided (`secure_fl.trainers.head_tuning`), by
            cross-validation inside the clients; earlier versions have no loss.
        bits: p of the integer code, 4 to 16.
        low: measure that gets the smallest code; public.
        high: measure that gets the largest code, above `low`; public.
        rule: by which queries are answered: "tournament" or "paper" on ciphertexts, "masked" or
            "votes" as one secure sum.
        answer_noise: standard deviation, in votes, of the noise that is surely in an answer of the
            rule votes, above 0; 0 under the others.
        unit: what a client's differential privacy protects, "none" when there is no noise.
        unknown_above: measure above which a query is of none of the classes; public, calibrated on
            public data, above `low` and below `high`. None: every query gets a class.
        temperature: of the probabilities exp(-measure / temperature) over their sum; public, fitted
            on public data. None: measures are not turned into probabilities.
        schema: digest of the schema that the clients' tables were prepared by; "" for none.
        members: where the parties meet on a network, their public keys by name: those of all
            clients, of all queriers and of "evaluator", each 128 hexadecimal digits (see
            `secure_fl.service.members`); else empty.
        queriers: names of those who may ask over a network, at least 1; one, called "querier", in
            manifests that do not say.
        lineage: of a successor: fingerprint and heads' fingerprint of every federation before it,
            oldest first, each 64 hexadecimal digits; else empty.
    """

    classes: tuple[str, ...] = attrs.field(validator=[*NAMES, min_len(2)], converter=tuple)
    clients: tuple[str, ...] = attrs.field(
        validator=[*NAMES, min_len(1), file_names], converter=tuple
    )
    n_features: int = attrs.field(validator=[INTEGER, ge(1)])
    features: tuple[str, ...] | None = attrs.field(
        default=None,
        validator=optional(NAMES),
        converter=optional_tuple,
    )
    encoder: str = attrs.field(default="none", validator=instance_of(str))
    encoder_fingerprint: str = attrs.field(default="", validator=instance_of(str))
    scale: float = attrs.field(default=1.0, validator=[*NUMBER, gt(0)])
    batch_size: int = attrs.field(default=100, validator=[INTEGER, ge(1)])
    batching: str = attrs.field(default="order", validator=in_(BATCHINGS))
    measure: str = attrs.field(default="folding", validator=in_(MEASURES))
    bits: int = attrs.field(default=8, validator=[INTEGER, ge(4), le(16)])
    low: float = attrs.field(default=0.0, validator=[*NUMBER, ge(0)])
    high: float = attrs.field(default=1.0, validator=[*NUMBER, le(1)])
    rule: str = attrs.field(default="tournament", validator=in_(RULES))
    unit: str = attrs.field(default="none", validator=in_(("none", "element", "record")))
    schema: str = attrs.field(default="", validator=matches_re("([0-9a-f]{64})?"))
    members: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=members_of)
    lineage: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=lineage_of)
    unknown_above: float | None = attrs.field(default=None, validator=number_or_none)
    temperature: float | None = attrs.field(default=None, validator=number_or_none)
    scaling: str = attrs.field(default="none", validator=in_(SCALINGS))
    offsets: tuple[float, ...] | None = attrs.field(default=None, converter=optional_numbers)
    spreads: tuple[float, ...] | None = attrs.field(default=None, converter=optional_numbers)
    regularisation: str = attrs.field(default="absolute", validator=in_(REGULARISATIONS))
    regularisation_factor: float = attrs.field(default=1.0, validator=[*NUMBER, gt(0)])
    tried: tuple[TriedFact, ...] = attrs.field(default=(), converter=tried_of)
    answer_noise: float = attrs.field(default=0.0, validator=[*NUMBER, ge(0)])
    queriers: tuple[str, ...] = attrs.field(
        default=(QUERIER,), validator=[*NAMES, min_len(1), asking_names], converter=tuple
    )

    @unknown_above.validator
    def _threshold(self, _: object, value: float | None) -> None:
        if value is None:
            return
        if not self.low < value < self.high:
            raise ValueError(
                f"'unknown_above' is {value}, expected above {self.low} and below {self.high}, as"
                " the codes span"
            )
        if UNKNOWN in (*self.classes, *self.clients):
            raise ValueError(f"'unknown_above': a class or client is called {UNKNOWN!r} already")
        if self.members:
            raise ValueError("'unknown_above': the service over a network does not offer it")
        if self.rule == "masked":
            raise ValueError(
                "'unknown_above': the rule masked shows distances instead; choose a bound with"
                " --unknown-from when you ask"
            )
        if self.rule == "votes":
            raise ValueError("'unknown_above': under the rule votes every query gets a class")

    @lineage.validator
    def _fingerprints(self, _: object, value: tuple[tuple[str, str], ...]) -> None:
        if not all(re.fullmatch("[0-9a-f]{64}", each) for pair in value for each in pair):
            raise ValueError("'lineage' holds no fingerprints of 64 hexadecimal digits")

    def __attrs_post_init__(self) -> None:
        if self.unit != "none" and self.scaling == "moments":
            raise ValueError(
                f"'scaling' is of private means and spreads, and 'unit' {self.unit!r} promises"
                " privacy"
            )
        if self.rule == "votes" and (self.scaling in ("moments", "released") or self.tried):
            raise ValueError(
                "'scaling' or 'tried' is of all clients' records, and under the rule votes every"
                " vote would depend on it"
            )
        if self.unit != "none" and self.tried:
            raise ValueError(
                f"'tried' sums over private records, and 'unit' {self.unit!r} promises privacy"
            )
        try:
            self.scaling_map.check_width(self.n_features, where="'offsets'")
        except InputError as error:
            raise ValueError(str(error)) from None

    @members.validator
    def _all_parties(self, _: object, value: tuple[tuple[str, str], ...]) -> None:
        names = [name for name, _ in value]
        if value and names != [*self.parties]:
            raise ValueError(
                f"'members' holds the keys of {', '.join(names)[:200]}; expected those of all"
                f" clients in their order, then of {', '.join(self.queriers)[:200]} and {EVALUATOR}"
            )
        for name, keys in value:
            if not re.fullmatch("[0-9a-f]{128}", keys):
                raise ValueError(f"'members' holds no keys of 128 hexadecimal digits for {name!r}")

    @rule.validator
    def _sums_can_be(self, _: object, value: str) -> None:
        if value in SUMMED and len(self.clients) < 2:
            raise ValueError(f"'rule' {value} needs at least 2 clients: a sum of one is that one's")
        if value == "masked":
            # Refuses rows that are too long.
            RowCoding(self.bits, len(self.classes))

    @answer_noise.validator
    def _of_votes(self, _: object, value: float) -> None:
        if (value > 0) != (self.rule == "votes"):
            raise ValueError(
                f"'answer_noise' is {value:g} and 'rule' {self.rule}: noise above 0 is of the rule"
                " votes, and of it alone (--answer-noise)"
            )
        if value > 0:
            VoteCoding(classes=len(self.classes), contributors=len(self.clients), noise=value)

    @high.validator
    def _above_low(self, _: object, value: float) -> None:
        if not value > self.low:
            raise ValueError(f"'high' must be above 'low' {self.low}, found {value}")

    @property
    def parties(self) -> tuple[str, ...]:
        """All members of the federation on a network: clients, queriers and the evaluator."""
        return (*self.clients, *self.queriers, EVALUATOR)

    @property
    def summed(self) -> bool:
        """Whether queries are answered by secure sums, without keys and ciphertexts."""
        return self.rule in SUMMED

    @property
    def answers(self) -> tuple[str, ...]:
        """What a query may get: the classes, and "unknown" last where there is a threshold."""
        return self.classes if self.unknown_above is None else (*self.classes, UNKNOWN)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Who contributes to an encrypted answer: the clients, and the threshold last."""
        return self.clients if self.unknown_above is None else (*self.clients, UNKNOWN)

    @property
    def scaling_map(self) -> Scaling:
        """What is done to every feature."""
        return Scaling(
            kind=self.scaling, factor=self.scale, offsets=self.offsets, spreads=self.spreads
        )

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all fields, 64 hexadecimal digits."""
        # Kept: a service asks for it several times a request, and it takes as long as a signature.
        return _digest(self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """All fields, without those of later versions that say nothing."""
        fields = attrs.fields_dict(Manifest)
        silent = {name for name in LATER if getattr(self, name) == fields[name].default}
        return {key: each for key, each in attrs.asdict(self).items() if key not in silent}

    @property
    def heads_fingerprint(self) -> str:
        """Digest of what a head depends on: not of keys, ancestors and thresholds."""
        return _digest({key: each for key, each in self.facts.items() if key not in NOT_OF_HEADS})

    def takes_heads_of(self, fingerprint: object) -> bool:
        """Whether heads of that `heads_fingerprint` are heads of this federation.

        A head depends on its own client's records and on facts that a successor keeps.
        """
        known = (self.heads_fingerprint, *(heads for _, heads in self.lineage))
        return fingerprint in known

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


def _digest(facts: dict[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def scaling_facts(scaling: Scaling) -> dict[str, Any]:
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
    return manifest_of(content, path)


def manifest_of(content: dict[str, Any], path: Path) -> Manifest:
    """A manifest from what `save_manifest` wrote.

    Args:
        content: the object in the file.
        path: of it, for messages.

    Raises:
        InputError: as `load_manifest`.
    """
    content = dict(content)
    version = content.pop("format", None)
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {version}, this securefl reads version {FORMAT_VERSION}"
        )
    stored = content.pop("fingerprint", None)
    fields = {field.name for field in attrs.fields(Manifest)}
    if set(content) | set(LATER) != fields:
        wrong = sorted((set(content) | set(LATER)) ^ fields)
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

"""How a run's queries are answered: parameters, keys, and what crossed between the parties."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fhe
from fhe.batched import inspection
from fhe.inspection import PUBLIC_KEY, SECURITY, describe_keys
from secure_fl.errors import InputError
from secure_fl.heads.codes import refuse_masked, rule_parameters
from secure_fl.heads.manifest import FILE_NAME, Manifest
from secure_fl.heads.masked import coding_of
from secure_fl.masked import RowCoding, VoteCoding

KEY_FILES = {
    "public.key": "the contributors and the evaluator",
    "evaluation.key": "the evaluator",
    "secret.key": "nobody: it stays with the querier, sealed with a passphrase",
}


MASKED_SECURITY = (
    "masks and rows are AES-256 keystreams, keys are agreed by X25519, shares are sealed by"
    " ChaCha20-Poly1305 and open secrets from a threshold on (Bonawitz et al. 2017)",
    "a sum has the distribution of one row of the smallest integer: whoever opens it can make all"
    " that it sees from the answer",
)

VOTES_SECURITY = (
    MASKED_SECURITY[0],
    "each contributor adds its own part of discrete Gaussian noise before it masks, so that the"
    " noise in a sum is nobody's to take off while fewer than a third pool what they know",
)


@dataclass(frozen=True)
class Sent:
    """One file that crosses, or would cross, between parties.

    Attributes:
        what: the file, in words.
        to: who gets it.
        count: how many of them.
        n_bytes: of all of them together.
        queries: in a message; None for other files.
    """

    what: str
    to: str
    count: int
    n_bytes: int
    queries: int | None = None


@dataclass(frozen=True)
class Encryption:
    """What is known of the rule.

    Attributes:
        parameters: of the encrypted rule, with a failure probability of 2^-128 where no key folder
            is given; of rules of sums how codes become rows.
        key: fingerprint of the keys; None without a key folder.
        lattices: sentences on the lattices, from the compiler; empty without an evaluation key.
        security: what the security rests on.
        sent: files and messages.
    """

    parameters: fhe.AnyParameters | RowCoding | VoteCoding
    key: str | None
    lattices: tuple[str, ...]
    security: tuple[str, ...]
    sent: tuple[Sent, ...]


def read_encryption(
    run: Path,
    manifest: Manifest,
    keys: Path | None,
    contributions: Sequence[Path],
    answers: Sequence[Path],
) -> Encryption:
    """Reads the public facts of keys and messages; opens no secret.

    Args:
        run: the run folder.
        manifest: the federation's facts.
        keys: a key folder, or None.
        contributions: message files of clients.
        answers: message files of the evaluator.

    Raises:
        InputError: keys or messages of another federation, or of a rule that has none.
        fhe.FormatError: a file is damaged.
    """
    sent = [Sent(FILE_NAME, "everybody", 1, (run / FILE_NAME).stat().st_size)]
    if manifest.summed:
        if keys is not None or contributions or answers:
            refuse_masked(manifest)
        security = VOTES_SECURITY if manifest.rule == "votes" else MASKED_SECURITY
        return Encryption(coding_of(manifest), None, (), security, tuple(sent))
    key: str | None = None
    lattices: tuple[str, ...] = ()
    parameters: fhe.AnyParameters = rule_parameters(manifest, failure_exponent=128, block=32)
    if keys is not None:
        parameters, key, lattices = _keys(keys, manifest)
        sent += [
            Sent(name, to, 1, (keys / name).stat().st_size)
            for name, to in KEY_FILES.items()
            if (keys / name).exists()
        ]
    sent += _messages(manifest, contributions, answers)
    batched = isinstance(parameters, fhe.BatchedParameters)
    security = (
        inspection.SECURITY if batched else SECURITY,
        (inspection.PUBLIC_KEY if batched else PUBLIC_KEY),
    )
    return Encryption(parameters, key, lattices, security, tuple(sent))


def _keys(keys: Path, manifest: Manifest) -> tuple[fhe.AnyParameters, str, tuple[str, ...]]:
    public = fhe.load_public_key(keys)
    found = public.parameters
    # The batched engine's keys serve either rule: both name the same class.
    rule = manifest.rule if isinstance(found, fhe.BatchedParameters) else found.rule
    facts = (found.contributors, found.classes, found.bits, rule)
    expected = (len(manifest.contributors), len(manifest.answers), manifest.bits, manifest.rule)
    if facts != expected:
        raise InputError(
            f"{keys}: keys for {found.contributors} contributors, {found.classes} classes,"
            f" {found.bits}-bit codes and the {rule} rule, the federation has"
            f" {expected[0]}, {expected[1]}, {expected[2]} and {expected[3]};"
            " name the folder of this federation's keys"
        )
    if not (keys / "evaluation.key").exists():
        return found, public.key, ()
    described = describe_keys(fhe.load_evaluation_keys(keys))
    return found, described.fingerprint, described.lattices


def _messages(
    manifest: Manifest, contributions: Sequence[Path], answers: Sequence[Path]
) -> list[Sent]:
    sent = []
    if contributions:
        loaded = [fhe.load_contribution(path) for path in contributions]
        for path, each in zip(contributions, loaded, strict=True):
            _check(path, each.federation, manifest)
        size = sum(path.stat().st_size for path in contributions)
        queries = sum(each.queries for each in loaded)
        sent.append(Sent("contributions", "the evaluator", len(loaded), size, queries))
    for path in answers:
        answer = fhe.load_answer(path)
        _check(path, answer.federation, manifest)
        sent.append(Sent("answer", "the querier", 1, path.stat().st_size, answer.queries))
    return sent


def _check(path: Path, federation: str, manifest: Manifest) -> None:
    if federation != manifest.fingerprint:
        raise InputError(f"{path}: of another federation; leave it out, or name its run folder")

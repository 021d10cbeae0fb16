"""Heads that answer by one secure sum, and what their owner's policy says of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from secure_fl.errors import InputError
from secure_fl.files import read_json_object
from secure_fl.heads.codes import head_codes
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.statements import STATEMENT_FILES
from secure_fl.masked import Coding, MaskedAnswer, MaskedRule, RowCoding, Told, VoteCoding
from secure_fl.progress import Progress, quiet

_MOST_STATEMENT = 2**20
"""Bytes; a statement is small."""


@frozen(kw_only=True)
class MaskedPolicy:
    """What a contributor's owner insists on under the rule `masked`.

    Attributes:
        exact_heads: whether heads answer that are no differentially private releases. By default
            not: the answer shows the smallest distance, and a distance of 0 says that a record like
            the query is there.
    """

    exact_heads: bool = False

    def check(self, run: Path, manifest: Manifest, clients: Sequence[str]) -> None:
        """Refuses heads that may not answer.

        Args:
            run: the run folder; a release has its statement there, beside the head.
            manifest: of the federation.
            clients: whose heads are to answer.

        Raises:
            InputError: a head is no release, or its statement says that nothing is guaranteed. Not
                under the rule votes, whose answers have noise of their own.
        """
        if self.exact_heads or manifest.rule == "votes":
            return
        for client in clients:
            reason = _unprotected(run, manifest, client)
            if reason:
                raise InputError(
                    f'client "{client}": {reason}, and the rule masked shows the smallest distance:'
                    " a distance of 0 says that a record like the query is there; train with"
                    " --epsilon, --delta and --unit, or allow it (--exact-heads)"
                )


def _unprotected(run: Path, manifest: Manifest, client: str) -> str:
    """Why a head is not covered by differential privacy; "" where it is."""
    if manifest.unit == "none":
        return "its head holds its records and is no differentially private release"
    path = run / "clients" / client / STATEMENT_FILES[0]
    if not path.exists():
        return f"no statement of privacy is beside its head ({path})"
    found = read_json_object(path, _MOST_STATEMENT, "statement, as `securefl train` writes it")
    return "" if found.get("guarantee") is True else f"its release promises nothing ({path})"


def coding_of(manifest: Manifest, quorum: int | None = None) -> Coding:
    """How codes of a federation become rows of its sums.

    Args:
        manifest: of a federation whose rule is one of sums.
        quorum: contributors that must be left; None for the default. The noise of votes is sized
            for it.

    Raises:
        InputError: a quorum that leaves no honest part of the noise.
    """
    classes = len(manifest.classes)
    if manifest.rule == "masked":
        return RowCoding(manifest.bits, classes)
    return VoteCoding(
        classes=classes,
        contributors=len(manifest.clients),
        noise=manifest.answer_noise,
        threshold=quorum,
    )


def masked_rule(
    manifest: Manifest, *, threshold: int | None = None, degree: int | None = None
) -> MaskedRule:
    """The rule of a federation, a fresh session of all parties in this process.

    Args:
        manifest: of a federation whose rule is masked or votes.
        threshold: contributors that must be left, or None for the default.
        degree: contributors that each masks with; None for all others, as votes need it.

    Raises:
        InputError: the federation has another rule, or an argument is out of range.
    """
    if not manifest.summed:
        raise InputError(
            f"federation: its rule is {manifest.rule!r} (federation.json), not masked; train with"
            " --rule masked"
        )
    return MaskedRule(
        contributors=manifest.clients,
        classes=len(manifest.classes),
        bits=manifest.bits,
        threshold=threshold,
        degree=degree,
        noise=manifest.answer_noise or None,
    )


def masked_answer(
    rule: MaskedRule,
    heads: Sequence[Head],
    features: NDArray[Any],
    manifest: Manifest,
    *,
    batch: str,
    progress: Progress = quiet,
) -> MaskedAnswer:
    """Answers queries by the heads that are here; the other contributors count as dropped out.

    Args:
        rule: from `masked_rule`.
        heads: of contributors.
        features: scaled queries, shape (queries, n_features).
        manifest: the federation's facts.
        batch: name of the query batch.
        progress: told after every sum.

    Raises:
        QuorumError: fewer heads than the threshold; nothing is computed on.
    """
    codes = {head.client: head_codes(head, features, manifest) for head in heads}
    return rule.answer(codes, Told(manifest.fingerprint, batch, features), progress=progress)


def distances(codes: NDArray[np.int64], manifest: Manifest) -> NDArray[np.float64]:
    """Smallest codes as measures, shape (queries,): each within half a step of the codes.

    The smallest code stands for `low` and everything below it, the largest for `high` and
    everything above it.
    """
    share = codes / (2**manifest.bits - 1)
    found: NDArray[np.float64] = manifest.low + share * (manifest.high - manifest.low)
    return found

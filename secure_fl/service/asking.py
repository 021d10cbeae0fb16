"""Asking a federation from end to end: the querier's side as one call, and as one object."""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fhe
from fhe.audit import Audit, known_for, new_audit
from fhe.retirement import retiring
from secure_fl.crypto.passphrase import PASSPHRASE_VARIABLE
from secure_fl.errors import InputError
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.run_folder import query_features
from secure_fl.service.channel import Channel
from secure_fl.service.desk import Desk
from secure_fl.service.masked_querier import ask_masked
from secure_fl.service.members import read_querier
from secure_fl.service.querier import Answered, BatchTerms, Querier, Received, Spend, ignored

IDENTITY = "identity"
"""Name of a party's secret file in its folder."""


def ask(
    querier: Querier,
    keys: Path,
    secret: fhe.AnySecretKeys,
    features: NDArray[np.float32],
    *,
    batch: str,
    known: Audit | None,
    terms: BatchTerms | None,
    spend: Spend | None = None,
    on_status: Callable[[Mapping[str, Any]], None] = ignored,
) -> Answered:
    """Opens a batch, waits for its answer, closes it, and only then reads it.

    Args:
        querier: with a channel to the evaluator.
        keys: the querier's folder of keys, which are retired where a known answer is wrong.
        secret: that reads.
        features: scaled queries, shape (queries, n_features).
        batch: its name, that was not used before.
        known: answers to mix in; None for none.
        terms: of the batch; None for one that was opened before.
        spend: gives the known answers for the bytes of the answer, where a file keeps them.
        on_status: hears the batch's status whenever it changes.

    Raises:
        ServiceError: the batch failed, or the evaluator cannot be reached or sends nonsense.
        AnswerError: a known answer is wrong; the keys are retired.
    """
    desk = Desk(keys)

    def keep(received: Received) -> None:
        desk.keep_answer(batch, received.content, received.present)

    with querier.channel:
        if terms is not None:
            querier.open(batch, features, known, terms)
        kept = desk.answer(batch) if terms is None else None
        received = querier.wait(batch, on_status, keep) if kept is None else Received(*kept)
    # The line is closed: nothing that is found from here on reaches the evaluator.
    with retiring(keys, batch):
        found = querier.read(batch, received, secret, spend or known, queries=len(features))
    desk.forget(batch)
    return found


class QueryClient:
    """A querier whose folder holds all that it has: federation, identity and its own keys.

    Args:
        folder: with `federation.json`, `identity`, and the keys of `securefl keys new`.
        url: https://HOST:PORT of the evaluator.
        passphrase: of the secret key; None takes it from SECUREFL_PASSPHRASE. The rule masked has
            neither.
        authority: PEM file of who signed the evaluator's certificate.
        insecure: whether to call the evaluator by plain HTTP.
        leak_bits: that a lying evaluator learns at most, on average, before a known answer exposes
            it; see `fhe.audit.leaked_bits`.
        quorum: contributors that an answer needs at least; None for all, of the rule masked for
            more than two thirds.

    Raises:
        InputError: a file is absent or does not belong with the others.
    """

    def __init__(
        self,
        folder: str | Path,
        url: str,
        *,
        passphrase: str | None = None,
        authority: Path | None = None,
        insecure: bool = False,
        leak_bits: float = 32.0,
        quorum: int | None = None,
    ) -> None:
        self._folder = Path(folder)
        self.manifest = load_manifest(self._folder)
        member = read_querier(self._folder / IDENTITY, self.manifest)
        self._leak_bits, self._terms = leak_bits, BatchTerms(quorum=quorum)
        public: fhe.AnyPublicKey | None = None
        if not self.manifest.summed:
            self._secret = self._opened(passphrase)
            public = fhe.load_public_key(self._folder)

        def querier() -> Querier:
            channel = Channel(url, member, self.manifest, authority=authority, insecure=insecure)
            return Querier(member, self.manifest, public, channel)

        self._querier = querier

    def _opened(self, passphrase: str | None) -> fhe.AnySecretKeys:
        told = os.environ.get(PASSPHRASE_VARIABLE) if passphrase is None else passphrase
        if not told:
            raise InputError(
                f"passphrase: missing; hand one in, or set {PASSPHRASE_VARIABLE}, for the secret"
                f" key in {self._folder}"
            )
        return fhe.load_secret_keys(self._folder, told)

    def predict(self, X: Any) -> NDArray[np.str_]:
        """Labels, shape (n,); known answers are mixed in and taken out.

        Args:
            X: features as in the client files, not scaled, shape (n, d).

        Raises:
            InputError: another number of features, or a row that is not finite.
            ServiceError, AnswerError: as `ask`.
        """
        features = query_features(np.asarray(X), self.manifest, source="X")
        batch = secrets.token_hex(8)
        desk, known = Desk(self._folder), None
        # Under votes noise may make a right answer to a known query wrong.
        if self.manifest.rule != "votes":
            count = known_for(len(features), len(self.manifest.classes), bits=self._leak_bits)
            known = new_audit(count)
            desk.keep_audit(batch, known)
        if self.manifest.summed:
            common: Any = {"batch": batch, "known": known, "terms": self._terms}
            summed = ask_masked(self._querier(), desk, features, **common)
            return np.array(self.manifest.classes)[summed.classes]
        found = ask(
            self._querier(),
            self._folder,
            self._secret,
            features,
            batch=batch,
            known=known,
            terms=self._terms,
        )
        return np.array(self.manifest.classes)[found.classes]

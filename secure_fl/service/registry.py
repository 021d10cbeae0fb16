"""The federations that an evaluator serves: a folder each, with what the parties gave it.

Each querier's keys lie apart and serve its own batches alone (`secure_fl.service.key_folders`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import frozen

import fhe
from fhe.batched import messages as batched
from fhe.public_key import ciphertext_bytes
from secure_fl.crypto.keys import Directory
from secure_fl.errors import InputError
from secure_fl.heads.codes import refuse_other_rule
from secure_fl.heads.manifest import Manifest, load_manifest
from secure_fl.service.batch import Batch
from secure_fl.service.key_folders import key_folders, refuse_shared
from secure_fl.service.members import signature_keys
from secure_fl.service.sealed_query import sealed_bytes

_ROOM = 4096
"""Bytes of a contribution's envelope beside its ciphertexts; the header has about 600."""
QUERIES = 1000
"""Of one batch, unless the evaluator says another number; engine bgv has as many as slots."""


@frozen
class Registered:
    """What a querier gave to the evaluator.

    Attributes:
        folder: holds public.key and evaluation.key.
        public: its public key.
    """

    folder: Path
    public: fhe.AnyPublicKey

    @property
    def batched(self) -> bool:
        """Whether its keys are of engine bgv."""
        return isinstance(self.public, fhe.BatchedPublicKey)

    def ciphertext_bytes(self, queries: int) -> int:
        """Bytes of the ciphertexts of a contribution to so many queries."""
        if isinstance(self.public, fhe.BatchedPublicKey):
            return batched.contribution_bytes(self.public.parameters, queries)
        return ciphertext_bytes(self.public, queries)


@frozen
class Federation:
    """A registered federation.

    Attributes:
        folder: holds federation.json, and the queriers' keys.
        manifest: its public facts, with its members' keys.
        keys: of each querier that is served here, by name; empty of the rule masked, which has
            none.
        members: keys that check signatures, by name.
    """

    folder: Path
    manifest: Manifest
    keys: Mapping[str, Registered]
    members: Directory

    @property
    def fingerprint(self) -> str:
        """Of the manifest."""
        return self.manifest.fingerprint

    @property
    def clients(self) -> tuple[str, ...]:
        """Of the manifest."""
        return self.manifest.clients

    @property
    def queriers(self) -> tuple[str, ...]:
        """Of the manifest."""
        return self.manifest.queriers

    @property
    def masked(self) -> bool:
        """Whether its rule is the secure sum."""
        return self.manifest.summed

    @property
    def batched_queriers(self) -> tuple[str, ...]:
        """Those whose keys are of engine bgv."""
        return tuple(filter(self.batched, self.keys))

    def registered(self, querier: str) -> Registered:
        """A querier's keys, of a federation whose rule has some.

        Raises:
            InputError: they are not here.
        """
        if querier not in self.keys:
            raise InputError(f"no keys of the querier {querier!r} are registered here")
        return self.keys[querier]

    def batched(self, querier: str) -> bool:
        """Whether a querier's keys are of engine bgv, whose bodies are too large for one piece."""
        return querier in self.keys and self.keys[querier].batched

    def most_queries(self, querier: str, limit: int | None) -> int:
        """Queries of one batch of a querier.

        Args:
            querier: that asks.
            limit: the evaluator's; None for the engine's own.
        """
        public = self.keys[querier].public if querier in self.keys else None
        if not isinstance(public, fhe.BatchedPublicKey):
            return QUERIES if limit is None else limit
        slots = public.parameters.degree
        return slots if limit is None else min(limit, slots)

    def contribution_bytes(self, querier: str, queries: int) -> int:
        """The most bytes that a contribution to so many queries of a querier has.

        Raises:
            InputError: no keys of the querier are here.
        """
        return self.registered(querier).ciphertext_bytes(queries) + _ROOM

    def sealed_bytes(self, queries: int) -> int:
        """The most bytes that one client's sealed query has."""
        return sealed_bytes(queries, self.manifest)

    def opening_bytes(self, querier: str, queries: int) -> int:
        """The most bytes that the opening of a batch of so many queries of a querier has."""
        # They come apart, or Base64 makes four of three.
        sealed = 0 if self.batched(querier) else self.sealed_bytes(queries) * 4 // 3
        return len(self.manifest.clients) * (sealed + _ROOM)

    def check(self, contribution: fhe.AnyContribution, client: str, batch: Batch) -> None:
        """Refuses a contribution that is not this client's to this batch of its querier.

        Raises:
            ContributionError: so; says what differs.
            InputError: no keys of the querier are here.
        """
        own = self.registered(batch.querier)
        public = own.public
        facts = (
            ("rule parameters", contribution.parameters, public.parameters),
            ("key", contribution.key, public.key),
            ("public key", contribution.public, public.fingerprint),
            ("federation", contribution.federation, self.manifest.fingerprint),
            ("query batch", contribution.batch, batch.name),
            ("number of queries", contribution.queries, batch.queries),
            ("name", contribution.name, client),
            ("position", contribution.contributor, self.manifest.client_index(client)),
            (
                "bytes of ciphertext",
                _size_of(contribution),
                own.ciphertext_bytes(batch.queries),
            ),
        )
        for name, found, expected in facts:
            if found != expected:
                raise fhe.ContributionError(
                    f"contributor {client!r}: {name} {found!s:.80}, expected {expected!s:.80}"
                )


def _size_of(contribution: fhe.AnyContribution) -> int:
    if isinstance(contribution, fhe.BatchedContribution):
        return contribution.content.size
    return len(contribution.content)


def load_federation(folder: Path) -> Federation:
    """Reads a registered federation and checks that its files belong together.

    Raises:
        InputError: they do not, or the manifest lists no members.
        fhe.InputError: a key file cannot be used.
    """
    manifest = load_manifest(folder)
    members = signature_keys(manifest)
    if manifest.summed:
        return Federation(folder, manifest, {}, members)
    folders = key_folders(folder, manifest)
    keys = {name: _registered(own, manifest) for name, own in folders.items()}
    refuse_shared({name: each.public for name, each in keys.items()}, folder)
    return Federation(folder, manifest, keys, members)


def _registered(folder: Path, manifest: Manifest) -> Registered:
    """A querier's keys, if they belong together and with the federation."""
    public, evaluation = fhe.load_public_key(folder), fhe.load_evaluation_keys(folder)
    refuse_other_rule(public.parameters, manifest, source=str(folder))
    if public.key != evaluation.fingerprint:
        raise InputError(f"{folder}: public.key and evaluation.key are of different key folders")
    evaluation.check()
    return Registered(folder, public)


def succeeded_by(federations: Mapping[str, Federation]) -> dict[str, str]:
    """Fingerprints of federations that are not served, with that of their served successor."""
    return {
        before: each.fingerprint
        for each in federations.values()
        for before, _ in each.manifest.lineage
        if before not in federations
    }


def load_federations(folders: Iterable[Path]) -> Mapping[str, Federation]:
    """Registered federations by the fingerprint of their manifest.

    Raises:
        InputError: as `load_federation`, or one is given twice.
    """
    found: dict[str, Federation] = {}
    for folder in folders:
        each = load_federation(folder)
        if each.manifest.fingerprint in found:
            raise InputError(f"{folder}: the same federation as another folder; give it once")
        found[each.manifest.fingerprint] = each
    return found

"""Heads of a federation: of clients' own records, of their releases, or of one release of sums."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from secure_fl.data import Dataset, Scale, scaling_of
from secure_fl.errors import InputError
from secure_fl.files import new_folder, reserve
from secure_fl.heads.fitting import train_heads, whole_path
from secure_fl.heads.head import head_inputs
from secure_fl.heads.manifest import Manifest, make_manifest, scaling_facts
from secure_fl.heads.released import train_private_heads
from secure_fl.heads.run_folder import run_room
from secure_fl.privacy.ledgers import Shelf
from secure_fl.privacy.promises import Promise, RecordPromise, ReleasePromise
from secure_fl.progress import Progress, quiet
from secure_fl.trainers.head_tuning import Tried
from secure_fl.trainers.methods.kahm import CodedHeads, KAHMHeads, RecordPrivateHeads
from secure_fl.training.class_priors import record_privacy_of
from secure_fl.training.fitted import FittedHeads


def train_party(
    clients: Sequence[Dataset],
    manifest: Manifest,
    *,
    method: CodedHeads | None = None,
    secure: bool = False,
    seed: int = 0,
    promise: Promise | None = None,
    books: Path | Shelf | None = None,
    out: Path,
    on_progress: Progress = quiet,
) -> FittedHeads:
    """Heads for a federation that was agreed on, as a joint run would give them.

    Args:
        clients: the party's; see `secure_fl.heads.fitting.read_party`. A head that is a release of
            sums needs all clients of the federation.
        manifest: of the federation.
        method: `KAHMHeads` by default; of `RecordPrivateHeads` the codes keep the federation's
            range. What the manifest says of heads is taken from there.
        secure, seed, promise, books, out, on_progress: as `train`.

    Raises:
        InputError: as `train`; a promise of another unit than the federation's, or clients that a
            sum lacks.
    """
    method = method or KAHMHeads()
    unit = _unit(promise)
    if manifest.unit != unit:
        told = "leave out --epsilon" if manifest.unit == "none" else f"give --unit {manifest.unit}"
        raise InputError(
            f"federation: its clients' heads protect {manifest.unit}, these options {unit};"
            f" {told}, or agree on another federation"
        )
    if isinstance(method, RecordPrivateHeads):
        clients = _all_of(manifest, clients, method.method)
        known: dict[str, Any] = {"code_range": (manifest.low, manifest.high)}
        method = attrs.evolve(method, **known)
    with new_folder(out) as aside:
        heads = fit_heads(
            clients,
            manifest,
            method,
            secure=secure,
            seed=seed,
            promise=promise,
            books=books,
            aside=aside,
            on_progress=on_progress,
        )
        heads.fill(aside)
    return heads


def _all_of(manifest: Manifest, clients: Sequence[Dataset], method: str) -> tuple[Dataset, ...]:
    """All clients of a federation, in its order."""
    found = {each.name: each for each in clients}
    missing = [name for name in manifest.clients if name not in found]
    if missing:
        raise InputError(
            f"{method}: no records of {', '.join(missing[:10])}; its head is a sum over all clients"
            " of the federation, name the folder with the files of all"
        )
    return tuple(found[name] for name in manifest.clients)


def _unit(promise: Promise | None) -> str:
    """What a promise of heads protects, as a manifest says it."""
    if promise is None:
        return "none"
    return promise.adjacency.kind if isinstance(promise, ReleasePromise) else "record"


def federation_of_heads(
    clients: Sequence[Dataset],
    method: CodedHeads,
    promise: Promise | None,
    *,
    scale: Scale,
    encoder: str,
    tried: Sequence[Tried] = (),
) -> Manifest:
    """The manifest of a federation that these clients' heads make."""
    from secure_fl.encoders.embedding import encoder_fingerprint

    return make_manifest(
        classes=clients[0].classes,
        clients=tuple(client.name for client in clients),
        n_features=clients[0].n_features,
        features=clients[0].features,
        schema=clients[0].schema,
        encoder=encoder,
        encoder_fingerprint=encoder_fingerprint(encoder),
        **scaling_facts(scaling_of(scale)),
        unit=_unit(promise),
        tried=[each.recorded() for each in tried],
        **method.facts(),
    )


def fit_heads(
    clients: Sequence[Dataset],
    manifest: Manifest,
    method: CodedHeads,
    *,
    secure: bool,
    seed: int,
    promise: Promise | None,
    books: Path | Shelf | None,
    aside: Path | None,
    on_progress: Progress,
) -> FittedHeads:
    """Heads for a manifest that is there; arguments as `train`.

    Raises:
        InputError: a promise of another kind than the method keeps.
    """
    prove_heads(clients, method, promise, secure=secure, aside=None)
    if isinstance(method, KAHMHeads):
        assert isinstance(promise, ReleasePromise | None)
        return _own_heads(clients, manifest, seed, promise, books, aside, on_progress)
    assert isinstance(promise, RecordPromise)
    if books is None:
        raise InputError(f"{method.method}: needs books of what it promises")
    from secure_fl.heads.record_private import RELEASED, train_record_private_heads

    if aside is not None:
        released = RELEASED * len(manifest.classes)
        free = reserve(aside, run_room([(released, manifest.n_features)] * len(clients)))
    privacy = record_privacy_of(
        promise, books, manifest.classes, manifest.encoder, manifest.scaling_map, class_texts=True
    )
    heads, manifest, statements = train_record_private_heads(
        clients, manifest, privacy, fit_range=method.spanned is None, seed=seed
    )
    if aside is not None:
        free()
    return FittedHeads(manifest, heads, statements)


def prove_heads(
    clients: Sequence[Dataset],
    method: CodedHeads,
    promise: Promise | None,
    *,
    secure: bool,
    aside: Path | None,
) -> None:
    """Raises what `fit_heads` would, as far as public facts and the disk go.

    For whoever spends before it; arguments as `train`.
    """
    if isinstance(method, KAHMHeads):
        if secure:
            raise InputError("kahm: has no sums to mask; leave out --aggregate secure")
        if not isinstance(promise, ReleasePromise | None):
            raise InputError("kahm: keeps the promise of a release; give its unit and bounds")
        if aside is not None:
            reserve(aside, run_room([(len(each), each.n_features) for each in clients]))()
        return
    from secure_fl.heads.record_private import RELEASED
    from secure_fl.trainers.linear.kahm_record_private import check_machines

    if not isinstance(promise, RecordPromise) or promise.norm is None:
        raise InputError(f"{method.method}: needs a promise for every record, with its norm")
    if not secure:
        raise InputError(
            f"{method.method}: needs masked sums (--aggregate secure), the server must see sums"
            " alone"
        )
    classes, features = len(clients[0].classes), clients[0].n_features
    check_machines(features, classes)
    if aside is not None:
        reserve(aside, run_room([(RELEASED * classes, features)] * len(clients)))()


def _own_heads(
    clients: Sequence[Dataset],
    manifest: Manifest,
    seed: int,
    promise: ReleasePromise | None,
    books: Path | Shelf | None,
    aside: Path | None,
    on_progress: Progress,
) -> FittedHeads:
    scaled = [(each.name, head_inputs(each, manifest.scaling_map), each.y) for each in clients]
    sources = {each.name: whole_path(each.source) for each in clients}
    if aside is not None:
        # Before anything is booked: what was spent must not be lost for want of room.
        free = reserve(aside, run_room([(len(each), each.n_features) for each in clients]))
    if promise is None:
        heads = train_heads(scaled, manifest, seed=seed, progress=on_progress, sources=sources)
        found = FittedHeads(manifest, heads, ())
    else:
        assert books is not None
        found = FittedHeads(
            manifest, *train_private_heads(scaled, manifest, promise, books, on_progress, sources)
        )
    if aside is not None:
        free()
    return found

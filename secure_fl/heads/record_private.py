"""Heads with record-level privacy for the encrypted rule: what `kahm_record_private` released.

The machines are public and the same for every client, so each of them can answer queries with them
as with a head of its own.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import attrs
import numpy as np

from dp import JointLedger, Record, Statement
from dp.statement import in_all
from kahm import Bank, Measure
from secure_fl.data import Dataset, Scale, scaled_features
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.statements import SUMMED
from secure_fl.privacy.promises import RecordPrivacy
from secure_fl.trainers.linear import RecordPrivateState, discriminant_machines, kahm_record_private
from secure_fl.trainers.linear._noisy_moments import SENSITIVITIES
from secure_fl.trainers.linear._record_noise import GRID
from secure_fl.trainers.linear.kahm_record_private import BATCH, REFINEMENTS

RELEASED = BATCH
"""Synthetic records of a machine, of which a head has one a class."""
REACH = 6.0
"""Queries' cosines with a machine's point that the codes tell apart, in root mean squares."""


def train_record_private_heads(
    clients: Sequence[Dataset],
    manifest: Manifest,
    privacy: RecordPrivacy,
    *,
    fit_range: bool,
    seed: int = 0,
) -> tuple[list[Head], Manifest, list[tuple[str, Statement]]]:
    """One head for all clients, from masked sums under noise that hides every record.

    Args:
        clients: in the order of the manifest's.
        manifest: the federation's facts, with the unit "record".
        privacy: what is promised, with its ledger.
        fit_range: whether the codes' range is taken from the release, in place of the manifest's.
        seed: of the synthetic records.

    Returns:
        The head under every client's name, the manifest with the range, and what is promised.

    Raises:
        InputError: fewer than 2 clients; noise that leaves nothing of the discriminants.
        dp.BudgetError: the ledger's budget would be exceeded; nothing was drawn.
    """
    if len(clients) < 2:
        raise InputError("kahm-record-private: 1 client, its sum would be its own; 2 are needed")
    members = [
        Client(each.name, released_inputs(each.X, manifest.scaling_map, each.where), each.y)
        for each in clients
    ]
    with Federation(members, seed=seed, aggregation=SecureAggregation()) as fed:
        return release_heads(fed, manifest, privacy, fit_range=fit_range, seed=seed)


def released_inputs(X: Any, scale: Scale, where: str) -> Any:
    """What a client's steps see of its features: scaled, without a constant.

    Args:
        X: of the client's file, shape (n, d).
        scale: constant factor, or a scaling.
        where: whose features they are, for messages.

    Raises:
        FeatureError: the scale is not finite and above 0, or scaled features overflow or vanish.
    """
    return scaled_features(X, scale, np.float64, where=where)


def release_heads(
    fed: Federation,
    manifest: Manifest,
    privacy: RecordPrivacy,
    *,
    fit_range: bool,
    seed: int = 0,
) -> tuple[list[Head], Manifest, list[tuple[str, Statement]]]:
    """As `train_record_private_heads`, of any federation under secure aggregation."""
    (state,) = fed.rounds(
        kahm_record_private(
            fed,
            features=manifest.n_features,
            outputs=len(manifest.classes),
            norm=privacy.norm,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            ledger=privacy.ledger,
            adjacency=privacy.adjacency,
            prior=privacy.prior,
        )
    )
    threshold = fed.threshold
    rng = np.random.default_rng([seed, 2])
    bank = discriminant_machines(state.weights, privacy.norm, rng)
    if fit_range:
        low, high = released_range(bank, state, rng, manifest.measure)  # type: ignore[arg-type]  # checked by the manifest
        manifest = attrs.evolve(manifest, low=low, high=high)
    heads = [Head(name, bank) for name in manifest.clients]
    return heads, manifest, _statements(state, privacy, manifest, threshold)


def released_range(
    bank: Bank,
    state: RecordPrivateState,
    rng: np.random.Generator,
    measure: Measure = "folding",
) -> tuple[float, float]:
    """Measures that the codes should span, from released numbers alone.

    A query of the records' length at an angle to a machine's point has the measure that such a
    query in a direction of its own has; the cosines to tell apart are `REACH` times the root mean
    square that the noisy second moments give.
    """
    if bank.n_features <= bank.n_cells:
        # No direction is left beside the points.
        return 0.0, 1.0
    points = np.stack([batch.mean(axis=0) for batch in bank.batches()])[np.argsort(bank.cells)]
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(float)
    squares = np.einsum("cd,de,ce->c", points, state.gram, points) / np.trace(state.gram)
    cosine = min(REACH * float(np.sqrt(max(squares.max(), 0.0))), 0.99)
    basis, _ = np.linalg.qr(np.vstack([points, rng.standard_normal(points.shape[1])]).T)
    aside = np.sqrt(1.0 - cosine**2) * basis[:, -1]
    near, far = (
        np.diagonal(bank.measures(state.norm * (side * points + aside), measure))
        for side in (cosine, -cosine)
    )
    return float(near.min()), float(far.max())


def _statements(
    state: RecordPrivateState, privacy: RecordPrivacy, manifest: Manifest, threshold: int
) -> list[tuple[str, Statement]]:
    """By client: the promise is the same, but each may have books of its own."""
    shared = _statement(state, privacy, manifest, threshold)
    if not isinstance(privacy.ledger, JointLedger):
        return [(name, shared) for name in manifest.clients]
    found = []
    for name, book in zip(manifest.clients, privacy.ledger.books, strict=True):
        total = book.running_total(privacy.delta, Record(privacy.norm))
        digest = book.digest_of(state.event)
        assumed = (*shared.assumptions[:-1], in_all(total))
        found.append((name, attrs.evolve(shared, ledger_digest=digest, assumptions=assumed)))
    return found


def _statement(
    state: RecordPrivateState, privacy: RecordPrivacy, manifest: Manifest, threshold: int
) -> Statement:
    total = privacy.ledger.running_total(privacy.delta, Record(privacy.norm))
    d, outputs = manifest.n_features, len(manifest.classes)
    return Statement(
        guarantee=True,
        epsilon=privacy.whole or privacy.epsilon,
        delta=privacy.delta,
        unit=privacy.unit.unit,
        mechanism="discrete Gaussian noise of the clients in masked sums (Kairouz et al. 2021)",
        noise_scale=state.deviation * privacy.norm,
        sensitivity_steps=SENSITIVITIES[privacy.adjacency] / GRID,
        bounds=(-privacy.norm, privacy.norm),
        grid=GRID * privacy.norm,
        smoothing=SUMMED,
        passes=(),
        shares=(),
        batches=1,
        rows=d,
        columns=d + (1 + REFINEMENTS) * outputs,
        record_level=(),
        assumptions=(
            "norm and all parameters were fixed without looking at the data",
            f"at least {threshold} clients that follow the protocol stay in every sum, and the"
            " server does not learn their noise",
            "each record is with one client",
            in_all(total),
            *_moments_assumed(privacy),
            *_texts_assumed(privacy),
        ),
        not_protected=(
            *(("the number of records",) if privacy.adjacency == "replace" else ()),
            "class names",
            "who took part",
            "the norm, the grid and every other parameter in this statement",
        ),
        ledger_digest=state.event,
        version=version("securefl"),
    )


def _moments_assumed(privacy: RecordPrivacy) -> tuple[str, ...]:
    if privacy.whole is None:
        return ()
    return (
        "means and deviations of the scaling were released before, of records clipped to public"
        f" numbers; they are in this epsilon, of which {privacy.epsilon:.4g} was left for the head",
    )


def _texts_assumed(privacy: RecordPrivacy) -> tuple[str, ...]:
    if privacy.texts is None:
        return ()
    return (
        f"the class texts ({privacy.texts}) are public, and who wrote them did not look at records",
    )

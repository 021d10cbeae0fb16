"""One way to train: clients' data sets and a method in, something fitted out.

The command, the library and the tests all come through here. The order is the same for every
method: whatever public facts can refuse is refused, the place of the result and its room on the
disk are proven, the privacy is booked, and only then is anything private computed.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs

from secure_fl.data import Dataset, Scaling, TargetSet
from secure_fl.errors import InputError
from secure_fl.federation import ClientPrivacy
from secure_fl.files import new_folder, reserve
from secure_fl.privacy.ledgers import Shelf, prove_room
from secure_fl.privacy.promises import (
    ClientPromise,
    Promise,
    RecordPrivacy,
    RecordPromise,
    ReleasePromise,
    client_privacy,
)
from secure_fl.progress import Progress, quiet
from secure_fl.trainers.head_tuning import CANDIDATES, Tried, best_of, tune_in_turn
from secure_fl.trainers.linear_settings import LinearSettings
from secure_fl.trainers.methods.kahm import CodedHeads, KAHMHeads
from secure_fl.trainers.network_settings import NetworkSettings
from secure_fl.trainers.settings import Settings
from secure_fl.training.class_priors import record_privacy_of
from secure_fl.training.fitted import FittedHeads, FittedModel
from secure_fl.training.heads import federation_of_heads, fit_heads, prove_heads
from secure_fl.training.linear import (
    check_promise,
    check_target_norm,
    linear_room,
    train_linear_model,
)
from secure_fl.training.loop import check_cohort, prove_checkpoint
from secure_fl.training.preparing import (
    AskedScaling,
    by_length,
    chosen_head,
    known_scaling,
    refuse_private_facts,
    scalings_for,
    spreads_of,
)
from secure_fl.training.released_scaling import MomentsClip, ReleasedScaling
from secure_fl.training.settling import refuse_settling

METRICS = "metrics.jsonl"
"""The log of rounds in a run folder, one JSON object a line."""


def train(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    method: Settings,
    *,
    secure: bool = False,
    seed: int = 0,
    scale: float = 1.0,
    scaling: AskedScaling = "none",
    moments_clip: MomentsClip | None = None,
    tried: Sequence[Tried] = (),
    settle: bool = False,
    encoder: str = "none",
    test: Dataset | TargetSet | None = None,
    target_norm: float | None = None,
    promise: Promise | None = None,
    books: Path | Shelf | None = None,
    checkpoint: Path | None = None,
    out: Path | None = None,
    on_round: Callable[[str], None] | None = None,
    on_progress: Progress = quiet,
) -> FittedModel | FittedHeads:
    """Trains over the clients.

    Args:
        clients: with the same classes and features; see `secure_fl.data.read_clients`. Or with
            numbers to be predicted (`TargetSet`), for methods of linear models with `regresses`.
        method: with its settings, e.g. `FedNewton(rounds=10)`.
        secure: whether sums are masked, so that the server sees them alone.
        seed: of the experiment's randomness.
        scale: constant factor on all features.
        scaling: of every feature before the factor: "moments", "floored" and "common" (see
            `secure_fl.trainers.feature_moments.Spread`) ask all clients for their means and
            deviations in one masked sum; "auto" takes the first for models, and chooses among
            all three for heads; or a scaling of public numbers. Under a promise for every record
            means and deviations are released for a part of it, of records clipped to
            `moments_clip`.
        moments_clip: public, see `secure_fl.training.released_scaling.MomentsClip`; of that alone.
        tried: of heads: settings that were compared before, for the manifest.
        settle: of models by rounds: whether to end before the last round, when the objective of all
            clients stops falling; one masked sum a round more.
        encoder: of heads and class texts: what made the features, "none" for records that are
            features already.
        test: of models: records that the accuracy, or the error, is measured on after every round,
            if any.
        target_norm: of targets where every record is promised something: public L2 norm that a
            record's are clipped to.
        promise: what is promised to clients, records or elements of a matrix; None adds no noise.
        books: ledgers of a promise: the folder of the clients' own, or a file for the federation.
        checkpoint: of models: replaced after every round; where it exists the run goes on from it.
        out: run folder that is written, whole or not at all; must not exist. None writes nothing.
        on_round: receives one line a round.
        on_progress: told of phases without rounds.

    Returns:
        `FittedHeads` for methods that train heads, `FittedRegression` for numbers, `FittedModel`
        for the others.

    Raises:
        InputError: settings that do not fit the clients, a promise that the method cannot keep or
            that has no books, or a place that cannot be written.
        dp.BudgetError: a ledger's budget has no room for the whole run; nothing was spent.
        QuorumError, DivergedError: the run failed.
    """
    known = known_scaling(scaling, scale, promise, method, moments_clip)
    refuse_private_facts(method, scaling, tried)
    if settle and promise is not None:
        refuse_settling()
    if tried and promise is not None:
        raise InputError(
            "tuned: its counts are of the clients' records and not private, and these options"
            " promise privacy; tune on public records, and give the settings as options"
        )
    if promise is not None and books is None:
        raise InputError("privacy: a promise needs books; name the folder of the clients' ledgers")
    if known is None and promise is not None and checkpoint is not None:
        raise InputError(
            "scaling: a run that goes on from a checkpoint would release means and deviations anew;"
            " leave out --checkpoint, or scale by public ranges"
        )
    check_cohort(method, len(clients), secure=secure)
    release = None
    if known is None and promise is not None:
        assert moments_clip is not None
        release = ReleasedScaling(
            moments_clip, spreads_of(scaling, method)[0], scale, by_length(method)
        )
    with nullcontext() if out is None else new_folder(out) as aside:
        # Released ones are known when all that public facts refuse is refused.
        asked = Scaling(factor=scale) if release is not None else scaling
        scalings = scalings_for(clients, asked, scale, method, promise)
        told = next(iter(scalings.values()))
        if isinstance(method, CodedHeads):
            clients = with_classes(clients, method.method)
            if isinstance(method, KAHMHeads) and method.tuned and promise is None:
                candidates = [attrs.evolve(each, measure=method.measure) for each in CANDIDATES]
                tried = tune_in_turn(clients, scalings, candidates, on_progress)
                best = best_of(tried)
                method, told = chosen_head(method, best.choice), scalings[best.scaling]
            if release is not None:
                assert isinstance(promise, RecordPromise | ReleasePromise)
                assert books is not None
                prove_heads(clients, method, promise, secure=secure, aside=aside)
                told, promise = release(clients, promise, books, seed)
            manifest = federation_of_heads(
                clients, method, promise, scale=told, encoder=encoder, tried=tried
            )
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
            if release is not None and isinstance(method, KAHMHeads):
                heads = replace(heads, statements=release.stated(heads.statements))
            if aside is not None:
                heads.fill(aside)
            return heads
        assert isinstance(method, LinearSettings | NetworkSettings)
        options: dict[str, Any] = {
            "secure": secure,
            "seed": seed,
            "scale": told,
            "settle": settle,
            "test": test,
            "target_norm": target_norm,
            "checkpoint": checkpoint,
            "progress": on_round,
        }
        fitted = _fit_model(clients, method, promise, books, aside, encoder, options, release)
        if aside is not None:
            fitted.fill(aside)
        return fitted


def with_classes(
    clients: Sequence[Dataset] | Sequence[TargetSet], method: str
) -> Sequence[Dataset]:
    """The clients, for a method that learns classes alone.

    Raises:
        InputError: they have numbers to be predicted.
    """
    found = [each for each in clients if isinstance(each, Dataset)]
    if len(found) < len(clients):
        raise InputError(
            f"{method}: is for classes; numbers (targets) are predicted by linear methods such as"
            " fednewton, krr, dkrr, fedavg and private-ridge"
        )
    return found


def _fit_model(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    method: LinearSettings | NetworkSettings,
    promise: Promise | None,
    books: Path | Shelf | None,
    aside: Path | None,
    encoder: str,
    options: dict[str, Any],
    release: ReleasedScaling | None,
) -> FittedModel:
    if isinstance(promise, ReleasePromise):
        raise InputError(f"{method.method}: promises clients or records, not elements of a release")
    checkpoint: Path | None = options["checkpoint"]
    if isinstance(method, NetworkSettings):
        method.refuse_privacy(
            record=isinstance(promise, RecordPromise), client=isinstance(promise, ClientPromise)
        )
    if aside is not None:
        # Before anything is booked: what was spent must not be lost for want of room.
        room = _room(method, clients)
        prove_checkpoint(checkpoint, sum(room))
        free = reserve(aside, room)
        own = aside / METRICS
        options["metrics"] = own if checkpoint is None else Path(f"{checkpoint}.jsonl")
    noise = None
    if isinstance(promise, ClientPromise):
        assert books is not None
        noise = client_privacy(method, len(clients[0].outputs), promise, books)
        prove_room(noise.ledger.each, noise.sums)
    if isinstance(method, LinearSettings):
        fitted = _fit_linear(clients, method, noise, promise, books, encoder, options, release)
    else:
        fitted = _fit_network(clients, method, noise, promise, books, options, release)
    if aside is not None:
        free()
        if checkpoint is not None:
            shutil.copyfile(options["metrics"], own)
    return fitted


def _room(
    method: LinearSettings | NetworkSettings, clients: Sequence[Dataset] | Sequence[TargetSet]
) -> list[int]:
    if isinstance(method, LinearSettings):
        return linear_room(method, clients)
    from secure_fl.training.networks import network_room

    return network_room(method, with_classes(clients, method.method))


def _fit_linear(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    method: LinearSettings,
    noise: ClientPrivacy | None,
    promise: Promise | None,
    books: Path | Shelf | None,
    encoder: str,
    options: dict[str, Any],
    release: ReleasedScaling | None,
) -> FittedModel:
    privacy: ClientPrivacy | RecordPrivacy | None = noise
    hiding = isinstance(promise, RecordPromise)
    check_promise(method, hides_records=hiding, secure=options["secure"])
    if isinstance(promise, RecordPromise):
        if promise.norm is None:
            raise InputError(f"{method.method}: needs --norm, a public L2 norm of a record")
        assert books is not None
        if release is not None:
            numbers = isinstance(clients[0], TargetSet)
            check_target_norm(method, numbers=numbers, norm=options["target_norm"])
            scale, left = release(clients, promise, books, options["seed"])
            assert isinstance(left, RecordPromise)
            promise, options = left, options | {"scale": scale}
        privacy = record_privacy_of(
            promise,
            books,
            clients[0].outputs,
            encoder,
            options["scale"],
            class_texts=method.takes_class_texts,
        )
    fitted = train_linear_model(clients, method, privacy=privacy, **options)
    return fitted if release is None else _remarked(fitted, release)


def _remarked(fitted: FittedModel, release: ReleasedScaling) -> FittedModel:
    return replace(fitted, remarks=(*fitted.remarks, release.remark()))


def _fit_network(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    method: NetworkSettings,
    noise: ClientPrivacy | None,
    promise: Promise | None,
    books: Path | Shelf | None,
    options: dict[str, Any],
    release: ReleasedScaling | None,
) -> FittedModel:
    from secure_fl.trainers.networks import DPSGD
    from secure_fl.training.networks import prove_books, train_network

    hiding = None
    if isinstance(promise, RecordPromise):
        try:
            hiding = DPSGD(promise.epsilon, promise.delta, method.rounds, clip=promise.clip)
        except ValueError as error:
            raise InputError(str(error)) from None
        options = options | {"ledgers": books, "budget": promise.budget}
    if options.pop("target_norm") is not None:
        raise InputError("target norm: has no meaning for networks; leave it out")
    clients = with_classes(clients, method.method)
    if release is not None:
        assert hiding is not None
        books_of = {name: options[name] for name in ("seed", "ledgers", "budget")}
        scale, hiding = release.beside_steps(
            clients,
            hiding,
            lambda each, event: prove_books(clients, method, each, event, **books_of),
            options["seed"],
        )
        options = options | {"scale": scale}
    fitted = train_network(clients, method, client_level=noise, record_level=hiding, **options)
    return fitted if release is None else _remarked(fitted, release)

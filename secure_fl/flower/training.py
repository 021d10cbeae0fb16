"""The server of a network run: trains by the plan and writes what the plan names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from secure_fl.encoders.embedding import encoder_fingerprint
from secure_fl.federation import ClientPrivacy, FixedNumber, SecureAggregation
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.flower.heads import train_remote_heads
from secure_fl.flower.moments import scaling_of
from secure_fl.flower.network import NetworkFederation
from secure_fl.flower.plan import Plan
from secure_fl.flower.transport import Requester, Transport
from secure_fl.heads.manifest import scaling_facts
from secure_fl.privacy.promises import (
    ClientPromise,
    RecordPrivacy,
    RecordPromise,
    client_privacy,
    record_privacy,
)
from secure_fl.trainers.linear_settings import LinearRun, LinearSettings


def train(exchange: Transport, plan: Plan, progress: Callable[[str], None]) -> None:
    """Runs the plan and writes its run folder, as `securefl train` does in one process.

    Args:
        exchange: to the nodes.
        plan: what to run.
        progress: receives one line a round.

    Raises:
        QuorumError: fewer clients are left than the threshold.
        InputError: settings that do not fit the clients, or a file that cannot be used.
    """
    from secure_fl.files import refuse_existing

    refuse_existing(plan.out)
    if isinstance(plan.recipe, HeadRecipe) and plan.recipe.method != "kahm":
        _release_heads(exchange, plan, plan.recipe, progress)
    elif isinstance(plan.recipe, HeadRecipe):
        _train_heads(exchange, plan, plan.recipe, progress)
    else:
        _train_model(exchange, plan, plan.recipe, progress)


def _train_heads(
    exchange: Transport, plan: Plan, recipe: HeadRecipe, progress: Callable[[str], None]
) -> None:
    from secure_fl.files import new_folder
    from secure_fl.heads.manifest import load_manifest, save_manifest

    agreed = None if plan.federation is None else load_manifest(plan.federation)
    if agreed is not None and plan.spread is not None:
        # Its heads are scaled already, and another sum would give another federation.
        scaling = agreed.scaling_map
    else:
        scaling = scaling_of(exchange, plan, progress).scaling
    manifest = train_remote_heads(
        Requester(exchange, plan.time_out),
        plan.clients,
        recipe,
        classes=plan.classes,
        scaling=scaling,
        threshold=len(plan.clients) if plan.threshold is None else plan.threshold,
        progress=progress,
        agreed=agreed,
    )
    with new_folder(plan.out) as aside:
        save_manifest(aside, manifest)
    progress(f"{plan.out}: kahm, heads of {', '.join(manifest.clients)} at their nodes")


def _release_heads(
    exchange: Transport, plan: Plan, recipe: HeadRecipe, progress: Callable[[str], None]
) -> None:
    from secure_fl.files import new_folder, reserve
    from secure_fl.heads.record_private import RELEASED, release_heads
    from secure_fl.heads.run_folder import fill_run, run_room
    from secure_fl.trainers.linear.kahm_record_private import check_machines

    classes = len(plan.classes)

    def room(width: int) -> Callable[[], None]:
        check_machines(width, classes)
        return reserve(aside, run_room([(RELEASED * classes, width)] * len(plan.clients)))

    with new_folder(plan.out) as aside:
        found = scaling_of(exchange, plan, progress, lambda width: room(width)())
        fed = NetworkFederation(
            exchange,
            plan.clients,
            seed=recipe.seed,
            threshold=plan.threshold,
            aggregation=SecureAggregation(max_weight=1.0),
            time_out=plan.time_out,
            description=plan.description,
            scaling=found.told,
        )
        manifest = recipe.manifest(
            classes=plan.classes,
            clients=plan.clients,
            n_features=fed.features(),
            **scaling_facts(found.scaling),
            encoder_fingerprint=encoder_fingerprint(recipe.encoder),
        )
        privacy = _record_privacy(plan, found.promise)
        assert privacy is not None
        # Before anything is booked: what was spent must not be lost for want of room.
        free = room(manifest.n_features)
        heads, manifest, statements = release_heads(
            fed, manifest, privacy, fit_range=True, seed=recipe.seed
        )
        free()
        fill_run(aside, heads, manifest, statements)
    progress(f"{plan.out}: {recipe.method}, one public head; {privacy.text()}")


def _train_model(
    exchange: Transport, plan: Plan, recipe: LinearSettings, progress: Callable[[str], None]
) -> None:
    import shutil

    from secure_fl.files import new_folder, reserve
    from secure_fl.training.linear import (
        model_numbers,
        model_weights,
        origin_of,
        random_features,
        ridge_excess,
        rounds_of,
        settled_weights,
    )
    from secure_fl.training.linear_model import LinearModel
    from secure_fl.training.loop import files_room, last_state, prove_checkpoint
    from secure_fl.training.model_files import FILE

    count = recipe.drawn
    objective = recipe.objective(len(plan.classes))

    def room(width: int) -> Callable[[], None]:
        numbers = model_numbers(recipe, width, len(plan.classes))
        sizes = files_room(numbers, rounds=rounds_of(recipe), clients=len(plan.clients))
        prove_checkpoint(plan.checkpoint, sum(sizes))
        return reserve(aside, sizes)

    with new_folder(plan.out) as aside:
        found = scaling_of(exchange, plan, progress, lambda width: room(width)())
        noise = _client_privacy(plan, recipe)
        promise = _record_privacy(plan, found.promise)
        fed = NetworkFederation(
            exchange,
            plan.clients,
            seed=plan.seed,
            participation=None if count is None else FixedNumber(count),
            threshold=plan.threshold,
            aggregation=_aggregation(plan, recipe),
            privacy=noise,
            time_out=plan.time_out,
            description=plan.description,
            scaling=found.told,
        )
        width = fed.features()
        metrics = aside / "metrics.jsonl"
        lines = metrics if plan.checkpoint is None else Path(f"{plan.checkpoint}.jsonl")
        # Before anything is booked: what was spent must not be lost for want of room.
        free = room(width)
        run = LinearRun(fed, objective, width, plan.seed, promise)

        def states(start: Any) -> Iterator[Any]:
            found = recipe.states(run, start)
            return settled_weights(found, fed, objective, count) if plan.settle else found

        state = last_state(
            fed,
            states,
            lambda state: {},
            settings=recipe,
            # Noise may carry weights anywhere; what was paid for is delivered.
            excess=ridge_excess(objective) if noise is None and promise is None else None,
            checkpoint=plan.checkpoint,
            metrics=lines,
            progress=progress,
        )
        free()
        if plan.checkpoint is not None:
            shutil.copyfile(lines, metrics)
        spent = None if noise is None else fed.privacy_statement()
        if promise is not None:
            spent = promise.text()
        origin = origin_of(recipe, plan.secure, plan.seed, len(plan.clients), spent)
        weights = model_weights(state.weights, recipe)
        inputs = len(weights) - 1 if plan.features is None else plan.features
        random = random_features(recipe, inputs, plan.seed)
        scale = found.scaling if found.scaling.affine else plan.scale
        model = LinearModel(weights, plan.classes, inputs, None, scale, random, origin)
        model.save(aside / FILE)
    progress(f"{plan.out}: {recipe.method}, {state.round} rounds, {len(plan.clients)} clients")


def _aggregation(plan: Plan, recipe: LinearSettings) -> SecureAggregation | None:
    if not plan.secure:
        return None
    return SecureAggregation(max_weight=1.0 if recipe.unweighted else plan.max_weight)


def _record_privacy(plan: Plan, promise: RecordPromise | None) -> RecordPrivacy | None:
    if promise is None or promise.norm is None or plan.ledger is None:
        return None
    terms = promise.epsilon, promise.delta, promise.norm, plan.ledger
    return record_privacy(*terms, whole=promise.whole)


def _client_privacy(plan: Plan, recipe: LinearSettings) -> ClientPrivacy | None:
    promise = plan.promise
    if plan.ledger is None or not isinstance(promise, ClientPromise):
        return None
    return client_privacy(recipe, len(plan.classes), promise, plan.ledger)

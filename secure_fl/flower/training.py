"""The server of a network run: trains by the plan and writes what the plan names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from secure_fl.encoders.embedding import encoder_fingerprint
from secure_fl.federation import ClientPrivacy, FixedNumber, SecureAggregation
from secure_fl.flower.head_recipe import HeadRecipe
from secure_fl.flower.heads import train_remote_heads
from secure_fl.flower.network import NetworkFederation
from secure_fl.flower.plan import Plan
from secure_fl.flower.transport import Requester, Transport
from secure_fl.heads.manifest import scaling_facts
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

    manifest = train_remote_heads(
        Requester(exchange, plan.time_out),
        plan.clients,
        recipe,
        classes=plan.classes,
        scaling=plan.scaling_map,
        threshold=len(plan.clients) if plan.threshold is None else plan.threshold,
        progress=progress,
        agreed=None if plan.federation is None else load_manifest(plan.federation),
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
    from secure_fl.privacy.promises import record_privacy

    assert plan.epsilon is not None
    assert plan.norm is not None
    assert plan.ledger is not None
    fed = NetworkFederation(
        exchange,
        plan.clients,
        seed=recipe.seed,
        threshold=plan.threshold,
        aggregation=SecureAggregation(max_weight=1.0),
        time_out=plan.time_out,
        description=plan.description,
    )
    manifest = recipe.manifest(
        classes=plan.classes,
        clients=plan.clients,
        n_features=fed.features(),
        **scaling_facts(plan.scaling_map),
        encoder_fingerprint=encoder_fingerprint(recipe.encoder),
    )
    privacy = record_privacy(plan.epsilon, plan.delta, plan.norm, plan.ledger)
    with new_folder(plan.out) as aside:
        # Before anything is booked: what was spent must not be lost for want of room.
        size = RELEASED * len(plan.classes), manifest.n_features
        free = reserve(aside, run_room([size] * len(plan.clients)))
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
    from secure_fl.privacy.promises import RecordPrivacy
    from secure_fl.training.linear import (
        model_numbers,
        model_weights,
        origin_of,
        random_features,
        rounds_of,
    )
    from secure_fl.training.linear_model import LinearModel
    from secure_fl.training.loop import files_room, prove_checkpoint, resumed
    from secure_fl.training.model_files import FILE

    privacy = _privacy(plan, recipe)
    promise = privacy if isinstance(privacy, RecordPrivacy) else None
    noise = privacy if isinstance(privacy, ClientPrivacy) else None
    count = recipe.drawn
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
    )
    objective = recipe.objective(len(plan.classes))
    start: Any = None if plan.checkpoint is None else resumed(fed, plan.checkpoint, recipe)
    width = fed.features()
    state: Any = start
    with new_folder(plan.out) as aside:
        metrics = aside / "metrics.jsonl"
        lines = metrics if plan.checkpoint is None else Path(f"{plan.checkpoint}.jsonl")
        # Before anything is booked: what was spent must not be lost for want of room.
        numbers = model_numbers(recipe, width, len(plan.classes))
        room = files_room(numbers, rounds=rounds_of(recipe), clients=len(plan.clients))
        prove_checkpoint(plan.checkpoint, sum(room))
        free = reserve(aside, room)
        states = recipe.states(LinearRun(fed, objective, width, plan.seed, promise), start)
        for each in fed.rounds(
            states, checkpoint=plan.checkpoint, metrics=lines, progress=progress
        ):
            state = each
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
        scaling = plan.scaling_map
        scale = scaling if scaling.affine else plan.scale
        model = LinearModel(weights, plan.classes, inputs, None, scale, random, origin)
        model.save(aside / FILE)
    progress(f"{plan.out}: {recipe.method}, {state.round} rounds, {len(plan.clients)} clients")


def _aggregation(plan: Plan, recipe: LinearSettings) -> SecureAggregation | None:
    if not plan.secure:
        return None
    return SecureAggregation(max_weight=1.0 if recipe.unweighted else plan.max_weight)


def _privacy(plan: Plan, recipe: LinearSettings) -> Any:
    from secure_fl.privacy.promises import ClientPromise, client_privacy, record_privacy

    if plan.ledger is None:
        return None
    if plan.epsilon is not None and plan.norm is not None:
        return record_privacy(plan.epsilon, plan.delta, plan.norm, plan.ledger)
    if plan.client_epsilon is None:
        return None
    promise = ClientPromise(epsilon=plan.client_epsilon, delta=plan.client_delta, clip=plan.clip)
    return client_privacy(recipe, len(plan.classes), promise, plan.ledger)

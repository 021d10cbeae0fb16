"""A recipe of the FedNL family as a trainer: what `securefl train --method fednl` runs."""

from collections.abc import Iterator
from typing import Any

from secure_fl.errors import InputError
from secure_fl.federation import Federation
from secure_fl.trainers.fednl.compressors import Compressor, Identity
from secure_fl.trainers.fednl.fednl import fednl
from secure_fl.trainers.fednl.fednl_bc import fednl_bc
from secure_fl.trainers.fednl.fednl_cr import fednl_cr
from secure_fl.trainers.fednl.fednl_ls import fednl_ls
from secure_fl.trainers.fednl.fednl_pp import fednl_pp
from secure_fl.trainers.fednl.low_rank import RankR
from secure_fl.trainers.fednl.one_against_rest import OneAgainstRestState, one_against_rest
from secure_fl.trainers.fednl.problem import LogisticRidge
from secure_fl.trainers.fednl.sparsifiers import RandK, SharedRandK, TopK
from secure_fl.trainers.fednl.triangles import packed_size
from secure_fl.training.recipe import Recipe


def fednl_states(
    fed: Federation,
    recipe: Recipe,
    d: int,
    classes: int,
    start: OneAgainstRestState | None = None,
) -> Iterator[OneAgainstRestState]:
    """The states of a recipe's run, one class against the rest.

    Args:
        fed: clients whose targets are class codes; all of them take part.
        recipe: of a method in FEDNL.
        d: columns of the clients' features.
        classes: C, at least 2.
        start: a state to go on from.

    Raises:
        InputError: more participants than clients.
    """
    tau = recipe.participants or len(fed)
    if tau > len(fed):
        raise InputError(f"participants: found {tau}, the federation has {len(fed)} clients")
    shared: dict[str, Any] = {
        "d": d,
        "rounds": recipe.rounds,
        "compressor": _compressor(recipe, d),
    }

    def run(objective: LogisticRidge, begin: Any) -> Iterator[Any]:
        options = {**shared, "start": begin}
        match recipe.method:
            case "fednl":
                return fednl(fed, objective, option=recipe.option, **options)
            case "fednl-ls":
                return fednl_ls(fed, objective, **options)
            case "fednl-cr":
                return fednl_cr(fed, objective, initial="local", **options)
            case "fednl-pp":
                return fednl_pp(fed, objective, tau=tau, seed=recipe.seed, **options)
            case _:
                options |= {"p": recipe.gradient_share, "option": recipe.option}
                return fednl_bc(fed, objective, seed=recipe.seed, **options)

    return one_against_rest(run, recipe.ridge, classes, start)


def _compressor(recipe: Recipe, d: int) -> Compressor | None:
    """None leaves the choice to the trainer, which knows whether sums are masked."""
    k = min(8 * d, packed_size(d))
    made: dict[str, Compressor] = {
        "top-k": TopK(k),
        "rand-k": RandK(k),
        "shared-rand-k": SharedRandK(k, recipe.seed),
        "rank-1": RankR(1),
        "identity": Identity(),
    }
    return made.get(recipe.compressor)

"""Noise and books of an iterative training run, from the numbers that its parties agree on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from dp import Budget, Ledger
from secure_fl.errors import InputError
from secure_fl.training.linear import RecordPrivacy
from secure_fl.federation import ClientPrivacy, calibrate
from secure_fl.federation.noises import NoiseName
from secure_fl.federation.privacy import UNIT
from secure_fl.training.recipe import FEDNL, Recipe
from secure_fl.trainers.linear._record_noise import Neighbours, record_unit
from secure_fl.trainers.linear.class_texts import ClassPrior, read_class_prior


class Planned(Protocol):
    """What noise for a whole client needs to know of a recipe."""

    @property
    def method(self) -> str:
        """Name of the trainer."""

    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most; None where that is not known beforehand."""


def client_privacy(
    recipe: Planned,
    classes: int,
    epsilon: float,
    delta: float,
    clip: float | None,
    books: Path,
    noise: NoiseName = "gaussian",
) -> ClientPrivacy:
    """Noise that hides a whole client, as much as all sums of the recipe together need.

    Args:
        recipe: what is to be run.
        classes: C.
        epsilon: above 0, per client's contribution.
        delta: in (0, 1).
        clip: public L2 norm of a client's update.
        books: the federation's ledger; made, with this budget, where there is none.
        noise: its kind; see `ClientPrivacy`.

    Raises:
        InputError: no clip, or a method whose number of sums is not known beforehand.
        dp.LedgerError: the ledger was edited.
    """
    if clip is None:
        raise InputError("client-epsilon: needs --clip, a public L2 norm of a client's update")
    sums = recipe.sums(classes)
    if sums is None:
        without = "take fednl" if recipe.method in FEDNL else "switch it off (--no-safeguard)"
        raise InputError(
            f"client-epsilon: the line search of {recipe.method} takes as many sums as it needs,"
            f" and each costs privacy; {without}"
        )
    multiplier = calibrate(epsilon, delta, sums, noise)
    ledger = _opened(books, Budget(epsilon, delta, UNIT))
    return ClientPrivacy(clip, multiplier, sums, ledger, delta, noise=noise)


def record_privacy(
    recipe: Recipe, epsilon: float, delta: float, norm: float, books: Path, **more: Any
) -> RecordPrivacy:
    """What the methods in RECORD_PRIVATE promise every record.

    Args:
        recipe: of such a method, with masked sums.
        epsilon: above 0, per record.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to.
        books: the federation's ledger; made, with this budget, where there is none.
        more: as `record_promise` has them.

    Raises:
        InputError: sums are not masked.
        dp.LedgerError: the ledger was edited.
    """
    if not recipe.secure:
        raise InputError(
            f"{recipe.method}: needs masked sums (--aggregate secure), the server must see sums"
            " alone"
        )
    return record_promise(epsilon, delta, norm, books, **more)


def record_promise(
    epsilon: float,
    delta: float,
    norm: float,
    books: Path,
    *,
    adjacency: Neighbours = "replace",
    prior: ClassPrior | None = None,
) -> RecordPrivacy:
    """The same, of whichever method keeps it.

    Args:
        epsilon, delta, norm, books: as `record_privacy`'s.
        adjacency: whether a record is replaced, or added or removed.
        prior: public knowledge of the classes, if any.
    """
    ledger = _opened(books, Budget(epsilon, delta, record_unit(norm, adjacency)))
    known = (None, None) if prior is None else (prior.directions, prior.digest)
    return RecordPrivacy(epsilon, delta, norm, ledger, adjacency, *known)


def class_prior(path: Path, classes: Sequence[str], encoder: str, scale: float) -> ClassPrior:
    """What the public texts in a file say of the classes, through the encoder of the records.

    Args:
        path: JSON, see `secure_fl.trainers.linear.class_texts.texts_of`.
        classes: of the federation, in order.
        encoder: a model's folder or `package:NAME`; what made the features.
        scale: constant factor on all features; its sign alone matters.

    Raises:
        InputError: no encoder, or a file of another form.
    """
    if encoder == "none":
        raise InputError("class texts: need the encoder that made the features; give --encoder")
    from secure_fl.encoders.sentence import SentenceEncoder

    model = SentenceEncoder(encoder, scale=scale)
    return read_class_prior(path, classes, lambda texts: model.encode(texts))


def _opened(books: Path, budget: Budget) -> Ledger:
    return Ledger.open(books) if books.exists() else Ledger.create(books, books.stem, budget)

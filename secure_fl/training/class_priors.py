"""The promise of methods that hide every record, with what public texts say of the classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secure_fl.data import Scale, scaled_features
from secure_fl.errors import InputError
from secure_fl.privacy.ledgers import Shelf
from secure_fl.privacy.promises import RecordPrivacy, RecordPromise, record_privacy
from secure_fl.trainers.linear.class_texts import ClassPrior, read_class_prior


def record_privacy_of(
    promise: RecordPromise,
    books: Path | Shelf,
    classes: Sequence[str],
    encoder: str,
    scale: Scale,
    *,
    class_texts: bool,
) -> RecordPrivacy:
    """What a run promises every record, with its books.

    Args:
        promise: with a norm.
        books: as `record_privacy`.
        classes: of the federation, in order.
        encoder: that made the features, for class texts.
        scale: constant factor on all features, or a scaling.
        class_texts: whether the method has a use for them.

    Raises:
        InputError: class texts that are of no use, or that cannot be read or encoded.
        dp.LedgerError: the ledger was edited.
    """
    assert promise.norm is not None
    prior = None
    if promise.class_texts is not None:
        if not class_texts:
            raise InputError("class texts: are of no use to this method; take private-gradient")
        prior = class_prior(promise.class_texts, classes, encoder, scale)
    return record_privacy(
        promise.epsilon,
        promise.delta,
        promise.norm,
        books,
        adjacency=promise.adjacency,
        prior=None if prior is None else prior.directions,
        texts=None if prior is None else prior.digest,
        whole=promise.whole,
    )


def class_prior(path: Path, classes: Sequence[str], encoder: str, scale: Scale) -> ClassPrior:
    """What public texts say of the classes, through the encoder that made the features.

    Args:
        path: JSON, see `secure_fl.trainers.linear.class_texts.texts_of`.
        classes: of the federation, in order.
        encoder: a model's folder or `package:NAME`.
        scale: constant factor on all features, or a scaling.

    Raises:
        InputError: no encoder, or a file of another form.
    """
    if encoder == "none":
        raise InputError("class texts: need the encoder that made the features; give --encoder")
    from secure_fl.encoders.sentence import SentenceEncoder

    model = SentenceEncoder(encoder)

    def encode(texts: Sequence[str]) -> Any:
        return scaled_features(model.encode(texts), scale, np.float32, where=str(path))

    return read_class_prior(path, classes, encode)

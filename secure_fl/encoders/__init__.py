"""Frozen encoders: texts to the features that every client of a federation uses."""

from secure_fl.encoders.cache import CacheWarning
from secure_fl.encoders.local_models import model_folder
from secure_fl.encoders.sentence import (
    Encoder,
    IdentityEncoder,
    SentenceEncoder,
    encode_records,
    encoder_from_json,
)

__all__ = [
    "CacheWarning",
    "Encoder",
    "IdentityEncoder",
    "SentenceEncoder",
    "encode_records",
    "encoder_from_json",
    "model_folder",
]

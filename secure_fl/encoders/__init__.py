"""Frozen encoders: texts to the features that every client of a federation uses."""

from secure_fl.encoders.cache import CacheWarning
from secure_fl.encoders.local_models import model_folder
from secure_fl.encoders.sentence import (
    SentenceEncoder,
    encode_records,
)

__all__ = [
    "CacheWarning",
    "SentenceEncoder",
    "encode_records",
    "model_folder",
]

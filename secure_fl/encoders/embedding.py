"""Client files with text, or folders of photos, in; client data sets with features out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from secure_fl.data import (
    ClassList,
    Dataset,
    ReadOptions,
    Records,
    assemble,
    client_files,
    read_all,
)
from secure_fl.data.dataset import require_finite
from secure_fl.encoders.image import Features, ImageEncoder, encode_pictures
from secure_fl.encoders.photo_folder import Photo, photos_of
from secure_fl.encoders.sentence import LongTexts, SentenceEncoder, check_texts, encode_records
from secure_fl.progress import Progress

_SHOWN = 5
"""Damaged images that remarks name."""


def embed_clients(
    source: Path,
    encoder: SentenceEncoder,
    options: ReadOptions,
    *,
    classes: ClassList | None = None,
    cache: Path | None = None,
    long_texts: LongTexts = "cut",
    remark: Callable[[str], None] | None = None,
    progress: Progress,
) -> tuple[Dataset, ...]:
    """Encodes every client file of a folder, or one file.

    All files are read and checked before the first text is encoded.

    Args:
        source: a folder with one file a client, or one file.
        encoder: the federation's.
        options: name the text column.
        classes: the federation's class list; None makes it of the labels found.
        cache: folder that keeps features between runs; it reveals the texts as features do.
        long_texts, remark: as `encode_records`.
        progress: told of every chunk of texts.

    Raises:
        InputError: a file cannot be read, holds no text or an empty one, or the model is not
            there.
    """
    read = read_all(list(client_files(source).values()), options)
    for records in read:
        check_texts(records)
    encoded = []
    for records in read:
        report = partial(progress, f"encoding {records.name}")
        encoded.append(
            encode_records(
                records,
                encoder,
                cache=cache,
                progress=report,
                long_texts=long_texts,
                remark=remark,
            )
        )
    return assemble(encoded, classes=classes)


def embed_photos(
    folder: Path,
    encoder: ImageEncoder,
    *,
    labels: Path | None = None,
    label_column: str = "label",
    cache: Path | None = None,
    drop_damaged: bool = False,
    remark: Callable[[str], None],
    progress: Progress,
) -> tuple[Dataset, ...]:
    """Encodes the photos of a folder.

    Args:
        folder, labels, label_column: as `photos_of`.
        encoder: the federation's.
        cache, drop_damaged: as `encode_pictures`.
        remark: receives lines on files that were left out.
        progress: told of every few photos.

    Raises:
        InputError: as `photos_of` and `encode_pictures`.
    """
    photos = photos_of(folder, labels, label_column=label_column, remark=remark)
    found = encode_pictures(
        [photo.path for photo in photos],
        encoder,
        cache=cache,
        drop_damaged=drop_damaged,
        progress=lambda done, total: progress("encoding photos", done, total),
    )
    if found.damaged:
        remark(f"{len(found.damaged)} of {len(photos)} images dropped, which cannot be read")
        for line in found.damaged[:_SHOWN]:
            remark(line)
    kept = [photos[i] for i in found.kept]
    records = []
    for client in sorted({photo.client for photo in kept}):
        rows = [i for i, photo in enumerate(kept) if photo.client == client]
        records.append(_records(client, folder, [kept[i] for i in rows], found.features[rows]))
    return assemble(records)


def _records(client: str, folder: Path, photos: list[Photo], X: Features) -> Records:
    records = Records(client, str(folder), tuple(photo.label for photo in photos), X)
    require_finite(records)
    return records


def encoder_fingerprint(encoder: str) -> str:
    """Digest of what an encoder's features depend on; empty for "none".

    Args:
        encoder: as for texts (`SentenceEncoder`) or images (`image_encoder`).

    Raises:
        InputError: no such model, or one that is more than data.
    """
    from secure_fl.encoders.image import PIXELS, image_encoder
    from secure_fl.encoders.local_models import is_text_model

    if encoder == "none":
        return ""
    if encoder.startswith(PIXELS) or not is_text_model(encoder):
        return image_encoder(encoder).fingerprint
    return SentenceEncoder(encoder).fingerprint

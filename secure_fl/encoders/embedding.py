"""Client files with text in, client data sets with features out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from secure_fl.data import (
    ClassList,
    Dataset,
    ReadOptions,
    assemble,
    client_files,
    read_all,
)
from secure_fl.encoders.sentence import LongTexts, SentenceEncoder, check_texts, encode_records
from secure_fl.progress import Progress


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

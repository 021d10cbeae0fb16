"""Client files with text in, client data sets with features out."""

from functools import partial
from pathlib import Path

from secure_fl.data import ClassList, Dataset, ReadOptions, assemble, client_files, read_client
from secure_fl.encoders.sentence import SentenceEncoder, encode_records
from secure_fl.progress import Progress


def embed_clients(
    source: Path,
    encoder: SentenceEncoder,
    options: ReadOptions,
    *,
    classes: ClassList | None = None,
    cache: Path | None = None,
    progress: Progress,
) -> tuple[Dataset, ...]:
    """Encodes every client file of a folder, or one file.

    Args:
        source: a folder with one file a client, or one file.
        encoder: the federation's.
        options: name the text column.
        classes: the federation's class list; None makes it of the labels found.
        cache: folder that keeps features between runs; it reveals the texts as features do.
        progress: told of every chunk of texts.

    Raises:
        InputError: a file cannot be read or holds no text, or the model is not there.
    """
    files = client_files(source) if source.is_dir() else {source.stem: source}
    encoded = []
    for path in files.values():
        records = read_client(path, options)
        report = partial(progress, f"encoding {records.name}")
        encoded.append(encode_records(records, encoder, cache=cache, progress=report))
    return assemble(encoded, classes=classes)

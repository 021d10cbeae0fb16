"""Public knowledge of the classes: where texts that describe them lie, before any record is seen.

The parties write each class's name and a few sentences; the public encoder that the records go
through embeds them. They cost no privacy, as long as whoever writes them does not look at records.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fhe.envelope import load_json
from secure_fl.errors import InputError
from secure_fl.objectives.base import Array


def text_prior(embedded: Sequence[Array]) -> Array:
    """Directions of the classes, shape (d, C): mean texts less their common mean, of length 1.

    Args:
        embedded: of each class its texts, shape (texts, d), at least one.

    Raises:
        InputError: fewer than 2 classes, a class without a text, or classes that read alike.
    """
    if len(embedded) < 2 or not all(len(each) for each in embedded):
        raise InputError(f"class texts: {len(embedded)} classes; 2 with a text each are needed")
    means = np.stack([np.asarray(each, dtype=float).mean(axis=0) for each in embedded])
    apart = means - means.mean(axis=0)
    lengths = np.linalg.norm(apart, axis=1)
    if not (np.isfinite(lengths).all() and (lengths > 1e-9).all()):
        raise InputError(
            "class texts: a class lies where all lie together; write texts that tell it apart"
        )
    directions: Array = (apart / lengths[:, None]).T
    return directions


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """Public knowledge of the classes.

    Attributes:
        directions: of `text_prior`, shape (d, C).
        digest: `sha256:` and 64 hex digits of the file with the texts.
    """

    directions: Array
    digest: str


def read_class_prior(
    path: Path, classes: Sequence[str], embed: Callable[[Sequence[str]], Array]
) -> ClassPrior:
    """The prior of a JSON file of class texts; see `texts_of`.

    Args:
        path: of the file.
        classes: of the federation, in order.
        embed: the public encoder that the records went through: texts to shape (texts, d).

    Raises:
        InputError: the file cannot be read, or is not of that form.
    """
    try:
        content = path.read_bytes()
        value = load_json(content)
    except OSError as error:
        raise InputError(f"{path}: class texts cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: class texts are no JSON; see docs/trainers.md") from None
    texts = texts_of(value, classes, str(path))
    embedded = embed([text for each in texts for text in each])
    ends = np.cumsum([len(each) for each in texts])[:-1]
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return ClassPrior(text_prior(np.split(np.asarray(embedded), ends)), digest)


def texts_of(value: object, classes: Sequence[str], where: str) -> list[tuple[str, ...]]:
    """The texts of each class from a JSON object {class: {"names": [...], "texts": [...]}}.

    A class may also have a plain list of texts.

    Args:
        value: what the file holds.
        classes: of the federation, in order.
        where: the file, for messages.

    Raises:
        InputError: another form, a class without a text, or texts of no class.
    """
    if not isinstance(value, Mapping) or set(value) != set(classes):
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise InputError(
            f"{where}: found texts of {found}, expected one entry for each class of the"
            f" federation ({', '.join(classes)})"
        )
    return [_texts(value[name], f"{where}: class {name}") for name in classes]


def _texts(value: object, where: str) -> tuple[str, ...]:
    parts = (
        [value.get("names", []), value.get("texts", [])] if isinstance(value, Mapping) else [value]
    )
    found = [text for part in parts if isinstance(part, list) for text in part]
    if not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise InputError(f"{where}: expected a list of texts, none of them empty")
    return tuple(found)

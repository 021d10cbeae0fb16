"""Where contributors and the evaluator keep the queriers' keys: a folder of each one's name.

Those of a federation's only querier, or of the one called "querier", may lie in the folder itself,
as they did before there were several.
"""

from collections.abc import Mapping
from pathlib import Path

import fhe
from fhe.public_key import PUBLIC_FILE
from secure_fl.crypto.identities import QUERIER
from secure_fl.errors import InputError
from secure_fl.heads.manifest import Manifest


def key_folders(folder: Path, manifest: Manifest) -> dict[str, Path]:
    """The folder of each querier whose keys are here, by name in the manifest's order.

    Args:
        folder: of all of them.
        manifest: of the federation.

    Raises:
        InputError: there are several queriers, and no keys of any.
    """
    alone = manifest.queriers[0] if len(manifest.queriers) == 1 else QUERIER
    found = {}
    for name in manifest.queriers:
        if (folder / name / PUBLIC_FILE).exists():
            found[name] = folder / name
        elif name == alone and (folder / PUBLIC_FILE).exists():
            found[name] = folder
    if not found and len(manifest.queriers) > 1:
        raise InputError(
            f"{folder}: has no {PUBLIC_FILE} of any querier; put what"
            f" {', '.join(manifest.queriers)[:200]} gave you into folders of their names, such as"
            f" {folder / manifest.queriers[0]}"
        )
    # Where the only one's are absent, whoever loads them says so.
    return found or {alone: folder}


def refuse_shared(keys: Mapping[str, fhe.AnyPublicKey], folder: Path) -> None:
    """Refuses two queriers with one key: one of them has handed out the other's.

    Raises:
        InputError: so.
    """
    owners: dict[str, str] = {}
    for name, each in keys.items():
        if owners.setdefault(each.key, name) != name:
            raise InputError(
                f"{folder}: the keys of {owners[each.key]!r} and {name!r} are the same; each"
                " querier makes its own (securefl keys new)"
            )

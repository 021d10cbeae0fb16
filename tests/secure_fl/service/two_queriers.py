"""A second querier for the small federation: its own identity and keys, and the same heads."""

import shutil
from dataclasses import replace
from pathlib import Path

from secure_fl.demo.service_parties import IDENTITY, copy_parties
from secure_fl.heads.manifest import save_manifest
from secure_fl.service.members import enrol, make_member_keys

QUERIERS = ("querier", "lab")


def with_lab(made, other, folder: Path):
    """The federation in `folder`, asked by "lab" too.

    Args:
        made: the federation with one querier.
        other: another one of the same shape, whose querier's keys become those of "lab".
        folder: absent.
    """
    copy_parties(made.folder, folder)
    keys = dict(made.manifest.members)
    (folder / "lab").mkdir()
    keys["lab"] = make_member_keys(folder / "lab" / IDENTITY)
    manifest = enrol(made.manifest, keys, QUERIERS)
    for name in manifest.parties:
        save_manifest(folder / name, manifest)
    for name in ("secret.key", "public.key"):
        shutil.copyfile(other.folder / "querier" / name, folder / "lab" / name)
    for name in (*manifest.clients, "evaluator"):
        (folder / name / "lab").mkdir()
        shutil.copyfile(folder / "lab" / "public.key", folder / name / "lab" / "public.key")
    evaluation = Path("evaluator", "evaluation.key")
    shutil.copyfile(other.folder / evaluation, folder / "evaluator" / "lab" / "evaluation.key")
    return replace(made, folder=folder, manifest=manifest)

"""`securefl members`: clients and queriers that join a federation or leave it."""

from pathlib import Path
from typing import Any

import click

from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING_FILE, EXISTING_FOLDER, FILE


@click.group()
def members() -> None:
    """Let parties join and leave, by a successor of federation.json that all its members sign."""


@members.command()
@click.argument("run", type=EXISTING_FOLDER)
@click.option("--out", required=True, type=FILE)
@click.option(
    "--join",
    multiple=True,
    metavar="NAME.member",
    help="A new client or querier, or a new key: the file of securefl identity new, or NAME=KEYS"
    " (of a querier NAME=querier:KEYS).",
)
@click.option("--leave", multiple=True, metavar="NAME", help="A client or querier that leaves.")
@output_options
def propose(
    output: Output, run: Path, out: Path, join: tuple[str, ...], leave: tuple[str, ...]
) -> None:
    """Write a successor of the federation of RUN to the file OUT, for its members to sign."""
    from secure_fl.crypto.identities import MARK, QUERIER, read_members
    from secure_fl.files import refuse_existing_file
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.service.succession import propose as proposed
    from secure_fl.service.succession import save_successor

    keys: dict[str, str] = {}
    asking: set[str] = set()
    for each in join:
        if each.endswith(".member"):
            listed = read_members(Path(each))
            found, asks = listed.of(list(listed.listed)), set(listed.queriers)
        else:
            name, _, public = each.partition("=")
            found = {name: public.removeprefix(MARK)}
            asks = {name} if public.startswith(MARK) or name == QUERIER else set()
        if not all(found.values()) or not found.keys().isdisjoint(keys):
            raise click.UsageError(
                f"--join {each[:80]!r}: expected NAME.member or NAME=KEYS, once for each"
            )
        keys |= found
        asking |= asks
    refuse_existing_file(out)
    made = proposed(load_manifest(run), keys, frozenset(leave), frozenset(asking))
    save_successor(out, made)
    output.result(
        {"federation": made.manifest.fingerprint, "unsigned": list(made.unsigned)},
        f"{out}: federation {made.manifest.fingerprint} of {', '.join(made.manifest.clients)},"
        f" asked by {', '.join(made.manifest.queriers)}; to be signed by"
        f" {', '.join(made.unsigned)}",
    )


@members.command()
@click.argument("successor", type=EXISTING_FILE)
@click.option("--member", "name", required=True, help='A client, a querier or "evaluator".')
@click.option(
    "--identity", "key", required=True, type=EXISTING_FILE, help="The member's secret file."
)
@output_options
def sign(output: Output, successor: Path, name: str, key: Path) -> None:
    """Sign SUCCESSOR as one of its members; look at its clients and its fingerprint first."""
    from secure_fl.service.members import read_member
    from secure_fl.service.succession import load_successor, save_successor
    from secure_fl.service.succession import sign as signed

    read = load_successor(successor)
    made = signed(read, read_member(key, name, read.manifest))
    save_successor(successor, made)
    left = f"still to be signed by {', '.join(made.unsigned)}" if made.unsigned else "by all now"
    output.result(
        {"federation": made.manifest.fingerprint, "unsigned": list(made.unsigned)},
        f"{successor}: signed by {name!r}; {left}",
    )


@members.command()
@click.argument("run", type=ANY_PATH)
@click.argument("successor", type=EXISTING_FILE)
@output_options
def adopt(output: Output, run: Path, successor: Path) -> None:
    """Take SUCCESSOR over as the federation of RUN; nobody has to train anew.

    A client that joins names a new folder, and trains with --federation RUN/federation.json.
    """
    from secure_fl.service.succession import adopt as adopted
    from secure_fl.service.succession import load_successor

    read = load_successor(successor)
    before, manifest = adopted(run, read), read.manifest
    told = _what_stays(before, manifest)
    lines = [
        f"{run}: federation {manifest.fingerprint} of {', '.join(manifest.clients)}, asked by"
        f" {', '.join(manifest.queriers)}",
        "compare this fingerprint by another way",
        *(f"{state.replace('_', ' ')}: {'; '.join(each)}" for state, each in told.items()),
    ]
    output.result(
        {
            "federation": manifest.fingerprint,
            "clients": list(manifest.clients),
            "queriers": list(manifest.queriers),
            **told,
        },
        "\n".join(lines),
    )


def _what_stays(before: Any, manifest: Any) -> dict[str, list[str]]:
    """What was made for the manifest before and can still be used, and what cannot."""
    if before is None:
        return {}
    stays, ends = ["heads, with their indexes and books"], ["contributions, batches and answers"]
    one = len(before.queriers) == 1
    keys = "the querier's keys" if one else "the queriers' keys"
    if len(before.clients) == len(manifest.clients):
        stays.append(keys)
    else:
        ends.append(
            f"{keys}, which are for {len(before.clients)} contributors and not"
            f" {len(manifest.clients)} (securefl keys new)"
        )
    if manifest.unit == "record":
        stays.append("a head that sums over clients made still holds what those who left gave")
    return {"stays_valid": stays, "no_longer_valid": ends}

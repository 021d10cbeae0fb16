"""`securefl serve identity` and `serve enrol`: who the parties are; and how much each may ask."""

from pathlib import Path

import click

from cli.output import Output, output_options
from cli.paths import EXISTING_FILE, EXISTING_FOLDER, FILE

quota_option = click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="NAME=QUERIES",
    help="A querier's part of --daily-queries, 0 for none; once for each.",
)


@click.command()
@click.argument("key", type=FILE)
@output_options
def identity(output: Output, key: Path) -> None:
    """Make a secret file KEY alone; `securefl identity new` makes all that a party needs."""
    from secure_fl.service.members import make_member_keys

    public = make_member_keys(key)
    output.result({"key": str(key), "public": public}, public)


@click.command()
@click.argument("run", type=EXISTING_FOLDER)
@click.option(
    "--member",
    "named",
    multiple=True,
    metavar="NAME=KEYS",
    help='Public keys of a party: of every client, of "evaluator" and of "querier", or of queriers'
    " by names of their own as NAME=querier:KEYS.",
)
@click.option(
    "--members", type=EXISTING_FILE, help="A list of them all (securefl identity gather)."
)
@click.option(
    "--querier",
    "asking",
    multiple=True,
    metavar="NAME",
    help="Who may ask; once for each; default: all queriers of the list.",
)
@output_options
def enrol(
    output: Output,
    run: Path,
    named: tuple[str, ...],
    members: Path | None,
    asking: tuple[str, ...],
) -> None:
    """Write all parties' public keys into the federation.json of RUN; heads stay valid."""
    from secure_fl.crypto.identities import EVALUATOR, MARK, QUERIER, read_members
    from secure_fl.heads.manifest import load_manifest, save_manifest
    from secure_fl.service.members import enrol as enrolled

    before = load_manifest(run)
    listed = None if members is None else read_members(members)
    told = [each.partition("=") for each in named]
    beside = [name for name, _, keys in told if name == QUERIER or keys.startswith(MARK)]
    of_list = [name for name in asking if name not in beside]
    queriers = asking or tuple(beside)
    if listed is not None and (of_list or not asking):
        queriers = (*listed.asking(of_list), *beside)
    # Others may be listed too: of other federations, workers, who leads a training.
    wanted = (*before.clients, *queriers, EVALUATOR)
    keys = {} if listed is None else listed.of(wanted)
    for name, equals, public in told:
        if not equals or name in keys:
            each = f"{name}{equals}{public}"
            raise click.UsageError(f"--member {each[:80]!r}: expected NAME=KEYS, once for each")
        keys[name] = public.removeprefix(MARK)
    manifest = enrolled(before, keys, queriers or (QUERIER,))
    path = save_manifest(run, manifest)
    output.result(
        {
            "federation": manifest.fingerprint,
            "file": str(path),
            "queriers": list(manifest.queriers),
        },
        f"{path}: federation {manifest.fingerprint}, asked by {', '.join(manifest.queriers)}; give"
        " it to all parties, and compare this fingerprint by another way",
    )


def quotas_of(given: tuple[str, ...]) -> dict[str, int]:
    """What --quota says, by querier."""
    found: dict[str, int] = {}
    for each in given:
        name, _, number = each.rpartition("=")
        if not name or not number.isdecimal() or name in found:
            raise click.UsageError(f"--quota {each[:80]!r}: expected NAME=QUERIES, once for each")
        found[name] = int(number)
    return found

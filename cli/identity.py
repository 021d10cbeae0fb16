"""`securefl identity`: what a party is known by, and the list of all parties."""

from pathlib import Path

import click

from cli.output import Output, output_options
from cli.paths import EXISTING_FILE, FILE, FOLDER


@click.group()
def identity() -> None:
    """Make a party's keys, once for all that it takes part in; docs/deploy.md shows the way."""


@identity.command()
@click.argument("folder", type=FOLDER)
@click.option("--name", help="Of the party, as everybody lists it; default: the folder's.")
@click.option(
    "--keep",
    type=EXISTING_FILE,
    help="A secret file that it has already (serve or flower identity).",
)
@click.option(
    "--querier",
    is_flag=True,
    help='The party asks, under a name of its own; who is called "querier" does anyway.',
)
@output_options
def new(output: Output, folder: Path, name: str | None, keep: Path | None, querier: bool) -> None:
    """Make FOLDER with a party's secret keys, and two files to hand out."""
    from secure_fl.crypto.party import make_party

    named = folder.absolute().name if name is None else name
    made = make_party(folder, named, keep, asks=querier)
    card, node = folder / f"{named}.member", folder / f"{named}.pub"
    output.result(
        {"folder": str(folder), "name": named, "public": made.said[named]},
        f"{folder}: made, for this machine alone\n"
        f"{card}: send it to whoever gathers members.json\n"
        f"{node}: send it to whoever runs a SuperLink",
    )


@identity.command()
@click.argument("out", type=FILE)
@click.argument("files", nargs=-1, required=True, type=EXISTING_FILE)
@output_options
def gather(output: Output, out: Path, files: tuple[Path, ...]) -> None:
    """Write the list of members OUT from FILES: *.member of all parties, or lists."""
    from fhe.envelope import write_atomic
    from secure_fl.crypto.party import gather as gathered
    from secure_fl.files import refuse_existing_file

    refuse_existing_file(out)
    made = gathered(files)
    write_atomic(out, made.to_json())
    output.result(
        {
            "members": list(made.listed),
            "queriers": list(made.queriers),
            "fingerprint": made.fingerprint,
        },
        f"{out}: {', '.join(made.listed)}{_asking(made.queriers)}; fingerprint {made.fingerprint};"
        " give it to all, and compare this by telephone (securefl doctor)",
    )


def _asking(queriers: tuple[str, ...]) -> str:
    return f" ({', '.join(queriers)} may ask)" if queriers else ""

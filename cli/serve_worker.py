"""`securefl serve worker`: a machine that answers slices of batches for an evaluator."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.address import address_options
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING_FILE

if TYPE_CHECKING:
    from secure_fl.service.serving import Address


@click.command()
@click.option("--name", required=True, help="Of this worker in the members' file.")
@click.option(
    "--members",
    required=True,
    type=EXISTING_FILE,
    help='Public keys of "evaluator" and its workers.',
)
@click.option(
    "--identity", "key", required=True, type=EXISTING_FILE, help="Secret file of the worker."
)
@click.option(
    "--state",
    required=True,
    type=ANY_PATH,
    help="Folder of keys and ciphertexts.",
)
@address_options(8446)
@click.option(
    "--room",
    default=16.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="GiB of files that are kept; the least lately used go first.",
)
@output_options
def worker(
    output: Output,
    name: str,
    members: Path,
    key: Path,
    state: Path,
    address: "Address",
    room: float,
) -> None:
    """Answer slices of batches for an evaluator (`infer --workers`); opens no ciphertext."""
    from secure_fl.service.cluster import read_worker_circle
    from secure_fl.service.serving import serve
    from secure_fl.service.slice_worker import SliceWorker

    address.check()
    own, circle = read_worker_circle(members, key, name)
    made = SliceWorker(own, circle, state, int(room * 2**30))
    output.note(
        f'worker "{name}" on {address.host}:{address.port} (members {circle.fingerprint});'
        " stop it with Ctrl+C"
    )
    serve(made.app(), address, stop=made.stop, ending=made.ending)

"""`securefl train --runtime service`: this command is the server that clients' nodes call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.output import Output, with_options
from cli.paths import EXISTING_FILE

CHANNEL = ("members", "identity", "host", "port", "certificate", "certificate_key", "insecure")
"""Names of the options."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def channel_options(command: _Command) -> _Command:
    """Adds the options of a training server."""
    options = (
        click.option(
            "--members",
            type=EXISTING_FILE,
            help='--runtime service: everybody\'s public keys, the one of "server" among them.',
        ),
        click.option("--identity", type=EXISTING_FILE, help="--runtime service: the server's key."),
        click.option("--host", default="127.0.0.1", show_default=True, help="--runtime service."),
        click.option(
            "--port",
            default=8445,
            show_default=True,
            type=click.IntRange(1, 65535),
            help="--runtime service.",
        ),
        click.option(
            "--certificate", type=EXISTING_FILE, help="--runtime service: PEM file, for TLS."
        ),
        click.option(
            "--certificate-key", type=EXISTING_FILE, help="--runtime service: its private key."
        ),
        click.option("--insecure", is_flag=True, help="--runtime service: HTTP; not for data."),
    )
    added: _Command = with_options(command, options)
    return added


def run_channel(
    output: Output,
    folder: Path,
    out: Path,
    *,
    members: Path | None,
    identity: Path | None,
    host: str,
    port: int,
    certificate: Path | None,
    certificate_key: Path | None,
    insecure: bool,
) -> None:
    """Trains by an app folder on the nodes that call, and writes `out`.

    Raises:
        InputError: no app folder, or a file, key or address that cannot be used.
        QuorumError: fewer clients are left than the threshold.
    """
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.errors import InputError
    from secure_fl.flower.app_settings import settings_of_folder
    from secure_fl.flower.plan import read_plan
    from secure_fl.flower.training import train
    from secure_fl.service.coordinator import SERVER, coordinated, read_circle, read_party
    from secure_fl.service.serving import Address

    for option, found in (("--members", members), ("--identity", identity)):
        if found is None:
            raise InputError(f"{option}: missing; --runtime service signs every message")
    assert members is not None
    assert identity is not None
    settings = {**settings_of_folder(folder), "out": str(out.absolute())}
    plan = read_plan(settings)
    circle = read_circle(members)
    own = read_party(identity, SERVER, circle)
    address = Address(
        host=host, port=port, certificate=certificate, key=certificate_key, insecure=insecure
    )
    with coordinated(
        own, circle, plan.clients, settings, address=address, wait=plan.wait
    ) as exchange:
        output.note(f"server of {len(plan.clients)} clients on {host}:{port}")
        train(exchange, plan, output.note)
    output.result({"run": str(out)}, f"{out}: trained")

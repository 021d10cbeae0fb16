"""Options of where a party of a network listens."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.output import with_options
from cli.paths import EXISTING_FILE


def address_options(port: int) -> Callable[[Any], Any]:
    """Adds where a party listens, by default at that port, and hands the function `address`.

    That is a `secure_fl.service.serving.Address`, not checked yet.
    """
    options = (
        click.option("--host", default="127.0.0.1", show_default=True),
        click.option("--port", default=port, show_default=True, type=click.IntRange(1, 65535)),
        click.option(
            "--certificate",
            type=EXISTING_FILE,
            help="PEM file; needed where others can reach HOST.",
        ),
        click.option("--certificate-key", type=EXISTING_FILE, help="PEM file of its private key."),
        click.option(
            "--insecure", is_flag=True, help="Plain HTTP beyond this machine; not for data."
        ),
    )

    def add(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def command(
            host: str,
            port: int,
            certificate: Path | None,
            certificate_key: Path | None,
            insecure: bool,
            **arguments: Any,
        ) -> None:
            from secure_fl.service.extra import check_extra

            check_extra()
            from secure_fl.service.serving import Address

            address = Address(
                host=host,
                port=port,
                certificate=certificate,
                key=certificate_key,
                insecure=insecure,
            )
            function(address=address, **arguments)

        return with_options(command, options)

    return add

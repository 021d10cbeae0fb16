"""`securefl doctor`: whether this machine is ready to train and to answer over a network."""

from pathlib import Path

import click

from cli.output import Output, output_options
from cli.paths import EXISTING_FILE, EXISTING_FOLDER


@click.command()
@click.argument("folder", required=False, type=EXISTING_FOLDER)
@click.option(
    "--node-config",
    "config",
    metavar="SETTINGS",
    help="What `flower node` takes: looks at records, folder, keys and ledger; default: node.toml"
    " in FOLDER.",
)
@click.option("--superlink", metavar="HOST:PORT", help="Looks at its port, certificate and clock.")
@click.option("--server", metavar="URL", help="The same of a training server or an evaluator.")
@click.option(
    *("--root-certificates", "--authority", "authority"),
    type=EXISTING_FILE,
    help="PEM file of who signed their certificates; default: ca.pem in FOLDER, else the system's.",
)
@click.option(
    "--auth-supernode-private-key",
    "key",
    type=EXISTING_FILE,
    help="As `flower node`; default: node in FOLDER.",
)
@click.option("--insecure", is_flag=True, help="The SuperLink speaks plain HTTP.")
@output_options
def doctor(
    output: Output,
    folder: Path | None,
    config: str | None,
    superlink: str | None,
    server: str | None,
    authority: Path | None,
    key: Path | None,
    insecure: bool,
) -> None:
    """Look at a party's FOLDER (`identity new`) and at who it calls, one line a thing.

    Changes nothing.
    """
    from secure_fl.flower import checkup
    from secure_fl.flower.settings import read_config

    if folder is None and config is None and superlink is None and server is None:
        raise click.UsageError("give FOLDER, --node-config, --superlink or --server")
    found: list[checkup.Finding] = []
    if folder is not None:
        found += checkup.check_folder(folder)
        settings, known = folder / "node.toml", folder / "ca.pem"
        config = str(settings) if config is None and settings.exists() else config
        authority = known if authority is None and known.exists() else authority
    if config is not None:
        found += checkup.check_party(read_config(config))
    if key is not None:
        found.append(checkup.check_node_key(key))
    if superlink is not None:
        found += checkup.check_door(checkup.superlink(superlink, authority, insecure))
    if server is not None:
        from secure_fl.service.extra import check_extra

        check_extra()
        from secure_fl.service.checkup import door_of

        found += checkup.check_door(door_of(server, authority))
    facts = [{"what": each.what, "fine": each.fine, "found": each.found} for each in found]
    lines = [f"{'ok  ' if each.fine else 'MEND'} {each.what}: {each.found}" for each in found]
    output.result({"findings": facts}, "\n".join(lines))
    if not all(each.fine for each in found):
        # The result says what; a second object on standard output would break --json.
        click.get_current_context().exit(1)

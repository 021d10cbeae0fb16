"""`securefl doctor`: whether this machine is ready to train over a network."""

from pathlib import Path

import click

from cli.output import Output, output_options

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--node-config",
    "config",
    metavar="SETTINGS",
    help="What `flower node` takes: looks at records, folder, keys and ledger.",
)
@click.option("--superlink", metavar="HOST:PORT", help="Looks at its port, certificate and clock.")
@click.option("--root-certificates", "authority", type=_file, help="As `flower node`.")
@click.option("--auth-supernode-private-key", "key", type=_file, help="As `flower node`.")
@click.option("--insecure", is_flag=True, help="The SuperLink speaks plain HTTP.")
@output_options
def doctor(
    output: Output,
    config: str | None,
    superlink: str | None,
    authority: Path | None,
    key: Path | None,
    insecure: bool,
) -> None:
    """Look at all that `flower node` needs, one line each; changes nothing."""
    from secure_fl.flower.checkup import check_node_key, check_party, check_superlink
    from secure_fl.flower.settings import read_config

    if config is None and superlink is None:
        raise click.UsageError("give --node-config, --superlink, or both")
    found = [] if config is None else list(check_party(read_config(config)))
    if key is not None:
        found.append(check_node_key(key))
    if superlink is not None:
        found += check_superlink(superlink, authority, insecure)
    facts = [{"what": each.what, "fine": each.fine, "found": each.found} for each in found]
    lines = [f"{'ok  ' if each.fine else 'MEND'} {each.what}: {each.found}" for each in found]
    output.result({"findings": facts}, "\n".join(lines))
    if not all(each.fine for each in found):
        # The result says what; a second object on standard output would break --json.
        click.get_current_context().exit(1)

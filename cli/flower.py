"""`securefl flower`: files of a federation whose clients are separate machines."""

from pathlib import Path
from typing import Any

import click

from cli.methods import Rounds
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING_FILE, FILE
from cli.scaling import MOMENTS


@click.group()
def flower() -> None:
    """Train on separate machines with Flower; docs/deploy.md shows the way."""


def _setting(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    import tomllib

    found: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            raise click.BadParameter(f"found {each!r}, expected NAME=VALUE")
        try:
            found[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            # Words need no quotation marks on a command line.
            found[name] = text
    return found


@flower.command()
@click.argument("folder", type=ANY_PATH)
@click.option("--clients", required=True, help="Names, with commas, in the order of every sum.")
@click.option("--classes", required=True, help="Class names, with commas.")
@click.option("--out", required=True, help="Run folder that the server writes the model to.")
@click.option("--method", default="fednewton", show_default=True, help="As `train --method`.")
@click.option(
    "--aggregate",
    type=click.Choice(["plain", "secure"]),
    help="Sums in the clear or masked; default: secure. kahm has no sums.",
)
@click.option(
    "--scaling",
    type=click.Choice(["moments", "floored", "common", "range", "none"]),
    help="As `train --scaling`; the first three ask the nodes for one masked sum. Default: range"
    " beside --public, moments for models of masked sums without a promise, else none.",
)
@click.option(
    "--public",
    type=EXISTING_FILE,
    help="--scaling range: a file of public records: every feature is scaled to [0, 1] by its"
    " ranges there.",
)
@click.option(
    "--moments-clip",
    metavar="NORM | LOW,HIGH",
    help="--scaling by moments beside epsilon: as `train`; or its ranges with --public.",
)
@click.option("--max-weight", type=float, help="secure: bound on the records of one client.")
@click.option(
    "--rounds",
    type=Rounds(),
    help="Default: 10; auto: until the objective of all clients stops falling, one sum a round"
    " more. kahm has none.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=_setting,
    metavar="NAME=VALUE",
    help="Any other setting, e.g. --set ridge=0.1 --set checkpoint=run.checkpoint; repeatable.",
)
@output_options
def app(
    output: Output,
    folder: Path,
    clients: str,
    classes: str,
    out: str,
    method: str,
    aggregate: str | None,
    scaling: str | None,
    public: Path | None,
    moments_clip: str | None,
    max_weight: float | None,
    rounds: int | str | None,
    settings: dict[str, Any],
) -> None:
    """Write FOLDER for `train --runtime flower`: what to train, on whom. It holds no secret."""
    import shlex

    from secure_fl.flower.app import write_app
    from secure_fl.flower.plan import HEADS

    promised = any(name in settings for name in ("epsilon", "client-epsilon"))
    masked = method not in HEADS and aggregate != "plain"
    word = scaling or _default_scaling(public, settings, moments=masked and not promised)
    if public is not None and word != "range" and not (promised and word in MOMENTS):
        raise click.UsageError("--public has no meaning without --scaling range")
    if word == "range" and public is None and "offsets" not in settings:
        raise click.UsageError("--scaling range needs --public, a file of public records")
    if word is None:
        output.note(
            "features are not scaled; give --scaling moments, floored or common, or --scaling range"
            " --public FILE; --scaling none says so"
        )
    config = {
        "clients": clients,
        "classes": classes,
        "out": out,
        "method": method,
        "secure": None if method in HEADS and aggregate is None else aggregate != "plain",
        "max-weight": max_weight,
        "rounds": rounds,
        "scaling": word if word in MOMENTS else None,
        "moments-clip": moments_clip,
        **({} if public is None else _public_ranges(public)),
        **settings,
    }
    write_app(folder, config)
    words = ["securefl", "train", str(folder), "--runtime", "flower", "--superlink", "NAME"]
    start = shlex.join([*words, "--out", out])
    output.result(
        {
            "app": str(folder),
            "config": {k: v for k, v in config.items() if v is not None},
            "start": start,
        },
        f"{folder}: {method} on {clients}; start it with `{start}`",
    )


def _default_scaling(public: Path | None, settings: dict[str, Any], *, moments: bool) -> str | None:
    """What is done to features where nothing is said of it; None for nothing."""
    if public is not None or "offsets" in settings:
        return "range"
    if "scaling" in settings:
        return str(settings["scaling"])
    return "moments" if moments else None


def _public_ranges(path: Path) -> dict[str, str]:
    """Offsets and spreads of a run's configuration."""
    from secure_fl.data import read_records
    from secure_fl.data.scaling import ranges_of
    from secure_fl.errors import InputError

    records = read_records(path)
    if records.X is None:
        raise InputError(f"{path}: holds texts, not features; embed it first (securefl data embed)")
    found = ranges_of(records.X)
    named = ("offsets", found.offsets), ("spreads", found.spreads)
    return {name: ",".join(map(repr, numbers or ())) for name, numbers in named}


@flower.command()
@click.argument("key", type=FILE)
@output_options
def identity(output: Output, key: Path) -> None:
    """Make a signature key KEY alone; `securefl identity new` makes all that a party needs."""
    from secure_fl.crypto.identities import write_identity

    public = write_identity(key)
    output.result({"key": str(key), "public": public}, public)


@flower.command()
@click.option("--superlink", required=True, metavar="HOST:PORT", help="Of the SuperLink.")
@click.option(
    "--node-config",
    "config",
    required=True,
    metavar="SETTINGS",
    help="What this node's owner insists on, as `flower-supernode` takes it: NAME=VALUE"
    " NAME=VALUE, or a .toml file.",
)
@click.option(
    "--root-certificates",
    "authority",
    type=EXISTING_FILE,
    help="PEM file of who signed the SuperLink's certificate; default: the system's.",
)
@click.option(
    "--auth-supernode-private-key",
    "key",
    type=EXISTING_FILE,
    help="The node's key, where the SuperLink knows its nodes by their keys.",
)
@click.option("--insecure", is_flag=True, help="Plain HTTP, without node authentication.")
@output_options
def node(
    output: Output,
    superlink: str,
    config: str,
    authority: Path | None,
    key: Path | None,
    insecure: bool,
) -> None:
    """Answer a SuperLink for a client, by this securefl's own code and no other.

    Takes the place of Flower's flower-supernode: one process that stays, and runs nothing that a
    server ships.
    """
    from secure_fl.flower.serving import serve_node

    if insecure and (key is not None or authority is not None):
        raise click.UsageError(
            "--insecure: without TLS there are no --root-certificates and no"
            " --auth-supernode-private-key"
        )
    with output.progress() as progress:
        answered = serve_node(
            superlink,
            config,
            authority=authority,
            key=key,
            insecure=insecure,
            progress=progress,
            note=output.note,
        )
    output.result({"answered": answered}, f"stopped; {answered} messages answered")


def run_app(output: Output, folder: Path, out: Path, superlink: str | None) -> None:
    """Runs an app folder on a SuperLink and waits for it; the ServerApp writes `out`.

    Raises:
        InputError: no app folder, or Flower is not installed.
        ClickException: the run failed; Flower's own messages say why.
    """
    import json
    import shutil
    import subprocess
    import sys

    from secure_fl.errors import InputError
    from secure_fl.files import refuse_existing
    from secure_fl.flower.app_settings import settings_of_folder

    refuse_existing(out)
    settings_of_folder(folder)
    beside = Path(sys.executable).parent / "flwr"
    command = str(beside) if beside.exists() else shutil.which("flwr")
    if command is None:
        raise InputError("flwr: not installed; pip install securefl[flower]")
    place = f"out={json.dumps(str(out.absolute()))}"
    arguments = [command, "run", str(folder), *([superlink] if superlink else [])]
    finished = subprocess.run([*arguments, "--run-config", place, "--stream"], stdout=sys.stderr)
    # Flower ends with 0 whatever the ServerApp did. The folder appears whole or not at all.
    if finished.returncode != 0 or not out.exists():
        raise click.ClickException(
            f"{out}: the run left no model here; Flower's messages above say why, or the SuperLink"
            " is another machine and wrote it there"
        )
    output.result({"run": str(out)}, f"{out}: trained")

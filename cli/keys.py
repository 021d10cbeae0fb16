"""`securefl keys`: the querier's keys."""

import secrets
from pathlib import Path
from typing import Any

import click

from cli.output import Output, human_bytes, output_options
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE
from secure_fl.crypto.passphrase import PASSPHRASE_VARIABLE


def passphrase_option(function: Any) -> Any:
    """--passphrase-file; without it the environment variable, then a prompt."""
    return click.option(
        "--passphrase-file",
        type=EXISTING_FILE,
        help=f"First line is the passphrase; default: ${PASSPHRASE_VARIABLE}, else a prompt.",
    )(function)


def get_passphrase(file: Path | None, *, confirm: bool = False) -> str:
    """The passphrase; never printed.

    Raises:
        InputError: an empty one.
    """
    import os

    from secure_fl.errors import InputError

    if file is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        found = lines[0] if lines else ""
    else:
        found = os.environ.get(PASSPHRASE_VARIABLE) or click.prompt(
            "Passphrase of the secret key", hide_input=True, confirmation_prompt=confirm, err=True
        )
    if not found:
        raise InputError(f"passphrase: empty in {file or PASSPHRASE_VARIABLE}; choose one")
    return str(found)


@click.group()
def keys() -> None:
    """Make, look at and try the keys of the encrypted rule."""


@keys.command()
@click.argument("run", type=EXISTING)
@click.option("--out", required=True, type=ANY_PATH, help="A new folder.")
@click.option(
    "--engine",
    type=click.Choice(["tfhe", "bgv"]),
    default="tfhe",
    show_default=True,
    help="tfhe answers query by query, bgv thousands at once.",
)
@click.option(
    "--failure",
    type=click.Choice(["40", "64", "128"]),
    help="tfhe: a decision is wrong by noise with probability at most 2^-this; default: 128.",
)
@click.option(
    "--block",
    type=int,
    help="tfhe: comparisons of one call of a compiled function, at most; default: 32.",
)
@passphrase_option
@output_options
def new(
    output: Output,
    run: Path,
    out: Path,
    engine: str,
    failure: str | None,
    block: int | None,
    passphrase_file: Path | None,
) -> None:
    """Make a querier's keys for the federation in the folder RUN; each querier makes its own."""
    import fhe
    from secure_fl.files import new_folder
    from secure_fl.heads.codes import batched_parameters, rule_parameters
    from secure_fl.heads.manifest import load_manifest

    manifest = load_manifest(run)
    parameters: fhe.AnyParameters
    if engine == "bgv":
        if failure is not None or block is not None:
            raise click.UsageError("--failure and --block are of --engine tfhe")
        parameters = batched_parameters(manifest)
        wrong = "2^-40 a batch"
    else:
        exponent = int(failure or 128)
        parameters = rule_parameters(
            manifest, failure_exponent=exponent, block=32 if block is None else block
        )
        wrong = f"2^-{exponent} a decision"
    passphrase = get_passphrase(passphrase_file, confirm=True)
    with output.progress() as progress, new_folder(out) as aside:
        progress("compiling and drawing keys", 0, 1)
        made = fhe.generate_keys(parameters)
        public_key = fhe.make_public_key(made)
        progress("compiling and drawing keys", 1, 1)
        output.note(f"writing an evaluation key of {human_bytes(len(made.evaluation.content))}")
        aside.chmod(0o700)
        secret = fhe.save_secret_keys(aside, made, passphrase)
        public = fhe.save_public_key(aside, public_key)
        evaluation = fhe.save_evaluation_keys(aside, made.evaluation)
    data = {
        "folder": str(out),
        "key": made.evaluation.fingerprint,
        "engine": engine,
        "parameters": parameters.to_json(),
        "secret_bytes": secret,
        "public_bytes": public,
        "evaluation_bytes": evaluation,
    }
    text = (
        f"{out}/secret.key      {human_bytes(secret)}, sealed; the querier alone\n"
        f"{out}/public.key      {human_bytes(public)}; the contributors and the evaluator\n"
        f"{out}/evaluation.key  {human_bytes(evaluation)}; the evaluator\n"
        f"key {made.evaluation.fingerprint[:16]}, engine {engine}, failure {wrong}"
    )
    if len(manifest.queriers) > 1:
        text += (
            f"\none of {len(manifest.queriers)} queriers: the others keep these in a folder of this"
            " one's name, beside those of the other queriers"
        )
    output.result(data, text)


@keys.command()
@click.argument("folder", type=EXISTING)
@output_options
def inspect(output: Output, folder: Path) -> None:
    """Say in plain sentences what the keys in FOLDER are for and who can read what."""
    import fhe
    from fhe.inspection import describe_keys

    facts = describe_keys(fhe.load_evaluation_keys(folder))
    output.result(facts.to_json(), facts.to_text())


@keys.command()
@click.argument("folder", type=EXISTING)
@passphrase_option
@output_options
def check(output: Output, folder: Path, passphrase_file: Path | None) -> None:
    """Encrypt, evaluate and decrypt a fixed set with the keys in FOLDER and compare."""
    import fhe
    from fhe.inspection import self_test

    loaded = fhe.load_secret_keys(folder, get_passphrase(passphrase_file))
    with output.progress() as progress:
        evaluation, public = fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
        decisions = self_test(loaded, evaluation, public, progress=progress)
    output.result(
        {"decisions": decisions, "right": decisions},
        f"{decisions} encrypted decisions, all equal to the plain rule",
    )


def new_batch() -> str:
    """A fresh name of a query batch."""
    return secrets.token_hex(8)

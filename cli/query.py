"""`securefl encrypt` and `decrypt`: a batch by files; `securefl query`: over a network."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.keys import get_passphrase, new_batch, passphrase_option
from cli.output import Output, human_bytes, output_options, show_classes
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.heads.head import Head
    from secure_fl.heads.manifest import Manifest

SUFFIX = ".contribution"

run_option = click.option("--run", type=EXISTING, help="The run folder.")
keys_option = click.option("--keys", type=EXISTING, help="Key folder.")
rows_option = click.option("--rows", help="Queries to take, start:stop from 0; default: all.")


@click.command()
@click.argument("queries", type=EXISTING_FILE)
@click.option("--run", required=True, type=EXISTING)
@click.option(
    "--keys",
    required=True,
    type=EXISTING,
    help="Folder with the querier's public.key; no other key is needed or read.",
)
@click.option("--out", required=True, type=ANY_PATH, help="Folder to send.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    help='Only these; default: all heads here. "unknown": the threshold, where there is one.',
)
@click.option("--audit", type=click.IntRange(1), help="Mix in this many known answers.")
@click.option(
    "--audit-file",
    type=ANY_PATH,
    help="The batch's audit secret: written where absent, else read; not for the evaluator.",
)
@click.option("--batch", help="Name of the query batch, the same at every client; default: new.")
@rows_option
@read_options
@output_options
def encrypt(
    output: Output,
    queries: Path,
    run: Path,
    keys: Path,
    out: Path,
    clients: tuple[str, ...],
    batch: str | None,
    audit: int | None,
    audit_file: Path | None,
    rows: str | None,
    **reading: Any,
) -> None:
    """Measure QUERIES with the clients' heads and encrypt one integer per query and client."""
    import fhe
    from secure_fl.errors import InputError
    from secure_fl.files import new_files
    from secure_fl.heads.codes import head_codes, threshold_codes
    from secure_fl.heads.manifest import UNKNOWN
    from secure_fl.heads.queries import parse_rows, read_queries

    manifest, heads, with_threshold = _contributors(run, clients)
    options = make_read_options(**reading)
    features, _ = read_queries(queries, manifest, options, parse_rows(rows))
    public = fhe.load_public_key(keys)
    if public.parameters.contributors != len(manifest.contributors):
        raise InputError(
            f"{keys}: keys for {public.parameters.contributors} contributors, the federation has"
            f" {len(manifest.contributors)}; make new ones (securefl keys new)"
        )
    sending = {head.client: partial(head_codes, head, features, manifest) for head in heads}
    if with_threshold:
        sending[UNKNOWN] = partial(threshold_codes, len(features), manifest)
    names = [f"{name}{SUFFIX}" for name in sending]
    batch = batch or new_batch()
    known = some_audit(audit, audit_file, batch)
    sizes: dict[str, int] = {}
    with output.progress() as progress, new_files(out, names) as aside:
        for i, (contributor, measured) in enumerate(sending.items()):
            position = manifest.contributors.index(contributor)
            codes = measured()
            if known is not None:
                codes = known.mix(codes, position, public.parameters)
            message = fhe.contribute(
                codes,
                public,
                contributor=position,
                name=contributor,
                federation=manifest.fingerprint,
                batch=batch,
            )
            sizes[contributor] = message.save(aside / f"{contributor}{SUFFIX}")
            progress("encrypting", i + 1, len(sending))
        keep_audit(known, audit_file, batch)
    output.result(
        {"batch": batch, "queries": len(features), "bytes": sizes, "out": str(out)},
        f"{out}: {len(features)} queries, {len(sizes)} contributions of"
        f" {human_bytes(max(sizes.values()))}, batch {batch}",
    )


def _contributors(run: Path, clients: Sequence[str]) -> "tuple[Manifest, list[Head], bool]":
    """The manifest, the heads that contribute here, and whether the threshold does.

    The threshold's contribution is public, and one party makes it: who has all heads, or who asks
    for it by its name.
    """
    from secure_fl.heads.codes import refuse_masked
    from secure_fl.heads.manifest import UNKNOWN, load_manifest
    from secure_fl.heads.run_folder import load_run

    manifest = load_manifest(run)
    refuse_masked(manifest)
    offered = manifest.unknown_above is not None
    named = [name for name in clients if not (offered and name == UNKNOWN)]
    heads = load_run(run, named)[1] if named or not clients else []
    whole = not clients and len(heads) == len(manifest.clients)
    return manifest, heads, offered and (whole or len(named) < len(clients))


def some_audit(count: int | None, path: Path | None, batch: str) -> "Audit | None":
    """The batch's audit secret, made or read; None where no audit is asked for."""
    from fhe.audit import audit_for

    if count is None and path is None:
        return None
    if path is None:
        raise click.UsageError("--audit needs --audit-file, where the batch's secret is kept")
    if count is None and not path.exists():
        raise click.UsageError(f"{path} does not exist; say with --audit how many known answers")
    return audit_for(path, batch, count)


def keep_audit(audit: "Audit | None", path: Path | None, batch: str) -> None:
    """Writes a new secret where its path is named."""
    from fhe.audit import save_audit

    if audit is not None and path is not None and not path.exists():
        save_audit(path, audit, batch)


@click.command()
@click.argument("answer", type=EXISTING_FILE)
@click.option("--keys", required=True, type=EXISTING)
@click.option("--run", required=True, type=EXISTING)
@click.option(
    "--audit-file",
    type=EXISTING_FILE,
    help="Check the batch's known answers; one wrong answer refuses the whole batch.",
)
@click.option(
    "--against",
    type=EXISTING_FILE,
    help="Another evaluator's answer to the same contributions, that must agree.",
)
@passphrase_option
@output_options
def decrypt(
    output: Output,
    answer: Path,
    keys: Path,
    run: Path,
    audit_file: Path | None,
    against: Path | None,
    passphrase_file: Path | None,
) -> None:
    """Read the classes in the file ANSWER."""
    import fhe
    from fhe.audit import spend_audit
    from fhe.checking import check_agreement, check_same_batch
    from fhe.retirement import retiring
    from secure_fl.errors import InputError
    from secure_fl.heads.codes import refuse_masked
    from secure_fl.heads.manifest import load_manifest

    manifest = load_manifest(run)
    refuse_masked(manifest)
    message = fhe.load_answer(answer)
    if message.federation != manifest.fingerprint:
        raise InputError(f"{answer}: of another federation than {run}; name its run folder")
    secret = fhe.load_secret_keys(keys, get_passphrase(passphrase_file))
    # Spent before anything is read: nobody may try one answer after the other.
    audit = None
    if audit_file is not None:
        audit = spend_audit(audit_file, message.batch, answer.read_bytes())
    with retiring(keys, message.batch):
        found = fhe.read_answer(message, secret)
        if against is not None:
            second = fhe.load_answer(against)
            check_same_batch(message, second, source=str(against))
            check_agreement(found, fhe.read_answer(second, secret))
        if audit is not None:
            found = audit.check(found, secret.parameters)
    if against is not None:
        output.note(f"both evaluators agree at all {len(found)} queries")
    if audit is not None:
        output.note(f"all {audit.known} known answers are right")
    show_classes(output, [manifest.answers[c] for c in found], None)

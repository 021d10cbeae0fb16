"""`securefl encrypt` and `decrypt`: a batch by files; `securefl query`: over a network."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.keys import get_passphrase, new_batch, passphrase_option
from cli.masked import ask_masked, distance_option, telling, unknown_option
from cli.output import Output, human_bytes, output_options, show_classes

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.heads.head import Head
    from secure_fl.heads.manifest import Manifest
    from secure_fl.service.desk import Desk

SUFFIX = ".contribution"

run_option = click.option(
    "--run", type=click.Path(exists=True, path_type=Path), help="The run folder."
)
keys_option = click.option(
    "--keys", type=click.Path(exists=True, path_type=Path), help="Key folder."
)
rows_option = click.option("--rows", help="Queries to take, start:stop from 0; default: all.")


@click.command()
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--run", required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--keys",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="Folder with the querier's public.key; no other key is needed or read.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to send.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    help='Only these; default: all heads here. "unknown": the threshold, where there is one.',
)
@click.option("--audit", type=click.IntRange(1), help="Mix in this many known answers.")
@click.option(
    "--audit-file",
    type=click.Path(path_type=Path),
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
    known = _audit(audit, audit_file, batch)
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
        _keep_audit(known, audit_file, batch)
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


def _audit(count: int | None, path: Path | None, batch: str) -> "Audit | None":
    """The batch's audit secret, made or read; None where no audit is asked for."""
    from fhe.audit import audit_for

    if count is None and path is None:
        return None
    if path is None:
        raise click.UsageError("--audit needs --audit-file, where the batch's secret is kept")
    if count is None and not path.exists():
        raise click.UsageError(f"{path} does not exist; say with --audit how many known answers")
    return audit_for(path, batch, count)


def _keep_audit(audit: "Audit | None", path: Path | None, batch: str) -> None:
    from fhe.audit import save_audit

    if audit is not None and path is not None and not path.exists():
        save_audit(path, audit, batch)


def _kept_audit(desk: "Desk", batch: str) -> "Audit":
    from secure_fl.errors import InputError

    found = desk.audit(batch)
    if found is None:
        raise InputError(
            f"batch {batch}: its secret of known answers is not beside the keys; name it with"
            " --audit-file, or say --audit 0 if the batch was opened without"
        )
    return found


@click.command()
@click.argument("answer", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--keys", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--run", required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--audit-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the batch's known answers; one wrong answer refuses the whole batch.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
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


@click.command()
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--run", required=True, type=click.Path(exists=True, path_type=Path))
@keys_option
@click.option(
    "--identity",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Secret file of the querier.",
)
@click.option("--evaluator", "url", required=True, help="https://HOST:PORT of the evaluator.")
@click.option(
    "--authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of who signed its certificate.",
)
@click.option("--insecure", is_flag=True, help="Call the evaluator by plain HTTP.")
@click.option("--proxy", help="http://HOST:PORT of a proxy; the environment's is not used.")
@click.option(
    "--quorum",
    type=click.IntRange(1),
    help="Contributors that suffice; default: all, of the rule masked above two thirds.",
)
@distance_option
@unknown_option
@click.option(
    "--patience", default=60.0, show_default=True, help="Seconds to wait for more than the quorum."
)
@click.option("--lifetime", default=3600.0, show_default=True, help="Seconds to wait in all.")
@click.option(
    "--audit",
    type=click.IntRange(0),
    help="Known answers to mix in; 0 for none; default: as many as --leak-bits needs.",
)
@click.option(
    "--leak-bits",
    type=float,
    default=32.0,
    show_default=True,
    help="That a lying evaluator learns at most, on average, before a known answer exposes it.",
)
@click.option(
    "--audit-file",
    type=click.Path(path_type=Path),
    help="The batch's audit secret: written where absent, else read; default: beside the keys.",
)
@click.option("--batch", help="Name of the query batch; default: new.")
@click.option("--fetch", is_flag=True, help="Wait for the batch that was opened before.")
@rows_option
@read_options
@passphrase_option
@output_options
def query(
    output: Output,
    queries: Path,
    run: Path,
    keys: Path | None,
    identity: Path,
    url: str,
    authority: Path | None,
    insecure: bool,
    proxy: str | None,
    quorum: int | None,
    distance: bool,
    unknown_from: float | None,
    patience: float,
    lifetime: float,
    audit: int | None,
    leak_bits: float,
    audit_file: Path | None,
    batch: str | None,
    fetch: bool,
    rows: str | None,
    passphrase_file: Path | None,
    **reading: Any,
) -> None:
    """Ask the federation about QUERIES: sealed to every contributor, answered on ciphertexts.

    Known answers are mixed in, a wrong one retires the keys, and the evaluator is not told what was
    found in its answer. Under the rule masked there are no keys: the contributors' rows are added
    under masks, and this command opens the sum.
    """
    from secure_fl.service.extra import check_extra

    check_extra()
    import functools

    import fhe
    from fhe.audit import spend_audit
    from fhe.engines import tfhe_public_key
    from fhe.keys import load_secret_keys
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.service.asking import ask
    from secure_fl.service.channel import Channel
    from secure_fl.service.desk import Desk
    from secure_fl.service.members import read_member
    from secure_fl.service.querier import BatchTerms, Querier

    if fetch and batch is None:
        raise click.UsageError("--fetch needs --batch, the name of what was opened")
    manifest = load_manifest(run)
    member = read_member(identity, "querier", manifest)
    options = make_read_options(**reading)
    features, labels = read_queries(queries, manifest, options, parse_rows(rows))
    terms = BatchTerms(quorum=quorum, patience=patience, lifetime=lifetime)
    line = functools.partial(
        Channel, url, member, manifest, authority=authority, insecure=insecure, proxy=proxy
    )
    if manifest.rule == "masked":
        refuse_given({"keys", "audit_file", "passphrase_file"}, "for the rule masked")
        asks = Querier(member, manifest, None, line())
        batch = batch or new_batch()
        known = _known(Desk(run), batch, len(features), manifest, audit, leak_bits, fetch=fetch)
        ask_masked(
            output,
            (asks, Desk(run), features, labels),
            batch,
            known,
            None if fetch else terms,
            distance=distance,
            unknown_from=unknown_from,
        )
        return
    refuse_given({"distance", "unknown_from"}, f"for the rule {manifest.rule}")
    if keys is None:
        raise click.UsageError(f"the rule is {manifest.rule}: name the folder of keys with --keys")
    public = tfhe_public_key(fhe.load_public_key(keys), user="the service")
    secret = load_secret_keys(keys, get_passphrase(passphrase_file))
    batch = batch or new_batch()
    desk = Desk(keys)
    spend: Any = None
    if audit_file is not None:
        # A batch that was opened before is checked when its answer is there.
        known = None if fetch else _audit(audit or None, audit_file, batch)
        _keep_audit(known, audit_file, batch)
        spend = functools.partial(spend_audit, audit_file, batch)
    else:
        known = _known(desk, batch, len(features), manifest, audit, leak_bits, fetch=fetch)
    asks = Querier(member, manifest, public, line())
    with output.progress() as progress:
        output.note(f"batch {batch}: {len(features)} queries for {len(manifest.clients)} clients")
        found = ask(
            asks,
            keys,
            secret,
            features,
            batch=batch,
            known=known,
            terms=None if fetch else terms,
            spend=spend,
            on_status=telling(output, progress, asks, batch),
        )
    if known is not None:
        output.note(f"all {known.known} known answers are right")
    elif spend is not None:
        output.note("all known answers are right")
    missing = [name for name in manifest.clients if name not in found.present]
    if missing:
        output.note(f"answered without {', '.join(missing)}")
    facts = {"batch": batch, "present": list(found.present)}
    show_classes(output, [manifest.classes[c] for c in found.classes], labels, facts)


def _known(
    desk: "Desk",
    batch: str,
    queries: int,
    manifest: "Manifest",
    audit: int | None,
    leak_bits: float,
    *,
    fetch: bool,
) -> "Audit | None":
    """The known answers of a batch: those that were mixed in, or new ones that are kept."""
    from fhe.audit import known_for, new_audit

    if fetch:
        return None if audit == 0 else _kept_audit(desk, batch)
    classes = len(manifest.classes)
    count = known_for(queries, classes, bits=leak_bits) if audit is None else audit
    known = new_audit(count) if count else None
    if known is not None:
        desk.keep_audit(batch, known)
    return known

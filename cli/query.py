"""`securefl encrypt`, `infer`, `decrypt`: a batch by files; `securefl query`: over a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.keys import get_passphrase, new_batch, passphrase_option
from cli.output import Output, human_bytes, output_options, show_classes

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.service.desk import Desk

SUFFIX = ".contribution"

_run = click.option("--run", type=click.Path(exists=True, path_type=Path), help="The run folder.")
_keys = click.option("--keys", type=click.Path(exists=True, path_type=Path), help="Key folder.")
_rows = click.option("--rows", help="Queries to take, start:stop from 0; default: all.")


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
@click.option("--client", "clients", multiple=True, help="Only these; default: all heads here.")
@click.option("--audit", type=click.IntRange(1), help="Mix in this many known answers.")
@click.option(
    "--audit-file",
    type=click.Path(path_type=Path),
    help="The batch's audit secret: written where absent, else read; not for the evaluator.",
)
@click.option("--batch", help="Name of the query batch, the same at every client; default: new.")
@_rows
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
    from secure_fl.heads.codes import head_codes
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.heads.run_folder import load_run

    manifest, heads = load_run(run, clients)
    options = make_read_options(**reading)
    features, _ = read_queries(queries, manifest, options, parse_rows(rows))
    names = [f"{head.client}{SUFFIX}" for head in heads]
    public = fhe.load_public_key(keys)
    if public.parameters.contributors != len(manifest.clients):
        raise InputError(
            f"{keys}: keys for {public.parameters.contributors} contributors, the federation has"
            f" {len(manifest.clients)}; make new ones (securefl keys new)"
        )
    batch = batch or new_batch()
    known = _audit(audit, audit_file, batch)
    sizes: dict[str, int] = {}
    with output.progress() as progress, new_files(out, names) as aside:
        for i, (head, name) in enumerate(zip(heads, names, strict=True)):
            position = manifest.client_index(head.client)
            codes = head_codes(head, features, manifest)
            if known is not None:
                codes = known.mix(codes, position, public.parameters)
            message = fhe.contribute(
                codes,
                public,
                contributor=position,
                name=head.client,
                federation=manifest.fingerprint,
                batch=batch,
            )
            sizes[head.client] = message.save(aside / name)
            progress("encrypting", i + 1, len(heads))
        _keep_audit(known, audit_file, batch)
    output.result(
        {"batch": batch, "queries": len(features), "bytes": sizes, "out": str(out)},
        f"{out}: {len(features)} queries, {len(sizes)} contributions of"
        f" {human_bytes(max(sizes.values()))}, batch {batch}",
    )


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


def _contributions(sources: Sequence[Path]) -> list[Path]:
    from secure_fl.errors import InputError

    found: list[Path] = []
    for source in sources:
        found += sorted(source.glob(f"*{SUFFIX}")) if source.is_dir() else [source]
    if not found:
        raise InputError(f"{sources[0]}: holds no {SUFFIX} file; make them with securefl encrypt")
    return found


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--mode",
    type=click.Choice(["encrypted", "simulate", "plain"]),
    default="encrypted",
    show_default=True,
    help="simulate and plain classify QUERIES here, without keys; plain takes exact measures.",
)
@click.option("--out", type=click.Path(path_type=Path), help="encrypted: the answer file.")
@_keys
@_run
@_rows
@read_options
@output_options
def infer(
    output: Output,
    sources: tuple[Path, ...],
    mode: str,
    out: Path | None,
    keys: Path | None,
    run: Path | None,
    rows: str | None,
    **reading: Any,
) -> None:
    """Answer a batch: from the contributions in SOURCES, on ciphertexts.

    With --mode simulate or plain, SOURCES is one file of queries and --run names the heads.
    """
    if mode != "encrypted":
        if run is None or len(sources) != 1:
            raise click.UsageError(f"--mode {mode} needs --run and one file of queries")
        refuse_given({"out", "keys"}, f"for --mode {mode}, which prints the classes")
        _infer_in_the_clear(output, sources[0], run, mode, rows, make_read_options(**reading))
        return
    if keys is None or out is None:
        raise click.UsageError("encrypted answers need --keys and --out")
    refuse_given({"run", "rows", *reading}, "for encrypted answers; contributions hold all of it")
    import fhe
    from fhe.advice import advice
    from fhe.answered import recorded, refuse_answered, refuse_unwritable
    from secure_fl.errors import InputError
    from secure_fl.files import prove_writable

    if out.exists():
        raise InputError(f"{out}: exists already; remove it or choose another file")
    messages = [fhe.load_contribution(path) for path in _contributions(sources)]
    evaluation, public = fhe.load_evaluation_keys(keys), fhe.load_public_key(keys)
    refuse_answered(keys, messages)
    # All that can be known before the evaluation's minutes: where its answer and memory go.
    refuse_unwritable(keys)
    prove_writable(out, 0)
    output.note(advice(evaluation.parameters, messages[0].queries))
    with output.progress() as progress:
        answer = fhe.evaluate(messages, evaluation, public, progress=progress)
        output.note(f"writing {human_bytes(len(answer.payload()))} of encrypted answers")
        with recorded(keys, answer):
            size = answer.save(out)
    output.result(
        {"answer": str(out), "queries": answer.queries, "bytes": size, "batch": answer.batch},
        f"{out}: {answer.queries} encrypted answers, {human_bytes(size)}",
    )


def _infer_in_the_clear(
    output: Output, queries: Path, run: Path, mode: str, rows: str | None, options: Any
) -> None:
    import numpy as np

    import fhe
    from kahm import classify
    from secure_fl.heads.codes import head_codes, rule_parameters
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.heads.run_folder import all_measures, load_run

    manifest, heads = load_run(run)
    features, labels = read_queries(queries, manifest, options, parse_rows(rows))
    if mode == "plain":
        found = classify(all_measures(heads, features, manifest))
    else:
        codes = np.stack([head_codes(head, features, manifest) for head in heads], axis=1)
        found = fhe.simulate(codes, rule_parameters(manifest, failure_exponent=128, block=4))
    show_classes(output, [manifest.classes[c] for c in found], labels)


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
    from secure_fl.heads.manifest import load_manifest

    manifest = load_manifest(run)
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
    show_classes(output, [manifest.classes[c] for c in found], None)


@click.command()
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--run", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--keys", required=True, type=click.Path(exists=True, path_type=Path))
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
@click.option("--quorum", type=click.IntRange(1), help="Contributors that suffice; default: all.")
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
@_rows
@read_options
@passphrase_option
@output_options
def query(
    output: Output,
    queries: Path,
    run: Path,
    keys: Path,
    identity: Path,
    url: str,
    authority: Path | None,
    insecure: bool,
    proxy: str | None,
    quorum: int | None,
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
    found in its answer.
    """
    from secure_fl.service.extra import check_extra

    check_extra()
    import functools

    import fhe
    from fhe.audit import known_for, new_audit, spend_audit
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
    elif fetch:
        known = None if audit == 0 else _kept_audit(desk, batch)
    else:
        classes = len(manifest.classes)
        count = known_for(len(features), classes, bits=leak_bits) if audit is None else audit
        known = new_audit(count) if count else None
        if known is not None:
            desk.keep_audit(batch, known)
    channel = Channel(url, member, manifest, authority=authority, insecure=insecure, proxy=proxy)
    asks = Querier(member, manifest, public, channel)
    with output.progress() as progress:
        output.note(f"batch {batch}: {len(features)} queries for {len(manifest.clients)} clients")
        heard: set[str] = set()

        def on_status(status: Any) -> None:
            for name, reason in asks.refusals(status, batch).items():
                if name not in heard:
                    output.note(f"{name} declined: {reason}")
                    heard.add(name)
            sent = sum(state == "sent" for state in status["clients"].values())
            progress("contributions", sent, len(status["clients"]))
            if status["total"]:
                progress("evaluating", status["done"], status["total"])

        terms = BatchTerms(quorum=quorum, patience=patience, lifetime=lifetime)
        found = ask(
            asks,
            keys,
            secret,
            features,
            batch=batch,
            known=known,
            terms=None if fetch else terms,
            spend=spend,
            on_status=on_status,
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

"""`securefl query`: a batch asked over the network."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.judged import ask_in_turn, labels_to_judge_by
from cli.keys import get_passphrase, new_batch, passphrase_option
from cli.masked import OF_DISTANCES, ask_masked, distance_option, telling, unknown_option
from cli.output import Output, output_options, show_classes
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE
from cli.query import keep_audit, keys_option, rows_option, some_audit

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.heads.manifest import Manifest
    from secure_fl.service.desk import Desk

_NO_KNOWN = "for the rule votes: noise may make a right answer to a known query wrong"
_OF_ONE_BATCH = frozenset({"fetch", "batch", "audit_file", "distance", "unknown_from"})


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
@click.argument("queries", type=EXISTING_FILE)
@click.option("--run", required=True, type=EXISTING)
@keys_option
@click.option(
    "--identity",
    required=True,
    type=EXISTING_FILE,
    help="Secret file of the querier that asks; by it federation.json knows which one it is.",
)
@click.option("--evaluator", "url", required=True, help="https://HOST:PORT of the evaluator.")
@click.option(
    "--authority",
    type=EXISTING_FILE,
    help="PEM file of who signed its certificate.",
)
@click.option("--insecure", is_flag=True, help="Call the evaluator by plain HTTP.")
@click.option("--proxy", help="http://HOST:PORT of a proxy; the environment's is not used.")
@click.option(
    "--quorum",
    type=click.IntRange(1),
    help="Contributors that suffice; default: all, of the rule masked above two thirds.",
)
@click.option(
    "--degree",
    default=0,
    type=click.IntRange(0),
    help="masked: contributors that each masks with, an even number; default: all others.",
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
    type=ANY_PATH,
    help="The batch's audit secret: written where absent, else read; default: beside the keys.",
)
@click.option("--batch", help="Name of the query batch; default: new.")
@click.option("--fetch", is_flag=True, help="Wait for the batch that was opened before.")
@click.option(
    "--leave-one-out",
    is_flag=True,
    help="Accuracy on labelled public QUERIES without each contributor in turn, a batch for each.",
)
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
    degree: int,
    distance: bool,
    unknown_from: float | None,
    patience: float,
    lifetime: float,
    audit: int | None,
    leak_bits: float,
    audit_file: Path | None,
    batch: str | None,
    fetch: bool,
    leave_one_out: bool,
    rows: str | None,
    passphrase_file: Path | None,
    **reading: Any,
) -> None:
    """Ask the federation about QUERIES: sealed to every contributor, answered on ciphertexts.

    Known answers are mixed in, a wrong one retires the keys, and the evaluator is not told what was
    found in its answer. Under the rules masked and votes there are no keys: the contributors' rows
    are added under masks, and this command opens the sum.
    """
    from secure_fl.service.extra import check_extra

    check_extra()
    import functools

    import fhe
    from fhe.audit import spend_audit
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.service import masked_querier
    from secure_fl.service.asking import ask
    from secure_fl.service.channel import Channel
    from secure_fl.service.desk import Desk
    from secure_fl.service.members import read_querier
    from secure_fl.service.querier import BatchTerms, Querier

    if leave_one_out:
        refuse_given(_OF_ONE_BATCH, "beside --leave-one-out")
    if fetch and batch is None:
        raise click.UsageError("--fetch needs --batch, the name of what was opened")
    manifest = load_manifest(run)
    if manifest.rule == "votes":
        refuse_given(OF_DISTANCES | {"leave_one_out", "degree"}, "for the rule votes")
        refuse_given({"audit", "leak_bits"} if audit != 0 else {"leak_bits"}, _NO_KNOWN)
        audit = 0
    member = read_querier(identity, manifest)
    options = make_read_options(**reading)
    features, labels = read_queries(queries, manifest, options, parse_rows(rows))
    terms = BatchTerms(quorum=quorum, patience=patience, lifetime=lifetime, degree=degree)
    line = functools.partial(
        Channel, url, member, manifest, authority=authority, insecure=insecure, proxy=proxy
    )
    judged = labels_to_judge_by(labels, queries, manifest) if leave_one_out else None

    def mixing(desk: Desk) -> Any:
        return lambda name: _known(
            desk, name, len(features), manifest, audit, leak_bits, fetch=False
        )

    if manifest.summed:
        refuse_given({"keys", "audit_file", "passphrase_file"}, f"for the rule {manifest.rule}")
        desk = Desk(run)
        if judged is not None:

            def sums(name: str, mixed: "Audit | None", asked: Any) -> Any:
                parts = (Querier(member, manifest, None, line()), desk, features)
                return masked_querier.ask_masked(*parts, batch=name, known=mixed, terms=asked)

            ask_in_turn(output, manifest, terms, judged, sums, mixing(desk))
            return
        batch = batch or new_batch()
        known = _known(desk, batch, len(features), manifest, audit, leak_bits, fetch=fetch)
        ask_masked(
            output,
            (Querier(member, manifest, None, line()), desk, features, labels),
            batch,
            known,
            None if fetch else terms,
            distance=distance,
            unknown_from=unknown_from,
        )
        return
    refuse_given({"distance", "unknown_from", "degree"}, f"for the rule {manifest.rule}")
    if keys is None:
        raise click.UsageError(f"the rule is {manifest.rule}: name the folder of keys with --keys")
    public = fhe.load_public_key(keys)
    secret = fhe.load_secret_keys(keys, get_passphrase(passphrase_file))
    desk = Desk(keys)
    if judged is not None:

        def answered(name: str, mixed: "Audit | None", asked: Any) -> Any:
            parts = (Querier(member, manifest, public, line()), keys, secret, features)
            return ask(*parts, batch=name, known=mixed, terms=asked)

        ask_in_turn(output, manifest, terms, judged, answered, mixing(desk))
        return
    batch = batch or new_batch()
    spend: Any = None
    if audit_file is not None:
        # A batch that was opened before is checked when its answer is there.
        known = None if fetch else some_audit(audit or None, audit_file, batch)
        keep_audit(known, audit_file, batch)
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

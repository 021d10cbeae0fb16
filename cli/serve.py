"""`securefl serve`: the long-running parties of encrypted queries over a network."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.address import address_options
from cli.enrol import enrol, identity, quota_option, quotas_of
from cli.given import refuse_given
from cli.heads import VOTES_DELTA
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING_FILE, EXISTING_FOLDER, FILE
from cli.serve_worker import worker
from cli.workers import calling_of, hours_option

if TYPE_CHECKING:
    from secure_fl.service.serving import Address


_OF_VOTES = frozenset({"answers_epsilon", "answers_delta", "answers_ledger"})


@click.group()
def serve() -> None:
    """Answer encrypted queries over a network; docs/service.md shows the way."""


serve.add_command(identity)
serve.add_command(enrol)
serve.add_command(worker)


@serve.command()
@click.argument("federations", nargs=-1, required=True, type=EXISTING_FOLDER)
@click.option(
    "--identity", "key", required=True, type=EXISTING_FILE, help="Secret file of the evaluator."
)
@click.option("--state", required=True, type=ANY_PATH, help="Folder for batches at work.")
@address_options(8443)
@click.option(
    "--queue",
    default=64,
    show_default=True,
    help="Batches that may wait at once; each querier has an equal part.",
)
@click.option(
    "--max-queries",
    type=click.IntRange(1),
    help="Queries of one batch; default: 1000, of engine bgv as many as a ciphertext has slots.",
)
@click.option(
    "--room",
    default=64.0,
    show_default=True,
    type=click.FloatRange(0.01),
    help="Engine bgv: GiB of queries and contributions of all batches at work; each querier with"
    " keys of it has an equal part.",
)
@click.option("--rate", default=20.0, show_default=True, help="Requests a second of a member.")
@click.option("--burst", default=200, show_default=True, help="Requests of a member at once.")
@click.option(
    "--connections",
    default=100,
    show_default=True,
    type=click.IntRange(0),
    help="Of one address at once; 0 behind a proxy, for no cap.",
)
@click.option("--keep", default=86400.0, show_default=True, help="Seconds that answers are kept.")
@click.option(
    "--step",
    default=15.0,
    show_default=True,
    help="Rule masked: seconds for a contributor's message, from the second of a sum on.",
)
@click.option("--grace", default=30.0, show_default=True, help="Seconds to finish when stopped.")
@click.option(
    "--workers",
    multiple=True,
    metavar="NAME=URL",
    help="A machine with `serve worker` that answers batches; once for each.",
)
@click.option(
    "--members", type=EXISTING_FILE, help='--workers: keys of "evaluator" and all workers.'
)
@click.option(
    "--authority", type=EXISTING_FILE, help="--workers: PEM of who signed their certificates."
)
@hours_option
@output_options
def evaluator(
    output: Output,
    federations: tuple[Path, ...],
    key: Path,
    state: Path,
    address: "Address",
    queue: int,
    max_queries: int | None,
    room: float,
    rate: float,
    burst: int,
    connections: int,
    keep: float,
    step: float,
    grace: float,
    workers: tuple[str, ...],
    members: Path | None,
    authority: Path | None,
    batch_hours: float,
) -> None:
    """Serve FEDERATIONS: folders with federation.json, public.key and evaluation.key each.

    With several queriers each one's two files lie in a folder of its name. A federation whose rule
    is masked has no keys: its folder holds federation.json alone.
    """
    from attrs import evolve

    from secure_fl.service.doors import Doors
    from secure_fl.service.evaluator import Evaluator
    from secure_fl.service.evaluator_app import make_app
    from secure_fl.service.limits import Limits
    from secure_fl.service.members import read_member
    from secure_fl.service.registry import load_federations
    from secure_fl.service.serving import serve

    address = evolve(address, doors=Doors(per_address=connections))
    address.check()
    theirs = {"members", "authority", "batch_hours"}
    calling = calling_of(
        workers, members, key, authority, address.insecure, batch_hours, theirs=theirs
    )
    if calling is not None:
        # What cannot be used is said now, and not by the process that evaluates.
        calling.workers()
    with output.progress() as progress:
        progress("loading circuits and keys", 0, 1)
        found = {
            name: (federation, read_member(key, "evaluator", federation.manifest))
            for name, federation in load_federations(federations).items()
        }
        progress("loading circuits and keys", 1, 1)
    for federation, _ in found.values():
        for name in federation.queriers:
            if not federation.masked and name not in federation.keys:
                output.note(f"no keys of {name!r} in {federation.folder}: it cannot ask here")
    if not any(federation.batched_queriers for federation, _ in found.values()):
        refuse_given({"room"}, "without keys of engine bgv")
    limits = Limits(
        rate=rate,
        burst=burst,
        queue=queue,
        queries=max_queries,
        room=int(room * 2**30),
        keep=keep,
        step=step,
    )
    made = Evaluator(found, state, limits, calling)
    output.note(
        f"evaluator of {len(found)} federations on {address.host}:{address.port};"
        " stop it with Ctrl+C"
    )
    serve(make_app(made, grace=grace), address, stop=made.stop, ending=made.ending)


@serve.command()
@click.argument("run", type=EXISTING_FOLDER)
@click.option("--client", required=True, help="Whose head in RUN answers.")
@click.option(
    "--keys",
    type=EXISTING_FOLDER,
    help="Folder with the querier's public.key, or of several with NAME/public.key each; none for"
    " the rule masked.",
)
@click.option(
    "--exact-heads",
    is_flag=True,
    help="Rule masked: answer with a head that is no differentially private release.",
)
@click.option(
    "--answers-epsilon",
    type=float,
    help="Rule votes: what all answers may cost together, per record added or removed.",
)
@click.option("--answers-delta", type=float, default=VOTES_DELTA, show_default=True, help="Of it.")
@click.option(
    "--answers-ledger",
    type=FILE,
    help="Rule votes: book of the answers; default: answers.jsonl in STATE.",
)
@click.option(
    "--identity", "key", required=True, type=EXISTING_FILE, help="Secret file of the client."
)
@click.option("--evaluator", "url", required=True, help="https://HOST:PORT of the evaluator.")
@click.option("--authority", type=EXISTING_FILE, help="PEM file of who signed its certificate.")
@click.option("--insecure", is_flag=True, help="Call the evaluator by plain HTTP.")
@click.option("--proxy", help="http://HOST:PORT of a proxy; the environment's is not used.")
@click.option("--state", required=True, type=ANY_PATH, help="Folder of its memory.")
@click.option("--port", default=8444, show_default=True, help="Of /health and /metrics, loopback.")
@click.option(
    "--min-quorum",
    type=click.IntRange(1),
    help="Default: 2, or 1 of one client; rule masked: above two thirds.",
)
@click.option(
    "--min-degree",
    default=0,
    type=click.IntRange(0),
    help="Rule masked: contributors that it masks with at least; default: all others, no ring.",
)
@click.option(
    "--daily-queries",
    default=10_000,
    show_default=True,
    help="In any 24 hours, for all queriers together; each has an equal part.",
)
@quota_option
@click.option(
    "--near",
    default=1e-3,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Queries within this part of their norm are nearly the same; not two in a batch.",
)
@click.option(
    "--repeats",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Answers to nearly the same query in any 24 hours, for all queriers together.",
)
@output_options
def contributor(
    output: Output,
    run: Path,
    client: str,
    keys: Path | None,
    exact_heads: bool,
    answers_epsilon: float | None,
    answers_delta: float,
    answers_ledger: Path | None,
    key: Path,
    url: str,
    authority: Path | None,
    insecure: bool,
    proxy: str | None,
    state: Path,
    port: int,
    min_quorum: int | None,
    min_degree: int,
    daily_queries: int,
    quotas: tuple[str, ...],
    near: float,
    repeats: int,
) -> None:
    """Answer queries with encrypted codes from a client's head in RUN; opens no port to others."""
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.masked import MaskedPolicy
    from secure_fl.service.answers_book import FILE, AnswersBook
    from secure_fl.service.channel import Channel
    from secure_fl.service.contributor import ContributorPolicy, least_quorum
    from secure_fl.service.contributor_app import (
        ContributorService,
        load_contributor,
        make_contributor_app,
    )
    from secure_fl.service.serving import Address, serve

    manifest = load_manifest(run)
    if manifest.rule != "masked":
        refuse_given({"exact_heads", "min_degree"}, f"for the rule {manifest.rule}")
    answers = None
    if manifest.rule == "votes":
        book = answers_ledger or state / FILE
        answers = AnswersBook.open(book, client, answers_epsilon, answers_delta)
    else:
        refuse_given(_OF_VOTES, f"for the rule {manifest.rule}")
    least = least_quorum(manifest) if min_quorum is None else min_quorum
    terms = ContributorPolicy(
        quorum=least,
        daily_queries=daily_queries,
        quotas=quotas_of(quotas),
        near=near,
        repeats=repeats,
        degree=min_degree,
    )
    with output.progress() as progress:
        progress("loading the circuit and the head", 0, 1)
        policy = MaskedPolicy(exact_heads=exact_heads)
        made = load_contributor(run, client, keys, key, state, terms, policy, answers)
        progress("loading the circuit and the head", 1, 1)
    channel = Channel(
        url, made.member, made.manifest, authority=authority, insecure=insecure, proxy=proxy
    )
    service = ContributorService(made, channel)
    answered = made.manifest.queriers if made.manifest.summed else tuple(made.keys)
    for name in made.manifest.queriers:
        if name not in answered:
            output.note(f"no public.key of {name!r} in {keys}: its batches are declined")
    output.note(
        f"contributor {client!r} calls {url} and answers {', '.join(answered)}; stop it with Ctrl+C"
    )
    address = Address(host="127.0.0.1", port=port)
    serve(make_contributor_app(service), address, stop=service.stop, ending=service.ending)


@serve.command()
@click.option("--server", "url", required=True, help="https://HOST:PORT of the training server.")
@click.option(
    "--node-config",
    "config",
    required=True,
    metavar="SETTINGS",
    help="As `flower node`: NAME=VALUE NAME=VALUE, or a .toml file.",
)
@click.option(
    "--authority", type=EXISTING_FILE, help="PEM file of who signed the server's certificate."
)
@click.option("--insecure", is_flag=True, help="Call the server by plain HTTP.")
@click.option("--proxy", help="http://HOST:PORT of a proxy; the environment's is not used.")
@output_options
def client(
    output: Output,
    url: str,
    config: str,
    authority: Path | None,
    insecure: bool,
    proxy: str | None,
) -> None:
    """Train for a client: call a training server (`train --runtime service`); opens no port."""
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.service.trainee import serve_trainee

    answered = serve_trainee(
        url, config, authority=authority, insecure=insecure, proxy=proxy, note=output.note
    )
    output.result({"answered": answered}, f"stopped; {answered} messages answered")

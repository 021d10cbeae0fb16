"""The kahm method of `securefl train`: heads of all clients, or of one party's alone."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.output import Output, human_bytes

if TYPE_CHECKING:
    from cli.networks import RecordPromise
    from dp import Statement
    from secure_fl.data import Dataset, ReadOptions
    from secure_fl.heads.bounds import ClassBounds
    from secure_fl.heads.manifest import Manifest
    from secure_fl.heads.released import PrivacyPlan
    from secure_fl.heads.fitting import Progress

BOUND_DELTA = 0.05
"""The bounds that are printed hold with probability 1 minus this."""


def train_heads(
    output: Output,
    source: Path,
    out: Path,
    reading: "ReadOptions",
    federation: Path | None,
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    plan: "PrivacyPlan | None",
    books: Path,
    seed: int,
) -> None:
    """One pass: data in, heads and manifest out.

    `facts` are those of a manifest that is made here; with `federation` only its unit counts.
    """
    from secure_fl import training
    from secure_fl.files import refuse_existing
    from secure_fl.heads.released import train_private_heads
    from secure_fl.heads.run_folder import create_run

    refuse_existing(out)
    statements: list[tuple[str, Statement]] = []
    with output.progress() as progress:
        if federation is None:
            clients, manifest = _make_federation(source, reading, classes, facts, progress)
        else:
            clients, manifest = _join_federation(
                source, reading, federation, facts["unit"], progress
            )
        factor = manifest.scale
        scaled = [(each.name, each.X * each.X.dtype.type(factor), each.y) for each in clients]
        if plan is None:
            heads = training.train_heads(scaled, manifest, seed=seed, progress=progress)
        else:
            heads, statements = train_private_heads(scaled, manifest, plan, books, progress)
        sizes = create_run(out, heads, manifest, statements)
    machines = {head.client: head.bank.n_machines for head in heads}
    counts: Counter[str] = Counter()
    # The bounds are of the whole federation's records, which one party does not know.
    for client in clients if federation is None else ():
        counts.update(dict(zip(client.classes, client.counts().tolist(), strict=True)))
    _show(output, out, manifest, machines, sizes, counts, statements)


def train_released_heads(
    output: Output,
    source: Path,
    out: Path,
    reading: "ReadOptions",
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    record: "RecordPromise",
    books: Path,
    seed: int,
    *,
    fit_range: bool,
) -> None:
    """Masked sums of all clients' records under noise, one public head of them for every client.

    `fit_range`: the codes' range comes from the release.
    """
    from secure_fl.files import refuse_existing
    from secure_fl.heads.record_private import train_record_private_heads
    from secure_fl.heads.run_folder import create_run
    from secure_fl.privacy.promises import record_promise

    refuse_existing(out)
    with output.progress() as progress:
        clients, manifest = _make_federation(source, reading, classes, facts, progress)
        assert record.norm is not None
        more = record.more(manifest.classes, 1.0)
        promise = record_promise(record.epsilon, record.delta, record.norm, books, **more)
        heads, manifest, statement = train_record_private_heads(
            clients, manifest, promise, fit_range=fit_range, seed=seed
        )
        statements = [(head.client, statement) for head in heads]
        sizes = create_run(out, heads, manifest, statements)
    machines = {head.client: head.bank.n_machines for head in heads}
    # The bounds are for machines of records.
    _show(output, out, manifest, machines, sizes, {}, statements)


def _make_federation(
    source: Path,
    reading: "ReadOptions",
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    progress: "Progress",
) -> "tuple[tuple[Dataset, ...], Manifest]":
    from secure_fl.data import ClassList, read_clients
    from secure_fl.encoders.sentence import SentenceEncoder
    from secure_fl.heads.manifest import make_manifest

    clients = read_clients(
        source,
        reading,
        classes=ClassList(classes) if classes else None,
        progress=lambda i, n: progress("reading", i, n),
    )
    encoder = facts["encoder"]
    manifest = make_manifest(
        classes=clients[0].classes,
        clients=tuple(client.name for client in clients),
        n_features=clients[0].n_features,
        features=clients[0].features,
        encoder_fingerprint="" if encoder == "none" else SentenceEncoder(encoder).fingerprint,
        **facts,
    )
    return clients, manifest


def _join_federation(
    source: Path, reading: "ReadOptions", federation: Path, unit: str, progress: "Progress"
) -> "tuple[tuple[Dataset, ...], Manifest]":
    from secure_fl.errors import InputError
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.fitting import read_party

    manifest = load_manifest(federation)
    if manifest.unit != unit:
        told = "leave out --epsilon" if manifest.unit == "none" else f"give --unit {manifest.unit}"
        raise InputError(
            f"{federation}: its clients' heads protect {manifest.unit}, these options {unit};"
            f" {told}, or agree on another federation"
        )
    clients = read_party(
        source, manifest, federation, reading, lambda i, n: progress("reading", i, n)
    )
    return clients, manifest


def _show(
    output: Output,
    out: Path,
    manifest: "Manifest",
    machines: dict[str, int],
    sizes: dict[str, int],
    counts: dict[str, int],
    statements: "list[tuple[str, Statement]]",
) -> None:
    import attrs

    from secure_fl.heads.bounds import class_bounds

    bounds = class_bounds(counts, BOUND_DELTA)
    data = {
        "run": str(out),
        "federation": manifest.fingerprint,
        "clients": {
            name: {"machines": machines[name], "head_bytes": sizes[name]} for name in machines
        },
        "bounds_delta": BOUND_DELTA,
        "bounds": [
            {
                **{field: getattr(bound, field) for field in ("label", "records")},
                # A class without records has an infinite bound, which JSON cannot hold.
                **{
                    field: min(getattr(bound, field), 1e308)
                    for field in ("prediction", "hypothesis", "approximation")
                },
                "verdict": bound.verdict,
            }
            for bound in bounds
        ],
        "privacy": {name: statement.to_json() for name, statement in statements} or None,
        "manifest": attrs.asdict(manifest),
    }
    rows = [[name, machines[name], human_bytes(sizes[name])] for name in machines]
    output.table(data, f"{out}: {len(machines)} heads", ["client", "machines", "head"], rows)
    if output.as_json or output.quiet:
        return
    _show_bounds(bounds)
    if not statements:
        click.echo("Privacy: no guarantee; a head holds its client's records and must stay there.")
        return
    alike = all(statement == statements[0][1] for _, statement in statements)
    others = "the others' is the same" if alike else "the others' differ in sizes"
    click.echo(f"Privacy, statement of client {statements[0][0]} ({others}):")
    click.echo(statements[0][1].text())


def _show_bounds(bounds: "list[ClassBounds]") -> None:
    if not bounds:
        return
    total = sum(bound.records for bound in bounds)
    click.echo(
        f"Error bounds for N = {total:,} records, with probability {1 - BOUND_DELTA:g}"
        " (theorems 3, 6, 7; if labels follow from features and the rule is right on every record):"
    )
    for bound in bounds[:10]:
        click.echo(
            f"  class {bound.label}, N_c = {bound.records:,}: {bound.prediction:.3g},"
            f" {bound.hypothesis:.3g}, {bound.approximation:.3g} ({bound.verdict})"
        )
    if len(bounds) > 10:
        click.echo(f"  ... {len(bounds) - 10} more classes, --json shows them all")

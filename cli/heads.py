"""The kahm method of `securefl train`: heads of all clients, or of one party's alone."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import Output, human_bytes, show

if TYPE_CHECKING:
    from dp import Statement
    from secure_fl.data import Dataset, ReadOptions
    from secure_fl.heads.bounds import ClassBounds
    from secure_fl.heads.manifest import Manifest
    from secure_fl.heads.released import PrivacyPlan
    from secure_fl.privacy.ledgers import Shelf
    from secure_fl.progress import Progress

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
    ledgers: Path | None,
    seed: int,
) -> None:
    """One pass: data in, heads and manifest out.

    `facts` are those of a manifest that is made here; with `federation` only its unit counts.
    """
    from secure_fl.data import label_remarks
    from secure_fl.files import new_folder, reserve
    from secure_fl.heads.fitting import train_heads as fit_heads
    from secure_fl.heads.head import head_inputs
    from secure_fl.heads.released import train_private_heads
    from secure_fl.heads.run_folder import fill_run, run_room
    from secure_fl.privacy.ledgers import Shelf

    statements: list[tuple[str, Statement]] = []
    with output.progress() as progress, new_folder(out) as aside:
        if federation is None:
            clients, manifest = _make_federation(source, reading, classes, facts, progress)
        else:
            clients, manifest = _join_federation(
                source, reading, federation, facts["unit"], progress
            )
        scaled = [(each.name, head_inputs(each, manifest.scale), each.y) for each in clients]
        # Before anything is booked: what was spent must not be lost for want of room.
        free = reserve(aside, run_room([(len(each), each.n_features) for each in clients]))
        if plan is None:
            heads = fit_heads(scaled, manifest, seed=seed, progress=progress)
        else:
            shelf = Shelf.beside(source, clients, ledgers)
            heads, statements = train_private_heads(scaled, manifest, plan, shelf, progress)
            _tell_books(output, shelf)
        free()
        sizes = fill_run(aside, heads, manifest, statements)
    machines = {head.client: head.bank.n_machines for head in heads}
    counts: Counter[str] = Counter()
    # The bounds are of the whole federation's records, which one party does not know.
    for client in clients if federation is None else ():
        counts.update(dict(zip(client.classes, client.counts().tolist(), strict=True)))
    _show(output, out, manifest, machines, sizes, counts, statements, label_remarks(clients))


def _tell_books(output: Output, shelf: "Shelf") -> None:
    for note in shelf.notes():
        output.note(note)


def train_released_heads(
    output: Output,
    source: Path,
    out: Path,
    reading: "ReadOptions",
    classes: tuple[str, ...] | None,
    facts: dict[str, Any],
    record: tuple[float, float, float],
    ledger: Path | None,
    seed: int,
    *,
    fit_range: bool,
) -> None:
    """Masked sums of all clients' records under noise, one public head of them for every client.

    `record` is epsilon, delta and norm; `fit_range`: the codes' range comes from the release;
    `ledger`: books of the federation, in place of the clients' own.
    """
    from secure_fl.data import label_remarks
    from secure_fl.files import new_folder, reserve
    from secure_fl.heads.record_private import RELEASED, train_record_private_heads
    from secure_fl.heads.run_folder import fill_run, run_room
    from secure_fl.privacy.ledgers import Shelf
    from secure_fl.privacy.promises import record_promise

    with output.progress() as progress, new_folder(out) as aside:
        clients, manifest = _make_federation(source, reading, classes, facts, progress)
        shelf = Shelf.beside(source, clients)
        privacy = record_promise(*record, ledger or shelf)
        released = RELEASED * len(manifest.classes)
        free = reserve(aside, run_room([(released, manifest.n_features)] * len(clients)))
        heads, manifest, statements = train_record_private_heads(
            clients, manifest, privacy, fit_range=fit_range, seed=seed
        )
        if ledger is None:
            _tell_books(output, shelf)
        free()
        sizes = fill_run(aside, heads, manifest, statements)
    machines = {head.client: head.bank.n_machines for head in heads}
    # The bounds are for machines of records.
    _show(output, out, manifest, machines, sizes, {}, statements, label_remarks(clients))


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
    from secure_fl.heads.fitting import read_party
    from secure_fl.heads.manifest import load_manifest

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
    remarks: tuple[str, ...],
) -> None:
    import attrs

    from secure_fl.heads.bounds import class_bounds

    for remark in remarks:
        output.note(remark)
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
        "remarks": list(remarks),
    }
    rows = [[name, machines[name], human_bytes(sizes[name])] for name in machines]
    output.table(data, f"{out}: {len(machines)} heads", ["client", "machines", "head"], rows)
    if output.as_json or output.quiet:
        return
    _show_bounds(bounds)
    if not statements:
        show("Privacy: no guarantee; a head holds its client's records and must stay there.")
        return
    alike = all(statement == statements[0][1] for _, statement in statements)
    others = "the others' is the same" if alike else "the others' differ in sizes"
    show(f"Privacy, statement of client {statements[0][0]} ({others}):")
    show(statements[0][1].text())


def _show_bounds(bounds: "list[ClassBounds]") -> None:
    """Those that say more than the classes' shares do; most runs have none."""
    telling = [bound for bound in bounds if bound.informative]
    if not telling:
        return
    total = sum(bound.records for bound in bounds)
    show(
        f"Error bounds for N = {total:,} records, with probability {1 - BOUND_DELTA:g}"
        " (theorems 3, 6, 7; if labels follow from features and the rule is right on every record,"
        " which this run has not measured):"
    )
    for bound in telling[:10]:
        show(
            f"  class {bound.label}, N_c = {bound.records:,}: squared error at most"
            f" {bound.smallest:.3g}, always answering its share has {bound.trivial:.3g}"
        )
    if len(telling) > 10:
        show(f"  ... {len(telling) - 10} more classes, --json shows them all")

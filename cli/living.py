"""Heads that live: `securefl update`, `forget`, `explain` and `receipt`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.output import Output, output_options
from cli.paths import EXISTING, EXISTING_FILE, EXISTING_FOLDER, FILE

if TYPE_CHECKING:
    from secure_fl.heads.explaining import Explanation
    from secure_fl.heads.forgetting import Erasure

_run = click.argument("run", type=EXISTING_FOLDER)
_client = click.option("--client", required=True, help="Whose head.")
_ledgers = click.option(
    "--ledgers",
    type=EXISTING_FOLDER,
    help="Folder of the clients' books; default: where training booked.",
)


@click.command()
@_run
@_client
@click.option(
    "--add", "new", required=True, type=EXISTING_FILE, help="Client file of the new records."
)
@click.option("--seed", default=0, show_default=True, help="Of batches that are clusters.")
@click.option("--again", is_flag=True, help="Take records that the head has already.")
@_ledgers
@read_options
@output_options
def update(
    output: Output,
    run: Path,
    client: str,
    new: Path,
    seed: int,
    again: bool,
    ledgers: Path | None,
    **reading: Any,
) -> None:
    """Add records to a client's head in the folder RUN; nobody else has to do anything.

    The new records make batches of their own; the others are not looked at. A head that is a
    private release gets a release of the new records, under the same promise, as one event of the
    client's ledger.
    """
    from dataclasses import replace

    from secure_fl.data import ClassList, assemble, read_records
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.updating import update as updated

    manifest = load_manifest(run)
    options = make_read_options(**reading)
    if options.n_features is None:
        options = replace(options, n_features=manifest.n_features)
    (data,) = assemble(
        [replace(read_records(new, options), name=client)],
        classes=ClassList(manifest.classes),
        n_features=manifest.n_features,
        features=manifest.features,
        manifest=str(run / "federation.json"),
    )
    done = updated(run, client, data, seed=seed, again=again, ledgers=ledgers)
    if done.repeated:
        output.note(f"{done.repeated} of the records were in the head already")
    data_out = {
        "client": client,
        "added": done.added,
        "repeated": done.repeated,
        "records": done.records,
        "machines": done.machines,
        "new_machines": done.new_machines,
        "ledger": None if done.ledger is None else str(done.ledger),
        "privacy": None if done.statement is None else done.statement.to_json(),
    }
    text = (
        f'client "{client}": {done.added:,} records added in {done.new_machines:,} new machines;'
        f" {done.records:,} records in {done.machines:,} machines now"
    )
    if done.statement is not None:
        text = f"{text}\n{done.statement.text()}"
    output.result(data_out, text)


@click.command()
@_run
@_client
@click.option(
    "--records",
    required=True,
    type=EXISTING_FILE,
    help="Numbers of the records as they came, from 0; or a client file with the records.",
)
@click.option(
    "--identity",
    required=True,
    type=EXISTING_FILE,
    help="The client's secret file, which signs the receipt (securefl identity new).",
)
@click.option(
    "--search",
    "places",
    multiple=True,
    type=EXISTING,
    help="Look for copies here too: a file or folder, such as a cache; more than once.",
)
@click.option(
    "--receipt",
    "copy",
    type=FILE,
    help="A copy of the receipt, which lies beside the head.",
)
@_ledgers
@read_options
@output_options
def forget(
    output: Output,
    run: Path,
    client: str,
    records: Path,
    identity: Path,
    places: tuple[Path, ...],
    copy: Path | None,
    ledgers: Path | None,
    **reading: Any,
) -> None:
    """Take records out of a client's head in the folder RUN, and write a signed receipt.

    Only machines that hold them are made anew. A head that kahm-record-private released holds no
    records; its receipt says what was promised. The files that the records came from, and what
    --search names, are searched for copies: features in caches are taken out, other copies are told
    and left to their owner. The receipt says what cannot be recalled.
    """
    import attrs

    from fhe.envelope import write_atomic
    from secure_fl.crypto.identities import read_identity
    from secure_fl.data import read_records
    from secure_fl.data.naming import format_suffix
    from secure_fl.errors import InputError
    from secure_fl.files import prove_writable, refuse_existing_file
    from secure_fl.heads.forgetting import forget as forgotten
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.receipts import listed_key, numbers_in, signed_receipt

    manifest = load_manifest(run)
    own = read_identity(identity)
    if copy is not None:
        refuse_existing_file(copy)
        prove_writable(copy, 1 << 20)
    if manifest.members and listed_key(manifest, client) != own.public:
        raise InputError(f"{identity}: not the key that federation.json lists for {client!r}")
    options = make_read_options(**reading)
    which: dict[str, Any] = {}
    if format_suffix(records):
        which["X"] = read_records(records, options, unlabelled=True).X
        if which["X"] is None or which["X"].shape[1] != manifest.n_features:
            raise InputError(f"{records}: expected records of {manifest.n_features} features")
    else:
        which["rows"] = numbers_in(records)
    erasure, receipt = forgotten(
        run,
        client,
        places=places,
        options=options,
        receipt=lambda done: signed_receipt(done, own),
        ledgers=ledgers,
        **which,
    )
    if copy is not None and receipt is not None:
        write_atomic(copy, receipt.read_bytes())
    output.result({**attrs.asdict(erasure), "receipt": str(receipt)}, _told(erasure, receipt))


def _told(erasure: "Erasure", receipt: Path | None) -> str:
    changed = (
        f"{erasure.records:,} records forgotten, {erasure.left:,} left;"
        f" {erasure.rebuilt:,} machines made anew, {erasure.dropped:,} gone"
    )
    if not erasure.artifacts:
        changed = (
            f"{erasure.records:,} records named; the head holds none of them, and what its noisy"
            " sums had of them cannot be taken out"
        )
    lines = [
        f'client "{erasure.client}": {changed}',
        *(f"removed from {each.name}" for each in erasure.artifacts),
    ]
    for each in erasure.elsewhere:
        done = f"{each.path}: features of {each.records} taken out of the cache"
        lines.append(done if each.removed else each.remark)
    lines += [f"Cannot be recalled: {each}" for each in erasure.not_recalled]
    if receipt is not None:
        lines.append(f"Receipt: {receipt}")
    return "\n".join(lines)


@click.group()
def receipt() -> None:
    """Check receipts of erasures."""


@receipt.command()
@click.argument("path", metavar="RECEIPT", type=EXISTING_FILE)
@click.option(
    "--federation",
    "run",
    type=EXISTING,
    help="Run folder or federation.json that lists the client's key.",
)
@click.option("--client", help="--federation: who signed.")
@click.option("--key", help="Public key of the client, 64 or 128 hexadecimal digits.")
@output_options
def verify(
    output: Output, path: Path, run: Path | None, client: str | None, key: str | None
) -> None:
    """Check that RECEIPT was signed by a client, and say what it states."""
    import attrs

    from secure_fl.errors import InputError
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.receipts import listed_key, read_receipt

    if (run is None) == (key is None) or (run is None) != (client is None):
        raise click.UsageError("give --federation and --client, or --key")
    federation = None
    if run is not None and client is not None:
        manifest = load_manifest(run)
        public, federation = listed_key(manifest, client), manifest.fingerprint
    else:
        try:
            public = bytes.fromhex(key or "")[:32]
        except ValueError:
            public = b""
        if len(public) != 32:
            raise InputError("--key: expected 64 or 128 hexadecimal digits")
    erasure = read_receipt(path, public, federation)
    if client is not None and erasure.client != client:
        raise InputError(f"{path}: of client {erasure.client!r}, expected {client!r}")
    output.result(attrs.asdict(erasure), f"{_told(erasure, None)}\nThe signature is right.")


@click.command()
@_run
@_client
@click.argument("queries", type=EXISTING_FILE)
@click.option("--row", default=0, show_default=True, help="Which query of the file, from 0.")
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="Records told.")
@read_options
@output_options
def explain(
    output: Output, run: Path, client: str, queries: Path, row: int, top: int, **reading: Any
) -> None:
    """Say why a client's head in the folder RUN gives a query of the file QUERIES its class.

    For the client's owner alone: it prints private records.
    """
    from secure_fl.data import read_records
    from secure_fl.errors import InputError
    from secure_fl.heads.explaining import explain as explained
    from secure_fl.heads.explaining import one_query
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.heads.run_folder import query_features

    manifest = load_manifest(run)
    X = read_records(queries, make_read_options(**reading), unlabelled=True).X
    if X is None:
        raise InputError(f"{queries}: holds texts; encode them first (securefl data embed)")
    query = one_query(query_features(X, manifest, source=str(queries)), row, str(queries))
    found = explained(run, client, query)
    if not found.released:
        output.note(f'what follows shows private records of client "{client}"; it is its owner\'s')
    output.result(
        _explanation_json(found, manifest.classes, top), _explanation(found, manifest.classes, top)
    )


def _explanation_json(found: "Explanation", classes: tuple[str, ...], top: int) -> dict[str, Any]:
    return {
        "class": found.label,
        "measures": dict(zip(classes, found.measures.astype(float).tolist(), strict=True)),
        "machine": found.machine,
        "machine_records": found.size,
        "distance": found.distance,
        "angle_degrees": found.angle,
        "measure": found.measure,
        "released": found.released,
        "records": [
            {
                "row": each.row,
                "source": each.source,
                "weight": each.weight,
                "features": each.features.astype(float).tolist(),
            }
            for each in found.records[:top]
        ],
    }


SHOWN = 8
"""Features of a record that a line has room for; --json has them all."""


def _explanation(found: "Explanation", classes: tuple[str, ...], top: int) -> str:
    order = sorted(range(len(classes)), key=lambda c: found.measures[c])
    lines = [
        f"class {found.label}: machine {found.machine} of {found.size} records folds the query by"
        f" {found.measure:.4f} (distance {found.distance:.4g}, angle {found.angle:.3g} degrees)",
        "smallest measures: "
        + ", ".join(f"{classes[c]} {found.measures[c]:.4f}" for c in order[:5]),
        "released records (their noise is public) and weights in the query's image:"
        if found.released
        else "private records and their weights in the query's image:",
    ]
    for each in found.records[:top]:
        name = "record" if each.row is None else f"record {each.row}"
        more = ", ..." if len(each.features) > SHOWN else ""
        values = ", ".join(f"{value:.4g}" for value in each.features[:SHOWN].tolist())
        where = f" of {each.source}" if each.source else ""
        lines.append(f"  {each.weight:+.4f}  {name}{where}: {values}{more}")
    if len(found.records) > top:
        lines.append(f"  and {len(found.records) - top} more with smaller weights (--top)")
    return "\n".join(lines)


@click.command()
@_run
@click.option(
    "--records",
    "source",
    type=EXISTING,
    help="Client file, or folder of them, that the heads were trained on.",
)
@click.option("--seed", default=0, show_default=True, help="That they were trained with.")
@read_options
@output_options
def migrate(output: Output, run: Path, source: Path | None, seed: int, **reading: Any) -> None:
    """Bring the heads in the folder RUN to this version, or say what cannot be.

    Heads of earlier versions are read as they are. For update and forget they need an index of
    their records, which is made of the files that they were trained on.
    """
    from secure_fl.heads.fitting import read_party
    from secure_fl.heads.manifest import FILE_NAME, load_manifest
    from secure_fl.heads.migrating import migrate as migrated

    records = {}
    if source is None:
        refuse_given({"seed", *reading}, "without --records")
    else:
        manifest = load_manifest(run)
        data = read_party(source, manifest, run / FILE_NAME, make_read_options(**reading))
        records = {each.name: each for each in data}
    found = migrated(run, records, seed=seed)
    output.result(
        {"run": str(run), "clients": {each.client: each.state for each in found}},
        "\n".join(f'client "{each.client}": {each.said}' for each in found),
    )

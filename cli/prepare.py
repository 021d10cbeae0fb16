"""`securefl data schema`, `data prepare`: tables of many spellings brought to one form."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE

if TYPE_CHECKING:
    from secure_fl.data.schemas import Prepared, Schema

_ENCODINGS = ("auto", "utf-8", "utf-16", "cp1252", "latin-1")


def _spelling(function: Any) -> Any:
    """How a table is written."""
    for option in (
        click.option(
            "--decimal",
            type=click.Choice(["auto", "point", "comma"]),
            default="auto",
            show_default=True,
            help="Mark of numbers; auto: what the file's own numbers prove.",
        ),
        click.option(
            "--encoding",
            type=click.Choice(_ENCODINGS),
            default="auto",
            show_default=True,
            help="auto: UTF-8, or what a byte-order mark says.",
        ),
    ):
        function = option(function)
    return function


@click.command()
@click.option(
    "--from",
    "public",
    required=True,
    type=EXISTING_FILE,
    help="A csv file of PUBLIC records: what it holds is told to everybody.",
)
@click.option("--out", required=True, type=ANY_PATH, help="A new file.")
@click.option("--label-column", default="label", show_default=True, help="The class.")
@click.option("--ignore-column", multiple=True, help="A column to leave out.")
@click.option("--category", "categories", multiple=True, help="A column of codes, not numbers.")
@click.option("--date", "dates", multiple=True, help="COLUMN=FORMAT, such as born=%d/%m/%Y.")
@_spelling
@output_options
def schema(
    output: Output,
    public: Path,
    out: Path,
    label_column: str,
    ignore_column: tuple[str, ...],
    categories: tuple[str, ...],
    dates: tuple[str, ...],
    encoding: str,
    decimal: Literal["auto", "point", "comma"],
) -> None:
    """Draft the schema that all parties share, from a PUBLIC table.

    Read and correct it before it is shared: ranges, units, what a missing value becomes, what is
    done with values outside. Never draft from private files: everybody reads the schema.
    """
    from secure_fl.data.schemas import draft_schema, save_schema

    pairs = [each.partition("=") for each in dates]
    if not all(column and form for column, _, form in pairs):
        raise click.UsageError("--date needs COLUMN=FORMAT, such as born=%d/%m/%Y")
    draft = draft_schema(
        public,
        label=label_column,
        ignore=ignore_column,
        categories=categories,
        dates={column: form for column, _, form in pairs},
        encoding=encoding,
        decimal=decimal,
    )
    save_schema(out, draft.schema)
    _show_schema(output, draft.schema, out, draft.remarks)


def _show_schema(output: Output, made: "Schema", out: Path, remarks: Sequence[str]) -> None:
    from secure_fl.data.schemas import Category

    rows = []
    for column in made.columns:
        if isinstance(column, Category):
            kind, values = "category", ", ".join(column.categories)
        else:
            kind = "date" if hasattr(column, "formats") else "number"
            values = f"{column.range[0]} to {column.range[1]}"
        rows.append([column.name, kind, values, str(column.missing), column.outside])
    data = {
        "schema": str(out),
        "digest": made.digest,
        "classes": list(made.label.classes),
        "features": list(made.features),
        "ignored": list(made.ignore),
        "remarks": list(remarks),
    }
    title = f"{out}: {len(made.features)} features, classes {', '.join(made.label.classes)}"
    output.table(data, title, ["column", "type", "values", "missing", "outside"], rows)
    for remark in remarks:
        output.note(remark)
    output.note(f"schema {made.digest[:12]}; read and correct it, then give it to all parties")


@click.command()
@click.argument("source", type=EXISTING)
@click.option(
    "--schema",
    "shared",
    required=True,
    type=EXISTING_FILE,
    help="The schema that all parties share.",
)
@click.option("--out", required=True, type=ANY_PATH, help="A new folder.")
@click.option("--unlabelled", is_flag=True, help="Queries without a class, as NAME.npy.")
@_spelling
@output_options
def prepare(
    output: Output,
    source: Path,
    shared: Path,
    out: Path,
    unlabelled: bool,
    encoding: str,
    decimal: Literal["auto", "point", "comma"],
) -> None:
    """Bring csv files in SOURCE to the schema's form, as one npz file a client in the folder OUT.

    What was missing, lay outside or was left out is counted and shown to whoever runs this, and
    stands in no file.
    """
    from secure_fl.data import write_clients
    from secure_fl.data.npz import write_queries
    from secure_fl.data.schemas import load_schema, prepare_clients
    from secure_fl.files import refuse_existing

    refuse_existing(out)
    made = load_schema(shared)
    with output.progress() as progress:
        found = prepare_clients(
            source,
            made,
            encoding=encoding,
            decimal=decimal,
            labelled=not unlabelled,
            origin=str(shared),
            progress=lambda done, total: progress("preparing", done, total),
        )
    write = write_queries if unlabelled else write_clients
    write(out, [each.data for each in found])
    _show_prepared(output, found, made, out)


def _show_prepared(
    output: Output, found: "tuple[Prepared, ...]", made: "Schema", out: Path
) -> None:
    clients = {}
    rows = []
    for each in found:
        counts = each.counts
        missing = {name: n for name, n in counts.missing.items() if n}
        outside = {name: n for name, n in counts.outside.items() if n}
        clients[each.data.name] = {
            "records": counts.records,
            "missing": missing,
            "outside": outside,
            "unlabelled": counts.unlabelled,
            "blank_rows": counts.blank,
            "dropped_columns": list(counts.dropped),
            "decimal": counts.decimal,
        }
        rows.append(
            [
                each.data.name,
                counts.records,
                _listed(missing),
                _listed(outside),
                counts.unlabelled,
                ", ".join(counts.dropped) or "none",
                counts.decimal,
            ]
        )
    data = {
        "out": str(out),
        "schema": made.digest,
        "features": list(made.features),
        "clients": clients,
    }
    columns = ["client", "records", "missing", "outside", "dropped", "columns dropped", "decimal"]
    title = f"{out}: {len(found)} clients, {len(made.features)} features, schema {made.digest[:12]}"
    output.table(data, title, columns, rows)
    for each in found:
        if each.counts.blank:
            output.note(f"{each.data.source}: {each.counts.blank} empty rows left out")
    if made.scaling == "range" and all(c.outside != "keep" for c in made.columns):
        output.note("all features lie in [0, 1], by the schema's public ranges")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"

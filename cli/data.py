"""`securefl data`: from files to one file a client."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.calibrate import calibrate
from cli.given import refuse_given
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE
from cli.prepare import prepare, schema

if TYPE_CHECKING:
    from secure_fl.data import Dataset, ReadOptions
    from secure_fl.encoders.image import ImageEncoder
    from secure_fl.encoders.sentence import LongTexts

_SHOWN = 100
"""Classes of a client that a table lists before it counts the rest."""

_source = click.argument("source", type=EXISTING)
_out = click.argument("out", type=ANY_PATH)


def read_options(function: Any) -> Any:
    """Options that say which column of a csv file is what, and the features of a LIBSVM file."""
    for option in (
        click.option("--label-column", default="label", show_default=True, help="csv: the label."),
        click.option("--ignore-column", multiple=True, help="csv: a column to leave out."),
        click.option(
            "--features",
            type=click.IntRange(1),
            help="LIBSVM: number of features; default: the federation's, if there is one.",
        ),
    ):
        function = option(function)
    return function


def make_read_options(
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
    *,
    text: str | None = None,
    group: str | None = None,
    public_width: bool = False,
    targets: tuple[str, ...] = (),
) -> "ReadOptions":
    """The readers' options from the command's."""
    from secure_fl.data import Columns, ReadOptions

    columns = Columns(label_column, text=text, group=group, ignore=ignore_column, targets=targets)
    return ReadOptions(columns=columns, n_features=features, public_width=public_width)


@click.group()
def data() -> None:
    """Prepare client files: schema, prepare, partition, embed, describe."""


data.add_command(calibrate)
data.add_command(schema)
data.add_command(prepare)


@data.command()
@_out
@click.option("--seed", default=0, show_default=True, help="Of the split into train and test.")
@output_options
def digits(output: Output, out: Path, seed: int) -> None:
    """Write scikit-learn's handwritten digits to OUT/train.npz and OUT/test.npz, for trying out."""
    import numpy as np

    from secure_fl.data import write_clients
    from secure_fl.data.samples import digits_split
    from secure_fl.files import refuse_existing

    refuse_existing(out)
    train, test = digits_split(np.random.default_rng(seed))
    write_clients(out, (train, test))
    output.result(
        {"train": len(train), "test": len(test), "features": train.n_features, "out": str(out)},
        f"{out}: {len(train):,} training and {len(test):,} test digits, 64 features in [0, 1]",
    )


_HOW = ("iid", "dirichlet", "pathological", "shards", "group")

_OF_A_PARTITION = {
    "alpha": "dirichlet",
    "labels_per_client": "pathological",
    "shards_per_client": "shards",
    "group_column": "group",
}


@data.command()
@_source
@_out
@click.option("--clients", type=click.IntRange(1), help="Number of clients.")
@click.option("--how", type=click.Choice(_HOW), default="dirichlet", show_default=True)
@click.option("--alpha", default=0.5, show_default=True, help="dirichlet: small is more skewed.")
@click.option("--labels-per-client", default=2, show_default=True, help="pathological.")
@click.option("--shards-per-client", default=2, show_default=True, help="shards.")
@click.option("--group-column", help="group: the csv column; npz files hold an array groups.")
@click.option("--rho", type=float, help="First thin the classes to this long-tailed ratio.")
@click.option("--seed", default=0, show_default=True, help="Of all draws.")
@read_options
@output_options
def partition(
    output: Output,
    source: Path,
    out: Path,
    clients: int | None,
    how: str,
    alpha: float,
    labels_per_client: int,
    shards_per_client: int,
    group_column: str | None,
    rho: float | None,
    seed: int,
    **reading: Any,
) -> None:
    """Divide the records of one SOURCE file over clients, as files in the folder OUT."""
    from secure_fl.data import assemble, read_records, write_clients
    from secure_fl.data.splitting import Division, divide
    from secure_fl.files import refuse_existing

    for option, owner in _OF_A_PARTITION.items():
        if how != owner:
            refuse_given({option}, f"for --how {how}; it belongs to {owner}")
    refuse_existing(out)
    options = make_read_options(**reading, group=group_column)
    (whole,) = assemble([read_records(source, options)])
    division = Division(how, clients, alpha, labels_per_client, shards_per_client, rho)
    parts = divide(whole, division, seed)
    write_clients(out, parts)
    _show(output, parts, f"{out}: {len(parts)} clients, {how}")


@data.command()
@_source
@read_options
@output_options
def describe(output: Output, source: Path, **reading: Any) -> None:
    """Show how many records of each class every client in the folder SOURCE holds."""
    from secure_fl.data import read_clients

    with output.progress() as progress:
        clients = read_clients(
            source, make_read_options(**reading), progress=lambda i, n: progress("reading", i, n)
        )
    _show(output, clients, f"{source}: {len(clients)} clients, {clients[0].n_features} features")


def _show(
    output: Output, clients: "tuple[Dataset, ...]", title: str, remarks: Sequence[str] = ()
) -> None:
    from secure_fl.data import label_remarks

    remarks = [*remarks, *label_remarks(clients)]
    classes = clients[0].classes
    counts = {each.name: each.counts().tolist() for each in clients}
    data = {
        "features": clients[0].n_features,
        "classes": list(classes),
        "clients": {name: {"records": sum(row), "by_class": row} for name, row in counts.items()},
        "remarks": remarks,
    }
    rows = [[name, sum(row), *row] for name, row in counts.items()]
    total = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    rows.append(["all", *total])
    columns = ["client", "records", *classes]
    if not output.fits(columns, rows):
        columns = ["client", "records", "classes"]
        rows = [[name, records, _by_class(row, classes)] for name, records, *row in rows]
    output.table(data, title, columns, rows)
    for remark in remarks:
        output.note(remark)


def _by_class(row: Sequence[int], classes: Sequence[str]) -> str:
    """Counts of the classes that are there, in one cell, for more classes than columns fit."""
    held = [f"{name}: {count:,}" for name, count in zip(classes, row, strict=True) if count]
    more = len(held) - _SHOWN
    shown = ", ".join(held[:_SHOWN])
    return shown if more <= 0 else f"{shown} and {more} more (--json shows them all)"


@data.command()
@_source
@_out
@click.option(
    "--encoder",
    required=True,
    help="A model folder, or package:NAME; for photos also pixels:N, which needs no model.",
)
@click.option("--text-column", default="text", show_default=True, help="csv: the text.")
@click.option("--cache", type=ANY_PATH, help="Folder that keeps features.")
@click.option(
    "--long-texts",
    type=click.Choice(["cut", "refuse"]),
    default="cut",
    show_default=True,
    help="Texts beyond the model's window: use their beginnings and say how many, or refuse them.",
)
@click.option(
    "--labels",
    type=EXISTING_FILE,
    help="photos: a csv with the columns file, label and perhaps client; else a folder a class.",
)
@click.option(
    "--damaged",
    type=click.Choice(["refuse", "drop"]),
    default="refuse",
    show_default=True,
    help="photos: what is done with images that cannot be read.",
)
@read_options
@output_options
def embed(
    output: Output,
    source: Path,
    out: Path,
    encoder: str,
    text_column: str,
    cache: Path | None,
    long_texts: "LongTexts",
    labels: Path | None,
    damaged: str,
    **reading: Any,
) -> None:
    """Turn texts or photos in SOURCE into features, as npz files in the folder OUT.

    SOURCE is one client's file with texts, a folder of them, or a folder of photos: with --labels,
    or with a folder a class. Photos are of one client, called as their folder, unless the csv has a
    column client.
    """
    from secure_fl.data.npz import fill_clients
    from secure_fl.encoders.embedding import embed_clients, embed_photos
    from secure_fl.encoders.image import image_encoder
    from secure_fl.encoders.photo_folder import is_photo_folder
    from secure_fl.encoders.sentence import SentenceEncoder
    from secure_fl.files import new_folder

    photos = labels is not None or is_photo_folder(source)
    if photos:
        refuse_given({"text_column", "long_texts", "features", "ignore_column"}, "for photos")
    else:
        refuse_given({"damaged"}, "for texts")
    remarks: list[str] = []
    model: ImageEncoder | SentenceEncoder
    # The place is tried before the minutes that encoding takes.
    with output.progress() as progress, new_folder(out) as aside:
        if photos:
            model = image_encoder(encoder)
            clients = embed_photos(
                source,
                model,
                labels=labels,
                label_column=reading["label_column"],
                cache=cache,
                drop_damaged=damaged == "drop",
                remark=remarks.append,
                progress=progress,
            )
        else:
            model = SentenceEncoder(encoder)
            clients = embed_clients(
                source,
                model,
                make_read_options(**reading, text=text_column),
                cache=cache,
                long_texts=long_texts,
                remark=remarks.append,
                progress=progress,
            )
        fill_clients(aside, clients, out)
    title = f"{out}: {len(clients)} clients, {clients[0].n_features} features"
    _show(output, clients, title, remarks)
    output.note(f"encoder {encoder}, fingerprint {model.fingerprint}")

"""Iterative trainers of `securefl train --method`, and `securefl predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.output import Output, human_bytes, output_options, show_classes, with_options
from cli.paths import EXISTING, EXISTING_FILE, FILE
from secure_fl.trainers.settings import Settings

if TYPE_CHECKING:
    from secure_fl.data import ReadOptions
    from secure_fl.training.fitted import FittedModel
    from secure_fl.training.learned import Learned
    from secure_fl.training.linear_model import RegressionModel

_OPTIONS = (
    click.option(
        "--aggregate",
        type=click.Choice(["plain", "secure"]),
        default="plain",
        help="method: secure masks every update, so that the server learns sums alone.",
    ),
    click.option(
        "--test",
        type=EXISTING_FILE,
        help="Say how well this labelled file is classified; methods by rounds after every round.",
    ),
    click.option(
        "--checkpoint",
        type=FILE,
        help="method: kept after every round; where it exists, the run goes on from it.",
    ),
    click.option("--client-epsilon", type=float, help="method: noise that hides a whole client."),
    click.option("--client-delta", default=1e-5, show_default=True, help="Of --client-epsilon."),
    click.option(
        "--clip",
        type=float,
        help="--client-epsilon: L2 norm of an update; needed. Networks with --unit record: of one"
        " record's gradient; default 1.",
    ),
    click.option(
        "--client-noise",
        type=click.Choice(["gaussian", "skellam"]),
        default="gaussian",
        show_default=True,
        help="--client-epsilon: discrete Gaussian parts, or Skellam ones, which add up exactly.",
    ),
    click.option(
        "--adjacency",
        type=click.Choice(["replace", "add-remove"]),
        default="replace",
        show_default=True,
        help="Of sums that hide every record: one record replaced, or added or removed.",
    ),
    click.option(
        "--class-texts",
        type=EXISTING_FILE,
        help="kahm-record-private, private-gradient: JSON of public texts that describe the"
        " classes; whoever writes them must not look at records.",
    ),
    click.option(
        "--ledger",
        type=FILE,
        help="Noise of sums: books of the whole federation; default: each client's own.",
    ),
)


CLIENT_PRIVACY = frozenset({"client_delta", "client_noise"})
"""Parameters that say more of --client-epsilon."""
TRAINERS_ONLY = CLIENT_PRIVACY | {
    *("aggregate", "checkpoint", "client_epsilon", "clip", "ledger"),
}
"""Parameters of the options above that heads do not have."""


def trainer_options(function: Any) -> Any:
    """Options of every method by rounds or sums, beside its own."""
    return with_options(function, _OPTIONS)


def read_test_set(path: Path, reading: "ReadOptions", like: Any) -> Any:
    """Labelled records of the clients' kind (a `Dataset` or `TargetSet`), from any file."""
    from secure_fl.data import ClassList, TargetSet, assemble, assemble_targets, read_records
    from secure_fl.data.dataset import schema_shown
    from secure_fl.errors import FeatureError

    # What the clients ignore, the test set need not have.
    read = [read_records(path, reading, all_ignored=False)]
    common: dict[str, Any] = {
        "n_features": like.n_features,
        "features": like.features,
        "manifest": "the clients",
    }
    records: Any
    if isinstance(like, TargetSet):
        (records,) = assemble_targets(read, like.targets, **common)
    else:
        (records,) = assemble(read, classes=ClassList(like.classes), **common)
    if like.schema and records.schema != like.schema:
        raise FeatureError(
            f"{path}: prepared by {schema_shown(records)}, the clients by {schema_shown(like)};"
            " prepare it by the same (securefl data prepare)"
        )
    return records


def show_model(
    output: Output,
    out: Path,
    settings: Settings,
    secure: bool,
    fitted: "FittedModel",
    remarks: tuple[str, ...],
    learned: "Learned | None",
) -> None:
    """A model that lies in the run folder OUT, and what making it took."""
    import attrs

    from secure_fl.training.linear_model import RegressionModel
    from secure_fl.training.model_files import FILE, PERSONAL

    size = (out / FILE).stat().st_size
    up, down = (sum(each[i] for each in fitted.traffic.values()) for i in (0, 1))
    data = {
        "run": str(out),
        "method": settings.method,
        "rounds": fitted.rounds,
        "aggregate": "secure" if secure else "plain",
        "figures": dict(fitted.figures),
        "targets": list(fitted.model.targets)
        if isinstance(fitted.model, RegressionModel)
        else None,
        "model_bytes": size,
        "personal": sorted(fitted.personal),
        "clients": {
            name: {"bytes_up": sent, "bytes_down": got}
            for name, (sent, got) in fitted.traffic.items()
        },
        "privacy": fitted.model.origin.get("privacy"),
        "remarks": list(remarks),
        "learned": None if learned is None else attrs.asdict(learned),
    }
    figures = "".join(f", {name} {value:.4g}" for name, value in fitted.figures.items())
    lines = [
        f"{out}: {settings.method}, {fitted.rounds} rounds, {len(fitted.traffic)} clients{figures}",
        f"traffic: {human_bytes(up)} from the clients, {human_bytes(down)} to them;"
        f" model {human_bytes(size)}",
        f"privacy: {fitted.privacy}",
    ]
    if learned is not None:
        lines.insert(1, learned.text())
    if fitted.personal:
        lines.append(f"{out / PERSONAL}: each client's own model, for that client alone")
    output.result(data, "\n".join(lines))
    if learned is not None and learned.warning is not None:
        output.note(f"warning: {learned.warning}")


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("queries", type=EXISTING_FILE)
@click.option("--rows", help="Records to take, start:stop from 0; default: all.")
@read_options
@output_options
def predict(output: Output, model: Path, queries: Path, rows: str | None, **reading: Any) -> None:
    """Classify QUERIES with a model of `train --method`: a class a line. MODEL: its run folder.

    With a model of `train --targets` the numbers of a query are a line, with blanks. Labels or
    targets that QUERIES may hold are used to tell the accuracy or error alone.
    """
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.training.linear_model import RegressionModel
    from secure_fl.training.loading import load_model

    trained = load_model(model)
    if isinstance(trained, RegressionModel):
        refuse_given({"label_column"}, "for a model of numbers, whose targets it names itself")
        reader = make_read_options(**reading, targets=trained.targets)
        _show_values(output, trained, queries, reader, parse_rows(rows))
        return
    reader = make_read_options(**reading)
    features, labels = read_queries(queries, trained, reader, parse_rows(rows))
    found = trained.predict(features)
    show_classes(output, [trained.classes[code] for code in found], labels)


def _show_values(
    output: Output, model: "RegressionModel", queries: Path, reader: "ReadOptions", rows: slice
) -> None:
    """A regression's numbers, and how far they are from those that the file may hold."""
    import attrs

    from secure_fl.training.regression import errors_of, read_target_queries

    features, truth = read_target_queries(queries, model, reader, rows)
    values = model.values(features)
    data: dict[str, Any] = {"targets": list(model.targets), "values": values.tolist()}
    if truth is not None:
        errors = errors_of(model.targets, values, truth)
        data["errors"] = {each.target: attrs.asdict(each) for each in errors}
        output.note("; ".join(each.text() for each in errors))
    lines = (" ".join(f"{value:.6g}" for value in row) for row in values.tolist())
    output.result(data, "\n".join(lines))

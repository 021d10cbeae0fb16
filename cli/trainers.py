"""Iterative trainers of `securefl train --method`, and `securefl predict`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.methods import refuse_given
from cli.networks import RecordPromise, train_network
from cli.output import Output, human_bytes, output_options, show_classes
from secure_fl.trainers.linear_settings import LinearSettings
from secure_fl.trainers.network_settings import NetworkSettings
from secure_fl.trainers.settings import Settings

if TYPE_CHECKING:
    from secure_fl.data import Dataset, ReadOptions
    from secure_fl.federation import ClientPrivacy
    from secure_fl.privacy.promises import RecordPrivacy
    from secure_fl.training.outcome import Trained

_OPTIONS = (
    click.option(
        "--aggregate",
        type=click.Choice(["plain", "secure"]),
        default="plain",
        help="method: secure masks every update, so that the server learns sums alone.",
    ),
    click.option(
        "--test",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="method: measure the accuracy on this labelled file after every round.",
    ),
    click.option(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
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
        "--ledger",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Noise of sums: books of the whole federation; default: each client's own.",
    ),
)


CLIENT_PRIVACY = frozenset({"client_delta", "client_noise"})
"""Parameters that say more of --client-epsilon."""
TRAINERS_ONLY = CLIENT_PRIVACY | {
    *("aggregate", "test", "checkpoint", "client_epsilon", "clip", "ledger"),
}
"""Parameters of the options above that heads do not have."""


def trainer_options(function: Any) -> Any:
    """Options of every method by rounds or sums, beside its own."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def train_rounds(
    output: Output,
    source: Path,
    out: Path,
    *,
    classes: str | None,
    scale: float,
    seed: int,
    reading: "ReadOptions",
    settings: Settings,
    aggregate: str,
    test: Path | None,
    checkpoint: Path | None,
    client_epsilon: float | None,
    client_delta: float,
    clip: float | None,
    client_noise: Any,
    ledger: Path | None,
    record: RecordPromise | None = None,
) -> None:
    """Runs a method on the client files in SOURCE and writes the run folder OUT.

    `record` is what private-ridge and networks promise of a record.
    """
    import shutil

    from fhe.envelope import PRIVATE
    from secure_fl.data import ClassList, check_scale, label_remarks, read_clients
    from secure_fl.errors import InputError
    from secure_fl.files import new_folder, refuse_existing, reserve
    from secure_fl.privacy.ledgers import Shelf
    from secure_fl.training.loop import prove_checkpoint
    from secure_fl.training.model_files import FILE, PERSONAL

    refuse_existing(out)
    check_scale(scale)
    if record is not None and client_epsilon is not None:
        raise InputError("--client-epsilon: --epsilon has noise of its own; leave out one")
    if client_epsilon is None:
        refuse_given(CLIENT_PRIVACY, "without --client-epsilon")
        if record is None or not isinstance(settings, NetworkSettings):
            refuse_given({"clip"}, "without --client-epsilon")
    assert isinstance(settings, LinearSettings | NetworkSettings)
    if isinstance(settings, NetworkSettings):
        settings.refuse_privacy(record=record is not None, client=client_epsilon is not None)
    known = ClassList(tuple(classes.split(","))) if classes else None
    with new_folder(out) as aside:
        with output.progress() as progress:
            clients = read_clients(
                source,
                reading,
                classes=known,
                progress=lambda i, n: progress("reading", i, n),
            )
        remarks = label_remarks(clients)
        for remark in remarks:
            output.note(remark)
        probe = None if test is None else _test_records(test, reading, clients[0])
        # Before anything is booked: what was spent must not be lost for want of room.
        room = _room(settings, clients)
        prove_checkpoint(checkpoint, sum(room))
        free = reserve(aside, room)
        private = record is not None or client_epsilon is not None
        folder = None if record is None else record.ledgers
        shelf = Shelf.beside(source, clients, folder) if private else None
        noise = None
        if client_epsilon is not None:
            promise = client_epsilon, client_delta, clip
            noise = _client_noise(settings, clients, promise, client_noise, ledger or shelf)
        metrics = aside / "metrics.jsonl"
        lines = metrics if checkpoint is None else Path(f"{checkpoint}.jsonl")
        options: dict[str, Any] = {
            "secure": aggregate == "secure",
            "seed": seed,
            "scale": scale,
            "test": probe,
            "checkpoint": checkpoint,
            "metrics": lines,
            "progress": output.note,
        }
        if isinstance(settings, LinearSettings):
            books = ledger or shelf
            trained = _train_linear(clients, settings, record, noise, books, options)
        else:
            trained = train_network(clients, settings, record, noise, shelf, clip, options)
        for note in shelf.notes() if shelf is not None and ledger is None else ():
            output.note(note)
        free()
        if checkpoint is not None:
            shutil.copyfile(lines, metrics)
        size = trained.model.save(aside / FILE)
        for name, its_own in trained.personal.items():
            (aside / PERSONAL / name).mkdir(parents=True)
            its_own.save(aside / PERSONAL / name / FILE, mode=PRIVATE)
    _show(output, out, settings, options["secure"], trained, size, remarks)


def _room(settings: LinearSettings | NetworkSettings, clients: Sequence["Dataset"]) -> list[int]:
    if isinstance(settings, LinearSettings):
        from secure_fl.training.linear import linear_room

        return linear_room(settings, clients)
    from secure_fl.training.networks import network_room

    return network_room(settings, clients)


def _client_noise(
    settings: LinearSettings | NetworkSettings,
    clients: Sequence["Dataset"],
    promise: tuple[float, float, float | None],
    kind: Any,
    books: Any,
) -> "ClientPrivacy":
    from secure_fl.privacy.ledgers import prove_room
    from secure_fl.privacy.promises import client_privacy

    noise = client_privacy(settings, len(clients[0].classes), *promise, books, kind)
    prove_room(noise.ledger.each, noise.sums)
    return noise


def _train_linear(
    clients: Sequence["Dataset"],
    settings: LinearSettings,
    record: RecordPromise | None,
    noise: "ClientPrivacy | None",
    books: Any,
    options: dict[str, Any],
) -> "Trained":
    from secure_fl.privacy.promises import record_promise
    from secure_fl.training.linear import check_promise, train_linear_model

    privacy: ClientPrivacy | RecordPrivacy | None = noise
    if record is not None:
        if record.norm is None:
            raise click.UsageError(f"--method {settings.method} needs --norm")
        privacy = record_promise(record.epsilon, record.delta, record.norm, books)
    check_promise(settings, privacy, secure=options["secure"])
    return train_linear_model(clients, settings, privacy=privacy, **options)


def _test_records(path: Path, reading: "ReadOptions", like: "Dataset") -> "Dataset":
    from secure_fl.data import ClassList, assemble, read_records

    # What the clients ignore, the test set need not have.
    (records,) = assemble(
        [read_records(path, reading, all_ignored=False)],
        classes=ClassList(like.classes),
        n_features=like.n_features,
        features=like.features,
        manifest="the clients",
    )
    return records


def _show(
    output: Output,
    out: Path,
    settings: Settings,
    secure: bool,
    trained: "Trained",
    size: int,
    remarks: tuple[str, ...],
) -> None:
    from secure_fl.training.model_files import PERSONAL

    up, down = (sum(each[i] for each in trained.traffic.values()) for i in (0, 1))
    data = {
        "run": str(out),
        "method": settings.method,
        "rounds": trained.rounds,
        "aggregate": "secure" if secure else "plain",
        "figures": dict(trained.figures),
        "model_bytes": size,
        "personal": sorted(trained.personal),
        "clients": {
            name: {"bytes_up": sent, "bytes_down": got}
            for name, (sent, got) in trained.traffic.items()
        },
        "privacy": trained.privacy,
        "remarks": list(remarks),
    }
    figures = "".join(f", {name} {value:.4g}" for name, value in trained.figures.items())
    lines = [
        f"{out}: {settings.method}, {trained.rounds} rounds, {len(trained.traffic)} clients"
        f"{figures}",
        f"traffic: {human_bytes(up)} from the clients, {human_bytes(down)} to them;"
        f" model {human_bytes(size)}",
        f"privacy: {trained.privacy or 'no guarantee; the model shows what it was trained on'}",
    ]
    if trained.personal:
        lines.append(f"{out / PERSONAL}: each client's own model, for that client alone")
    output.result(data, "\n".join(lines))


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rows", help="Records to take, start:stop from 0; default: all.")
@read_options
@output_options
def predict(output: Output, model: Path, queries: Path, rows: str | None, **reading: Any) -> None:
    """Classify QUERIES with a model of `train --method`: a class a line. MODEL: its run folder."""
    from secure_fl.heads.queries import parse_rows, read_queries
    from secure_fl.training.loading import load_model

    trained = load_model(model)
    reader = make_read_options(**reading)
    features, labels = read_queries(queries, trained, reader, parse_rows(rows))
    found = trained.predict(features)
    show_classes(output, [trained.classes[code] for code in found], labels)

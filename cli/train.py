"""`securefl train`: clients' files in, a run folder out."""

from pathlib import Path
from typing import Any

import click

from cli.channel import CHANNEL, channel_options, run_channel
from cli.data import make_read_options, read_options
from cli.dp import promise_options
from cli.given import refuse_given
from cli.heads import show_heads
from cli.methods import chosen_method, method_options
from cli.output import Output, output_options
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE
from cli.scaling import chosen_scaling, clip_for_moments, moments_option, scaling_options
from cli.train_promises import RECORD_LEVEL, incomplete, promise_of, refuse_options_of_others
from cli.trainers import (
    read_test_set,
    show_model,
    trainer_options,
)
from secure_fl.trainers.registry import find
from secure_fl.trainers.settings import Settings


@click.command()
@click.argument("source", type=EXISTING)
@click.option("--out", required=True, type=ANY_PATH, help="The run folder.")
@click.option("--classes", help="Class names, separated by commas; default: those in the files.")
@scaling_options
@moments_option
@click.option("--encoder", default="none", show_default=True, help="What made the features.")
@click.option("--seed", default=0, show_default=True, help="Of all draws but noise and masks.")
@promise_options(required=False)
@click.option("--smoothing", type=click.Choice(["sure", "none"]), default="sure")
@click.option(
    "--ledgers",
    type=ANY_PATH,
    help="Folder of the clients' books; default: CLIENTS.ledgers beside their folder.",
)
@click.option(
    "--budget",
    type=float,
    help="Epsilon that a new ledger may spend, at --delta; networks spend it by client and round.",
)
@click.option(
    "--runtime",
    type=click.Choice(["local", "flower", "service"]),
    default="local",
    show_default=True,
    help="flower and service: SOURCE is an app folder of `securefl flower app`, clients are other"
    " machines, which a SuperLink or this command itself serves.",
)
@click.option("--superlink", help="--runtime flower: its name in Flower's config.toml.")
@click.option(
    "--federation",
    type=EXISTING_FILE,
    help="A federation.json made elsewhere: SOURCE is one party's data (a client's file, or a"
    " folder of them) and only its heads are trained.",
)
@channel_options
@click.option(
    "--tuned",
    type=EXISTING_FILE,
    help="A file of `securefl tune --out`: heads take the best settings of it.",
)
@click.option(
    "--targets",
    help="Predict numbers in place of classes, NAME,NAME: columns of csv files, or names of the"
    " columns of y (npz) or of the label (LIBSVM). Linear methods.",
)
@click.option(
    "--target-norm",
    type=click.FloatRange(min=0, min_open=True),
    help="--targets with private-ridge: public L2 norm that a record's targets are clipped to.",
)
@method_options
@trainer_options
@read_options
@output_options
def train(
    output: Output,
    source: Path,
    out: Path,
    classes: str | None,
    scale: float,
    scaling: str | None,
    public: Path | None,
    moments_clip: str | None,
    encoder: str,
    seed: int,
    epsilon: float | None,
    delta: float | None,
    unit: str | None,
    distance: float,
    norm: float | None,
    bounds: tuple[float, float] | None,
    grid: float,
    mechanism: str | None,
    smoothing: Any,
    ledgers: Path | None,
    budget: float | None,
    method: str,
    model: str,
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
    runtime: str,
    superlink: str | None,
    federation: Path | None,
    tuned: Path | None,
    targets: str | None,
    target_norm: float | None,
    **settings: Any,
) -> None:
    """Train a head for every client file in the folder SOURCE and write the run folder.

    One pass, no rounds. A head stays with its client: it holds the client's records. With
    --epsilon, --delta and --unit every batch is released once with that privacy and the head holds
    the release alone. With --federation one party trains its own heads alone, the same as a joint
    run would give it; --method kahm-record-private releases its one head of all clients anew.

    With --targets a linear method (fednewton, krr, dkrr, fedavg, private-ridge, ...) predicts
    numbers; --test then tells its root mean squared error and R2.

    With --method kahm-record-private all clients make one public head together, of masked sums
    that hide every record; it lies in the run folder under every client's name. With the other
    methods they train one model together, in rounds of sums; `securefl predict` classifies with
    it. Noise is then --client-epsilon's, or for networks (--model) and private-ridge that of
    --epsilon, --delta and --unit record.
    """
    channel = {name: settings.pop(name) for name in CHANNEL}
    if runtime != "local":
        own = {"superlink"} if runtime == "flower" else set(CHANNEL)
        _refuse_options_of_an_app(runtime, own)
    if runtime == "flower":
        from cli.flower import run_app

        run_app(output, source, out, superlink)
        return
    if runtime == "service":
        run_channel(output, source, out, **channel)
        return
    refuse_given({"superlink"}, "without --runtime flower")
    refuse_given(CHANNEL, "without --runtime service")
    from secure_fl.data import class_counts, label_remarks
    from secure_fl.errors import InputError
    from secure_fl.files import refuse_existing
    from secure_fl.privacy.ledgers import Shelf
    from secure_fl.training.heads import train_party
    from secure_fl.training.train import train as run

    noisy = epsilon is not None or settings["client_epsilon"] is not None
    chosen = chosen_method(method, model, settings, promised=noisy)
    refuse_options_of_others(chosen)
    chosen, tried, tuned_scaling = _tuned(chosen, tuned)
    if federation is not None:
        refuse_given(_AGREED, "beside --federation, whose file says it")
        refuse_given({"test"}, "beside --federation; one party's heads do not answer alone")
    given = (epsilon, delta, unit)
    if epsilon is not None and settings["client_epsilon"] is not None:
        raise InputError("--client-epsilon: --epsilon has noise of its own; leave out one")
    if None in given and (given != (None, None, None) or method in RECORD_LEVEL):
        raise click.UsageError(incomplete(chosen))
    terms = {"distance": distance, "norm": norm, "bounds": bounds, "grid": grid}
    release = {**terms, "mechanism": mechanism, "smoothing": smoothing}
    promise = promise_of(chosen, given, release, budget, settings)
    promised = promise is not None or getattr(chosen, "private_answers", False)
    # Beside --federation its manifest says how many features there are.
    public_width = promise is not None and federation is None
    named = _targets(targets, chosen, federation)
    reading = make_read_options(
        label_column, ignore_column, features, public_width=public_width, targets=named
    )
    refuse_existing(out)
    known = tuple(classes.split(",")) if classes else None
    with output.progress() as progress, output.rounds() as told_round:
        clients, manifest = _read(source, reading, known, federation, progress)
        remarks = () if named else label_remarks(clients)
        remarks += _of_widths(source, clients, features, federation)
        for remark in (*remarks, *_of_promise(promise, clients)):
            output.note(remark)
        shelf = None if promise is None else Shelf.beside(source, clients, ledgers)
        common: dict[str, Any] = {
            "seed": seed,
            "promise": promise,
            "books": settings["ledger"] or shelf,
            "out": out,
            "on_progress": progress,
        }
        given_test = settings["test"]
        test = None if given_test is None else read_test_set(given_test, reading, clients[0])
        if manifest is not None:
            secure = settings["aggregate"] == "secure"
            fitted: Any = train_party(clients, manifest, method=chosen, secure=secure, **common)
        else:
            map_of = chosen_scaling(
                scaling or tuned_scaling, public, reading, clients, promised, output
            )
            fitted = run(
                clients,
                chosen,
                secure=settings["aggregate"] == "secure",
                scale=scale,
                scaling=map_of,
                moments_clip=clip_for_moments(moments_clip, scaling, public, reading, clients),
                tried=tried,
                settle=settings["settle"],
                target_norm=target_norm,
                encoder=encoder,
                test=test,
                checkpoint=settings["checkpoint"],
                on_round=told_round,
                **common,
            )
        found = None
        if test is not None and not named:
            found = _learned(fitted, test, promise is not None, bool(remarks))
    for note in shelf.notes() if shelf is not None and settings["ledger"] is None else ():
        output.note(note)
    if chosen.family != "heads":
        for remark in fitted.remarks:
            output.note(remark)
        secure = settings["aggregate"] == "secure"
        told = (*remarks, *fitted.remarks)
        show_model(output, out, chosen, secure, fitted, told, found)
        return
    # The bounds are of machines of records, and of the whole federation's.
    counted = clients if method == "kahm" and federation is None else ()
    show_heads(output, out, fitted, class_counts(counted), remarks, found)


def _targets(targets: str | None, chosen: Settings, federation: Path | None) -> tuple[str, ...]:
    """Names of the numbers to be predicted; none where classes are learned."""
    if targets is None:
        refuse_given({"target_norm"}, "without --targets")
        return ()
    refuse_given({"classes", "label_column"}, "beside --targets, which are numbers")
    if chosen.family != "linear" or federation is not None:
        raise click.UsageError(
            "--targets is of linear methods, such as --method fednewton, krr or private-ridge"
        )
    names = tuple(each.strip() for each in targets.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise click.UsageError(f"--targets {targets!r}: expected names, with commas, each once")
    return names


def _tuned(chosen: Any, tuned: Path | None) -> tuple[Any, tuple[Any, ...], str | None]:
    """The method with the best settings of a file of `securefl tune`, what was tried, its scaling.

    The scaling is None for public ranges, which must be given again.
    """
    if tuned is None:
        return chosen, (), None
    from secure_fl.trainers.head_tuning import best_of
    from secure_fl.training.preparing import chosen_head
    from secure_fl.training.tuning import load_tuned

    refuse_given(
        {"batch_size", "regularisation", "regularisation_factor", "measure"},
        "beside --tuned, whose file says it",
    )
    tried = load_tuned(tuned)
    best = best_of(tried)
    if best.choice.bits is not None:
        refuse_given({"bits", "code_range"}, "beside --tuned, whose file says it")
    return chosen_head(chosen, best.choice), tried, best.scaling or None


def _learned(fitted: Any, test: Any, private: bool, disjoint: bool) -> Any:
    """What training left, measured on the test records."""
    from secure_fl.training.fitted import FittedHeads
    from secure_fl.training.learned import learned

    space = fitted.manifest if isinstance(fitted, FittedHeads) else fitted.model
    return learned(fitted, test, scaling=space.scaling_map, private=private, disjoint=disjoint)


def _read(
    source: Path,
    reading: Any,
    classes: tuple[str, ...] | None,
    federation: Path | None,
    progress: Any,
) -> tuple[Any, Any]:
    """The clients' data sets, and the manifest where it was made elsewhere."""
    from secure_fl.data import ClassList, read_clients, read_targets
    from secure_fl.heads.fitting import read_party
    from secure_fl.heads.manifest import load_manifest

    def report(done: int, total: int) -> None:
        progress("reading", done, total)

    if reading.columns.targets:
        return read_targets(source, reading, report), None
    if federation is not None:
        manifest = load_manifest(federation)
        return read_party(source, manifest, federation, reading, report), manifest
    known = ClassList(classes) if classes else None
    return read_clients(source, reading, classes=known, progress=report), None


def _of_widths(
    source: Path, clients: Any, features: int | None, federation: Path | None
) -> tuple[str, ...]:
    """A remark where the largest index of LIBSVM files became a fact of the federation."""
    from secure_fl.data import width_is_private

    if features is not None or federation is not None or not width_is_private(source):
        return ()
    return (
        f"features: {clients[0].n_features}, the largest index in the clients' LIBSVM files, which"
        " all who read the run learn; say the data set's own number with --features",
    )


def _of_promise(promise: Any, clients: Any) -> tuple[str, ...]:
    """Remarks on a promise that protects little, or whose noise leaves little."""
    from secure_fl.privacy.promises import RecordPromise, ReleasePromise
    from secure_fl.privacy.remarks import delta_remarks, release_remarks

    if promise is None:
        return ()
    largest = max(len(each) for each in clients)
    if isinstance(promise, ReleasePromise):
        found = release_remarks(promise, clients[0].n_features, largest)
    else:
        hides_records = isinstance(promise, RecordPromise)
        of, number = ("record", largest) if hides_records else ("client", len(clients))
        found = delta_remarks(promise.delta, number, of=of)
    return tuple(f"remark: {each}" for each in found)


_AGREED = frozenset(
    {"classes", "scale", "scaling", "public", "moments_clip", "encoder", "tuned"}
) | {declared.name for declared in find("kahm").declared()}


def _refuse_options_of_an_app(runtime: str, own: set[str]) -> None:
    """The app folder says how to train; an option beside it could only mislead: refuse it."""
    context = click.get_current_context()
    fine = {"source", "out", "runtime", "as_json", "quiet"} | own
    every = {parameter.name for parameter in context.command.params if parameter.name}
    how = "the app folder says how to train (securefl flower app)"
    refuse_given(every - fine, f"for --runtime {runtime}; {how}")

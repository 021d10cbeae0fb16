"""`securefl report`: one page about a run, for whoever must sign it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.output import Output, output_options
from cli.paths import EXISTING, EXISTING_FILE, EXISTING_FOLDER, FILE

if TYPE_CHECKING:
    from secure_fl.data import ReadOptions


@click.command()
@click.argument("run", type=EXISTING_FOLDER)
@click.option(
    "--out",
    required=True,
    type=FILE,
    help="The page; an older one is replaced.",
)
@click.option(
    "--ledgers",
    type=EXISTING,
    help="Folder of the clients' ledgers, NAME.jsonl; of a trainer's run its ledger, a file.",
)
@click.option(
    "--keys", type=EXISTING_FOLDER, help="Folder of the querier's keys; no secret is opened."
)
@click.option(
    "--contributions", type=EXISTING_FOLDER, help="Folder of contributions, to count what was sent."
)
@click.option(
    "--answer", "answers", multiple=True, type=EXISTING_FILE, help="An answer, to count it."
)
@click.option("--test", type=EXISTING_FILE, help="Labelled records that no client trained on.")
@click.option("--rounds", type=EXISTING_FILE, help="The log of a trainer's rounds.")
@click.option(
    "--label-counts",
    is_flag=True,
    help="Show how many records of a class each head here has; nothing protects these numbers.",
)
@read_options
@output_options
def report(
    output: Output,
    run: Path,
    out: Path,
    ledgers: Path | None,
    keys: Path | None,
    contributions: Path | None,
    answers: tuple[Path, ...],
    test: Path | None,
    rounds: Path | None,
    label_counts: bool,
    **reading: Any,
) -> None:
    """Make one page of the run folder RUN: what is protected, who could learn what, how good it is.

    No record is on it. What is not given is left out, and the page says so.
    """
    from secure_fl.files import prove_writable
    from secure_fl.report import Sources, gather, write_report
    from secure_fl.report.trained import is_trained

    # The place is tried before the queries of --test are measured.
    prove_writable(out, 0)
    if is_trained(run):
        refuse_given(
            {"keys", "contributions", "answers", "rounds", "label_counts"},
            "for a trained model's run; they tell of heads",
        )
        _report_trained(output, run, out, ledgers, test, make_read_options(**reading))
        return
    sources = Sources(
        run=run,
        ledgers=ledgers,
        keys=keys,
        contributions=tuple(sorted(contributions.glob("*.contribution"))) if contributions else (),
        answers=answers,
        test=test,
        reading=make_read_options(**reading),
        rounds=rounds,
        label_counts=label_counts,
    )
    with output.progress() as progress:
        progress("reading the run", 0, 1)
        facts = gather(sources)
        progress("reading the run", 1, 1)
    size = write_report(out, facts)
    measured = facts.measured
    data = {
        "page": str(out),
        "bytes": size,
        "promises": {
            each.client: each.statement.promise
            for each in facts.privacy
            if each.statement is not None
        },
        "accuracy": None if measured is None else measured.exact,
        "accuracy_of_codes": None if measured is None else measured.coded,
    }
    output.result(data, f"{out}: {size / 1e3:.0f} kB; open it in a browser, nothing is loaded")


def _report_trained(
    output: Output,
    run: Path,
    out: Path,
    ledger: Path | None,
    test: Path | None,
    reading: "ReadOptions",
) -> None:
    """The page of a run of `train --method`."""
    from secure_fl.report.trained import gather_trained, write_trained_report

    facts = gather_trained(run, ledger=ledger, test=test, reading=reading)
    size = write_trained_report(out, facts)
    counts = facts.counts
    data = {
        "page": str(out),
        "bytes": size,
        "promises": {"model": facts.model.origin.get("privacy")},
        "accuracy": None if counts is None else float(counts.trace() / counts.sum()),
    }
    output.result(data, f"{out}: {size / 1e3:.0f} kB; open it in a browser, nothing is loaded")

"""`securefl demo`: real digits from clients' files to encrypted answers, in one go."""

from pathlib import Path

import click

from cli.output import Output, human_bytes, output_options
from cli.paths import ANY_PATH


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the split over clients.")
@click.option("--queries", type=click.IntRange(1), help="Test digits; default: 20, or 10.")
@click.option("--keep", type=ANY_PATH, help="Keep the files in this new folder.")
@click.option("--network", is_flag=True, help="Three contributors, all parties as processes.")
@output_options
def demo(output: Output, seed: int, queries: int | None, keep: Path | None, network: bool) -> None:
    """Five clients with skewed digits; an evaluator classifies queries it cannot read."""
    if network:
        if keep is not None:
            raise click.UsageError("--keep goes without --network")
        _network(output, seed, queries or 10)
        return
    from secure_fl.demo.local import demonstrate

    output.note(
        "scikit-learn's handwritten digits, 5 clients, Dirichlet 0.5: each client trains a head on"
        " its own digits, then the evaluator answers on ciphertexts."
    )
    with output.progress() as progress:
        found = demonstrate(seed=seed, queries=queries or 20, keep=keep, progress=progress)
    lines = [
        f"clients: {found.clients}, training digits: {found.training_records:,}",
        f"accuracy in the clear, all {found.test_records} test digits: {found.accuracy:.1%}"
        f" (with {found.bits}-bit codes {found.coded_accuracy:.1%})",
        f"encrypted answers: {found.queries}, right {found.encrypted_right},"
        f" equal to the clear rule {found.agreeing}/{found.queries}",
        f"seconds per encrypted answer: {found.seconds_per_answer:.2f}"
        f" (failure probability 2^-{found.failure_exponent} a decision)",
        f"each client sent {human_bytes(found.contribution_bytes)} once for all queries;"
        f" the evaluator sent {human_bytes(found.answer_bytes)}",
        f"evaluation key {human_bytes(found.evaluation_key_bytes)}, made in"
        f" {found.key_seconds:.1f} s",
        f"whole demo: {found.seconds:.0f} s",
    ]
    output.result(found.to_json(), "\n".join(lines))
    if found.agreeing < found.queries:
        raise click.ClickException("an encrypted answer differs from the clear rule")


def _network(output: Output, seed: int, queries: int) -> None:
    from secure_fl.service.extra import check_extra

    check_extra()
    from secure_fl.demo.network import demonstrate_network

    output.note(
        "scikit-learn's handwritten digits, three contributors with their own, an evaluator and a"
        " querier, each a process of its own, on loopback."
    )
    with output.progress() as progress:
        found = demonstrate_network(seed=seed, queries=queries, progress=progress)
    lines = [
        f"contributors: {', '.join(found.clients)}",
        f"encrypted answers: {found.queries}, equal to the clear rule"
        f" {found.agreeing}/{found.queries}, right {found.right}; {found.seconds:.1f} s",
        f"{found.killed} killed; quorum of {len(found.quorum_present)}: equal to the clear rule"
        f" over {', '.join(found.quorum_present)} {found.quorum_agreeing}/{found.queries}"
        f" ({found.quorum_differing} differ from the answer of all); {found.quorum_seconds:.1f} s",
        f"the evaluator took {human_bytes(found.bytes_in)} and sent {human_bytes(found.bytes_out)}",
        f"the rule masked, without keys: equal to the clear rule {found.masked_agreeing}/"
        f"{found.masked_asked}, of all {found.masked_seconds:.1f} s, without {found.killed}"
        f" {found.masked_quorum_seconds:.1f} s",
        f"whole demo: {found.whole_seconds:.0f} s",
    ]
    output.result(found.to_json(), "\n".join(lines))
    if found.agreeing < found.queries or found.quorum_agreeing < found.queries:
        raise click.ClickException("an encrypted answer differs from the clear rule")
    if found.masked_agreeing < found.masked_asked:
        raise click.ClickException("an answer of the rule masked differs from the clear rule")

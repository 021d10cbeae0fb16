"""`securefl infer`: a batch answered on ciphertexts by files, or by the heads of one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.clear import Clear, infer_in_the_clear
from cli.data import make_read_options, read_options
from cli.given import refuse_given
from cli.judged import labels_to_judge_by, show_left_out
from cli.keys import new_batch
from cli.masked import (
    OF_DISTANCES,
    bands_of,
    distance_option,
    show_bands,
    show_masked,
    unknown_option,
)
from cli.output import Output, human_bytes, output_options
from cli.paths import ANY_PATH, EXISTING, EXISTING_FILE
from cli.query import SUFFIX, keys_option, rows_option, run_option
from cli.workers import OF_WORKERS, answered_by, calling_of, workers_options

if TYPE_CHECKING:
    from secure_fl.heads.head import Head
    from secure_fl.heads.judging import Band
    from secure_fl.heads.manifest import Manifest
    from secure_fl.service.cluster import Calling

_OF_MASKED = frozenset({"quorum", "degree", "exact_heads", "distance", "calibrate", "unknown_from"})
_OF_CIPHERTEXTS = frozenset({"keys", "out", "workers"}) | OF_WORKERS
_OF_QUERIES = frozenset({"run", "rows", "label_column", "ignore_column", "features"})
_OF_THE_CLEAR = frozenset({"top", "unknown_above"})


@click.command()
@click.argument("sources", nargs=-1, required=True, type=EXISTING)
@click.option(
    "--mode",
    type=click.Choice(["encrypted", "masked", "simulate", "plain"]),
    help="Default: masked if the rule of RUN is masked or votes, else encrypted. masked, simulate"
    " and plain classify QUERIES here, without keys; plain takes exact measures.",
)
@click.option("--out", type=ANY_PATH, help="encrypted: the answer file.")
@click.option("--top", type=click.IntRange(1), help="plain: the best classes of each query.")
@click.option(
    "--unknown-above",
    type=float,
    help='plain, simulate: the measure above which a query is "unknown"; default: the run\'s.',
)
@keys_option
@run_option
@rows_option
@click.option(
    "--quorum",
    type=click.IntRange(1),
    help="masked: contributors that suffice, above half of all; default: above two thirds.",
)
@click.option(
    "--degree",
    type=click.IntRange(1),
    help="masked: contributors that each masks with, an even number; default: all others.",
)
@click.option(
    "--exact-heads",
    is_flag=True,
    help="masked: let heads answer that are no differentially private releases.",
)
@distance_option
@click.option(
    "--calibrate",
    type=EXISTING_FILE,
    help="masked: labelled public queries; accuracy by distance, on standard error.",
)
@unknown_option
@click.option(
    "--leave-one-out",
    is_flag=True,
    help="Accuracy on labelled QUERIES without each contributor in turn, by the heads here.",
)
@workers_options
@read_options
@output_options
def infer(
    output: Output,
    sources: tuple[Path, ...],
    mode: str | None,
    out: Path | None,
    top: int | None,
    unknown_above: float | None,
    keys: Path | None,
    run: Path | None,
    rows: str | None,
    quorum: int | None,
    degree: int | None,
    exact_heads: bool,
    distance: bool,
    calibrate: Path | None,
    unknown_from: float | None,
    leave_one_out: bool,
    workers: tuple[str, ...],
    members: Path | None,
    identity: Path | None,
    authority: Path | None,
    insecure: bool,
    batch_hours: float,
    label_column: str,
    ignore_column: tuple[str, ...],
    features: int | None,
) -> None:
    """Answer a batch: from the contributions in SOURCES, on ciphertexts.

    With --mode masked, simulate or plain, SOURCES is one file of queries and --run names the heads.
    masked adds rows of random words under masks, or under the rule votes noisy votes, all
    contributors in this process; a contributor whose head is not here counts as dropped out.
    """
    mode = mode or _mode_of(run)
    if mode != "masked":
        refuse_given(_OF_MASKED, f"for --mode {mode}")
    if mode == "encrypted":
        refuse_given({"leave_one_out"}, "for --mode encrypted; the heads of one machine are wanted")
        refuse_given(
            _OF_THE_CLEAR,
            "for --mode encrypted: a query has one answer, by the federation's own threshold"
            " (securefl data calibrate --set)",
        )
        if keys is None or out is None:
            raise click.UsageError("encrypted answers need --keys and --out")
        _refuse_masked(run)
        refuse_given(_OF_QUERIES, "for encrypted answers; contributions hold all of it")
        calling = calling_of(workers, members, identity, authority, insecure, batch_hours)
        _infer_encrypted(output, sources, keys, out, calling)
        return
    if run is None or len(sources) != 1:
        raise click.UsageError(f"--mode {mode} needs --run and one file of queries")
    refuse_given(_OF_CIPHERTEXTS, f"for --mode {mode}, which prints the classes")
    reading = make_read_options(label_column, ignore_column, features)
    if mode != "masked" and not leave_one_out:
        infer_in_the_clear(output, Clear(sources[0], run, reading, rows, unknown_above), mode, top)
        return
    asked = _Asked(sources[0], run, rows, reading)
    if leave_one_out:
        refuse_given(_OF_THE_CLEAR, "beside --leave-one-out")
        refuse_given(_OF_MASKED - {"exact_heads"}, "beside --leave-one-out")
        asked.leave_one_out(output, mode, exact_heads)
    else:
        refuse_given(_OF_THE_CLEAR, "for --mode masked; its answers have --unknown-from")
        terms = (exact_heads, quorum, degree)
        asked.masked(output, terms, distance, calibrate, unknown_from)


def _mode_of(run: Path | None) -> str:
    """What the federation's rule runs by; contributions alone say nothing of it."""
    from secure_fl.heads.manifest import load_manifest

    return "masked" if run is not None and load_manifest(run).summed else "encrypted"


def _refuse_masked(run: Path | None) -> None:
    from secure_fl.heads.codes import refuse_masked
    from secure_fl.heads.manifest import load_manifest

    if run is not None:
        refuse_masked(load_manifest(run))


def _contributions(sources: Sequence[Path]) -> list[Path]:
    from secure_fl.errors import InputError

    found: list[Path] = []
    for source in sources:
        found += sorted(source.glob(f"*{SUFFIX}")) if source.is_dir() else [source]
    if not found:
        raise InputError(f"{sources[0]}: holds no {SUFFIX} file; make them with securefl encrypt")
    return found


def _infer_encrypted(
    output: Output, sources: tuple[Path, ...], keys: Path, out: Path, calling: "Calling | None"
) -> None:
    import fhe
    from fhe.advice import advice
    from fhe.answered import recorded, refuse_answered, refuse_unwritable
    from secure_fl.errors import InputError
    from secure_fl.files import prove_writable

    workers = [] if calling is None else calling.workers()
    if out.exists():
        raise InputError(f"{out}: exists already; remove it or choose another file")
    messages = [fhe.load_contribution(path) for path in _contributions(sources)]
    evaluation, public = fhe.load_evaluation_keys(keys), fhe.load_public_key(keys)
    refuse_answered(keys, messages)
    # All that can be known before the evaluation's minutes: where its answer and memory go.
    refuse_unwritable(keys)
    prove_writable(out, 0)
    output.note(advice(evaluation.parameters, messages[0].queries))
    lost: dict[str, str] = {}

    def dropped(name: str, why: str) -> None:
        lost[name] = why
        output.note(f'worker "{name}" is asked no more: {why}')

    with output.progress() as progress:
        if calling is not None:
            longest = calling.longest
            answer = answered_by(
                *(workers, messages, evaluation, public, keys, progress, dropped, longest)
            )
        else:
            answer = fhe.evaluate(messages, evaluation, public, progress=progress)
        output.note(f"writing {human_bytes(len(answer.payload()))} of encrypted answers")
        with recorded(keys, answer):
            size = answer.save(out)
    facts = {"answer": str(out), "queries": answer.queries, "bytes": size, "batch": answer.batch}
    text = f"{out}: {answer.queries} encrypted answers, {human_bytes(size)}"
    if lost:
        text += f"; without {', '.join(lost)}"
    output.result({**facts, "dropped": lost} if workers else facts, text)


class _Asked:
    """Queries and heads of this machine."""

    def __init__(self, queries: Path, run: Path, rows: str | None, reading: Any) -> None:
        from secure_fl.heads.queries import parse_rows, read_queries
        from secure_fl.heads.run_folder import load_run

        self.manifest: Manifest
        self.heads: list[Head]
        self.manifest, self.heads = load_run(run)
        self._path, self._run, self._reading = queries, run, reading
        self.features, self.labels = read_queries(queries, self.manifest, reading, parse_rows(rows))

    def masked(
        self,
        output: Output,
        terms: tuple[bool, int | None, int | None],
        distance: bool,
        calibrate: Path | None,
        unknown_from: float | None,
    ) -> None:
        """The rule as secure sums of all contributors in this process."""
        from secure_fl.heads.masked import masked_answer, masked_rule

        exact_heads, quorum, degree = terms
        if self.manifest.rule == "votes":
            refuse_given(OF_DISTANCES | {"exact_heads", "degree"}, "for the rule votes")
            output.note("noise is drawn and nothing is booked: all these heads are this machine's")
        rule = masked_rule(self.manifest, threshold=quorum, degree=degree)
        self._check_policy(exact_heads)
        facts: dict[str, Any] = {}
        with output.progress() as progress:
            if calibrate is not None:
                facts["calibration"] = show_bands(output, self._bands(rule, calibrate, progress))
            facts["batch"] = batch = new_batch()
            answer = masked_answer(
                rule, self.heads, self.features, self.manifest, batch=batch, progress=progress
            )
        facts["bytes_a_contributor"] = answer.bytes_a_contributor
        show_masked(
            output,
            self.manifest,
            answer,
            answer.contributors,
            self.labels,
            facts,
            distance=distance,
            unknown_from=unknown_from,
        )

    def leave_one_out(self, output: Output, mode: str, exact_heads: bool) -> None:
        """Which contributor helps, and which one harms."""
        from secure_fl.heads.judging import leave_one_out

        labels = labels_to_judge_by(self.labels, self._path, self.manifest)
        if self.manifest.rule == "votes":
            raise click.UsageError(
                "--leave-one-out: judges by the smallest measure, and the rule is votes"
            )
        if mode == "masked":
            self._check_policy(exact_heads)
        names = [head.client for head in self.heads]
        right, found = leave_one_out(self._values(mode), names, labels)
        show_left_out(output, right, found, len(labels))

    def _values(self, mode: str) -> Any:
        import numpy as np

        from secure_fl.heads.codes import head_codes
        from secure_fl.heads.run_folder import all_measures

        if mode == "plain":
            return all_measures(self.heads, self.features, self.manifest)
        codes = [head_codes(head, self.features, self.manifest) for head in self.heads]
        return np.stack(codes, axis=1)

    def _check_policy(self, exact_heads: bool) -> None:
        from secure_fl.heads.masked import MaskedPolicy

        names = [head.client for head in self.heads]
        MaskedPolicy(exact_heads=exact_heads).check(self._run, self.manifest, names)

    def _bands(self, rule: Any, path: Path, progress: Any) -> "list[Band]":
        from secure_fl.errors import InputError
        from secure_fl.heads.masked import masked_answer
        from secure_fl.heads.queries import read_queries

        features, labels = read_queries(path, self.manifest, self._reading, slice(None))
        if labels is None:
            raise InputError(f"{path}: holds no labels; calibrate with labelled public queries")
        answer = masked_answer(
            rule, self.heads, features, self.manifest, batch=new_batch(), progress=progress
        )
        return bands_of(answer, labels, self.manifest)

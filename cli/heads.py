"""What `securefl train` says of heads."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import Output, human_bytes, show

if TYPE_CHECKING:
    from secure_fl.heads.bounds import ClassBounds
    from secure_fl.heads.manifest import Manifest
    from secure_fl.training.fitted import FittedHeads
    from secure_fl.training.learned import Learned

BOUND_DELTA = 0.05
"""The bounds that are printed hold with probability 1 minus this."""

VOTES_DELTA = 1e-5
"""At which it is said how many answers by votes keep a budget; `serve contributor`'s default."""


def show_heads(
    output: Output,
    out: Path,
    fitted: "FittedHeads",
    counts: Mapping[str, int],
    remarks: tuple[str, ...],
    learned: "Learned | None",
) -> None:
    """Heads that lie in the run folder OUT.

    Args:
        output: where to.
        out: the run folder.
        fitted: the heads.
        counts: records of each class over all clients; empty where they are not known.
        remarks: of the clients' labels.
        learned: how well test records are classified, where there are some.
    """
    import attrs

    from secure_fl.heads.bounds import class_bounds
    from secure_fl.heads.head import head_path

    manifest, statements = fitted.manifest, fitted.statements
    machines = {head.client: head.bank.n_machines for head in fitted.heads}
    sizes = {name: head_path(out, name).stat().st_size for name in machines}
    bounds = class_bounds(dict(counts), BOUND_DELTA)
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
        "learned": None if learned is None else attrs.asdict(learned),
    }
    rows = [[name, machines[name], human_bytes(sizes[name])] for name in machines]
    output.table(data, f"{out}: {len(machines)} heads", ["client", "machines", "head"], rows)
    if learned is not None and learned.warning is not None:
        output.note(f"warning: {learned.warning}")
    if output.as_json or output.quiet:
        return
    if learned is not None:
        show(learned.text())
    _show_bounds(bounds)
    _show_votes(manifest)
    if not statements:
        show("Privacy: no guarantee; a head holds its client's records and must stay there.")
        if manifest.rule == "masked":
            show("The rule masked shows distances: such heads answer only with --exact-heads.")
        return
    alike = all(statement == statements[0][1] for _, statement in statements)
    others = "the others' is the same" if alike else "the others' differ in sizes"
    show(f"Privacy, statement of client {statements[0][0]} ({others}):")
    show(statements[0][1].text())


def _show_votes(manifest: "Manifest") -> None:
    """What answers by votes tell, where that is the rule."""
    from secure_fl.heads.masked import coding_of

    if manifest.rule != "votes":
        return
    coding: Any = coding_of(manifest)
    budgets = [(epsilon, coding.answers_within(epsilon, VOTES_DELTA)) for epsilon in (1, 3, 8)]
    show(
        f"Answers by votes: a query is one Gaussian of multiplier {coding.multiplier:.3g} per"
        f" record added or removed; at delta {VOTES_DELTA:g} "
        + ", ".join(f"{queries:,} keep epsilon {epsilon}" for epsilon, queries in budgets)
        + ". Each contributor's book binds them (serve contributor --answers-epsilon)."
    )


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

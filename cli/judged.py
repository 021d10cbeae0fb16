"""Who decides: accuracy on labelled public queries without each contributor in turn."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.keys import new_batch
from cli.output import Output

if TYPE_CHECKING:
    from fhe.audit import Audit
    from secure_fl.heads.judging import Without
    from secure_fl.heads.manifest import Manifest
    from secure_fl.service.querier import BatchTerms


def labels_to_judge_by(labels: Sequence[str] | None, queries: Path, manifest: "Manifest") -> Any:
    """Positions of the queries' labels in the federation's class list, shape (queries,).

    Raises:
        InputError: the queries have none.
    """
    from secure_fl.errors import InputError
    from secure_fl.heads.judging import label_indices

    if labels is None:
        raise InputError(
            f"{queries}: holds no labels; leave one out on labelled public queries (.npz, .csv or"
            " LIBSVM text)"
        )
    return label_indices(labels, manifest.classes)


def ask_in_turn(
    output: Output,
    manifest: "Manifest",
    terms: "BatchTerms",
    labels: Any,
    ask: Callable[[str, "Audit | None", "BatchTerms"], Any],
    known: Callable[[str], "Audit | None"],
) -> None:
    """Asks all contributors of a service, then all but each of them, and shows what changes.

    Args:
        output: where to.
        manifest: of the federation.
        terms: of every batch.
        labels: class indices, shape (queries,).
        ask: asks a batch of that name, with those known answers, on those terms; what it gives has
            `classes` and `present`.
        known: the known answers of a batch.

    Raises:
        ServiceError: an answer rests on fewer contributors than were asked, which would be taken
            for the work of the one that was left out.
    """
    from attrs import evolve

    from secure_fl.errors import ServiceError
    from secure_fl.heads.judging import compared

    def classes(without: str, done: int) -> Any:
        batch = new_batch()
        progress("batches", done, len(manifest.clients) + 1)
        found = ask(batch, known(batch), evolve(terms, without=without))
        silent = set(manifest.clients) - {without} - set(found.present)
        if silent:
            raise ServiceError(
                f"batch {batch}: answered without {', '.join(sorted(silent))}; nobody else may be"
                " missing where one is left out: ask again when all contributors are there"
            )
        return found.classes

    with output.progress() as progress:
        whole = classes("", 0)
        found = [
            compared(client, whole, classes(client, done), labels)
            for done, client in enumerate(manifest.clients, start=1)
        ]
    show_left_out(output, int((whole == labels).sum()), found, len(labels))


def show_left_out(output: Output, right: int, found: Sequence["Without"], total: int) -> None:
    """A contributor a line.

    Args:
        output: where to.
        right: right answers of all contributors.
        found: without each of them.
        total: queries.
    """
    data = {
        "queries": total,
        "accuracy": right / total,
        "without": {
            each.client: {
                "accuracy": each.right / total,
                "right_only_with": each.helped,
                "right_only_without": each.harmed,
                "answers_changed": each.changed,
            }
            for each in found
        },
    }
    columns = ["without", "accuracy", "points", "right only with", "only without", "changed"]
    rows = [
        [
            each.client,
            f"{each.right / total:.2%}",
            f"{100 * (each.right - right) / total:+.2f}",
            each.helped,
            each.harmed,
            each.changed,
        ]
        for each in found
    ]
    title = f"accuracy of all {len(found)} contributors: {right / total:.2%} of {total} queries"
    output.table(data, title, columns, rows)

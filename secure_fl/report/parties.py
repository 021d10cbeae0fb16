"""Who could learn what: parties against data, for the run at hand."""

from dataclasses import dataclass

COLUMNS = ("party", "records", "head", "query", "measures", "contribution", "answer")


@dataclass(frozen=True)
class Circumstances:
    """What changes the table.

    Attributes:
        private_heads: whether heads hold releases instead of records.
        record_epsilon: what the releases imply for a whole record, in words; "" without.
        aggregated: whether a trainer ran whose server saw sums.
        rule: "tournament", "paper", "masked" or "votes".
        queriers: who may ask over a network, by name.
    """

    private_heads: bool
    record_epsilon: str
    aggregated: bool
    rule: str
    queriers: tuple[str, ...] = ("querier",)


_ENCRYPTED = (
    "Answers tell about the records behind the heads. Encryption hides the computation and not"
    " the result.",
    "The evaluator learns the numbers of queries, contributors and classes, the contributors'"
    " names, the code width, sizes and times.",
    "Nothing is signed: send files over an authenticated channel.",
)
_MASKED = (
    "Answers tell about the records behind the heads, and under this rule more than a class: the"
    " smallest code of all. A distance of 0 says that a record like the query is there.",
    "No key opens a contribution. Of n contributors with the threshold t fewer than 2 t - n may"
    " tell querier and evaluator all that they know; by default a third of them.",
    "The evaluator learns the numbers of queries, contributors and classes, the contributors'"
    " names, the code width, who drops out, and times.",
    "On one machine (securefl infer) nothing is hidden from that machine; over the service the"
    " evaluator adds and the querier opens.",
)
_VOTES = (
    "An answer tells about records what its contributors' books of answers say, per record added or"
    " removed; a client has one vote a query, so the same holds for all its records at once.",
    *_MASKED[1:],
)


def access(case: Circumstances) -> list[tuple[str, ...]]:
    """One row a party, under `COLUMNS`; what a party holds by its role and could read with it."""
    head = "a noisy release" if case.private_heads else "yes, with the records in it"
    of_another = "no, unless handed over: a noisy release" if case.private_heads else "no"
    result = "class, and ties" if case.rule == "paper" else "class"
    pooled = "every contributor's codes" if case.rule == "paper" else "smallest code and its class"
    rows: list[tuple[str, ...]] = [
        ("a client, of its own", "yes", head, "yes, in the clear", "yes", "yes, before it", "no"),
        ("another client", "no", of_another, "yes, in the clear", "no", "no", "no"),
        *(_of_sums(case.rule) or _of_ciphertexts(pooled, result)),
        (
            "reader of this page",
            "no",
            "no",
            "no",
            "totals only, if a test file was given",
            "no",
            "no",
        ),
    ]
    if case.aggregated:
        rows.insert(2, ("aggregator of the trainer", "no", "sums over clients", *("no",) * 4))
    return rows


def _of_ciphertexts(pooled: str, result: str) -> list[tuple[str, ...]]:
    return [
        ("evaluator", "no", "no", "no", "no", "no: ciphertexts", "no: ciphertexts"),
        ("querier", "no", "no", "its own", "no", "if it is handed one", result),
        ("querier and evaluator together", "no", "no", "yes", pooled, "yes", result),
    ]


def _of_sums(rule: str) -> list[tuple[str, ...]]:
    """Of a rule without keys; empty for the others."""
    shown = {
        "masked": (
            "class and smallest code",
            "the smallest of all, its class",
            "the smallest of the others, its class",
        ),
        "votes": ("noisy votes", "noisy votes", "noisy votes of the others"),
    }
    if rule not in shown:
        return []
    result, smallest, of_others = shown[rule]
    return [
        ("evaluator", "no", "no", "no", "no", "no: masked", "no: masked"),
        ("querier", "no", "no", "its own", smallest, "no: masked", result),
        ("querier and evaluator together", "no", "no", "yes", smallest, "no: masked", result),
        (
            "these, with contributors below the bound",
            "no",
            "no",
            "yes",
            of_others,
            "no: masked",
            result,
        ),
    ]


def remarks(case: Circumstances) -> list[str]:
    """What the table cannot say."""
    found = [
        "Contributors see queries in the clear: each of them must fold the query.",
        *{"masked": _MASKED, "votes": _VOTES}.get(case.rule, _ENCRYPTED),
    ]
    if len(case.queriers) > 1:
        found.append(
            f"{len(case.queriers)} queriers may ask: {', '.join(case.queriers)}. Each reads its own"
            " answers; a contributor's limits are of all of them together, so those that pool what"
            " they know learn what one alone would."
        )
    if case.private_heads:
        found.insert(
            0,
            "A head holds the noisy release. Whoever gets it learns about a whole record at most"
            f" what this allows: {case.record_epsilon}.",
        )
    else:
        found.insert(0, "A head holds its client's records. It must never leave the client.")
    return found

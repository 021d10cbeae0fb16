"""What full runs say to the claims of kahm.txt, on the features that are at hand here."""

from collections.abc import Iterable

from benchmarks._harness import Table
from benchmarks._results import Result
from benchmarks._verdicts import NO_TABLE, Judge, Verdict, counted, mean_of

TEXTS, IMAGES = "test accuracy %, 20 Newsgroups", "test accuracy %, long-tailed CIFAR-10"
LINEAR = "a federated linear head"
HEAD, AVERAGED = "federation", "FedAvg, softmax loss, 50 rounds"
TAILED = "federation, N_b = {}, {}"
ALIKE = 1.0
"""Points: the largest difference between what is called robust, or alike."""
HIGH_PRIVACY = 3.0
"""The largest epsilon of what the paper calls a high-privacy regime."""
BITS = (8, 16)
"""Of table 6."""


def _row(table: Table | None, name: str) -> list[float | None]:
    """Means of a row that is named so; none where it is absent."""
    rows = [] if table is None else table.rows
    found = next((row for row in rows if row[0] == name), [])
    return [mean_of(cell) for cell in found[1:]]


def _data_of(table: Table) -> str:
    """The data set in a table's name."""
    return table.name.removeprefix("test accuracy %, ").partition(",")[0]


def _pairs(
    columns: Iterable[str], ours: Iterable[float | None], theirs: Iterable[float | None]
) -> list[tuple[str, bool]]:
    return [
        (column, a > b)
        for column, a, b in zip(columns, ours, theirs, strict=False)
        if a is not None and b is not None
    ]


def above_averaging(result: Result) -> Verdict:
    """Whether heads are above FedAvg's linear head on the same features and clients."""
    heads = next(
        (t for t in result.tables if t.name.startswith(TEXTS) and LINEAR not in t.name), None
    )
    rivals = next((t for t in result.tables if t.name.startswith(TEXTS) and LINEAR in t.name), None)
    images = result.table(IMAGES)
    cases = []
    if heads is not None:
        cases += _pairs(heads.columns[1:], _row(heads, HEAD), _row(rivals, AVERAGED))
    if images is not None:
        ours = _row(images, TAILED.format(20, "folding"))
        cases += _pairs(images.columns[1:], ours, _row(images, f"{LINEAR}: {AVERAGED}"))
    return counted(cases, "above FedAvg's linear head on the same features")


def robust_to_skew(result: Result) -> Verdict:
    """Whether accuracy stays within a point from alpha 5 to 0.1."""
    cases = []
    for table in result.tables:
        row = _row(table, HEAD) if LINEAR not in table.name else []
        known = [each for each in row if each is not None]
        if known:
            name = _data_of(table)
            cases.append(
                (f"{name} ({max(known) - min(known):.1f})", max(known) - min(known) <= ALIKE)
            )
    return counted(cases, f"within {ALIKE:g} point over alpha 5, 1 and 0.1")


def measures_alike(result: Result) -> Verdict:
    """Whether the four measures of eq. (102) are within a point of one another."""
    table = result.table(IMAGES)
    if table is None:
        return NO_TABLE
    names = ("folding", "product", "minimum", "maximum")
    rows = [_row(table, TAILED.format(20, name)) for name in names]
    cases = []
    for column, *cells in zip(table.columns[1:], *rows, strict=False):
        known = [each for each in cells if isinstance(each, float)]
        if len(known) == len(names):
            apart = max(known) - min(known)
            cases.append((f"{column} ({apart:.1f})", apart <= ALIKE))
    return counted(cases, f"four measures within {ALIKE:g} point")


def small_batches(result: Result) -> Verdict:
    """Whether smaller batches are better under a long tail."""
    table = result.table(IMAGES)
    if table is None:
        return NO_TABLE
    rows = [_row(table, TAILED.format(size, "folding")) for size in (20, 50, 100)]
    cases = [
        (str(column), a > b > c)
        for column, a, b, c in zip(table.columns[1:], *rows, strict=False)
        if isinstance(a, float) and isinstance(b, float) and isinstance(c, float)
    ]
    return counted(cases, "N_b = 20 above 50 above 100")


def smoothing_helps(method: str) -> Judge:
    """Whether smoothing gains accuracy at every epsilon of high privacy."""

    def judge(result: Result) -> Verdict:
        table = result.table(TEXTS)
        if table is None or method not in table.columns:
            return NO_TABLE
        plain, smoothed = table.columns.index("no smoothing"), table.columns.index(method)
        cases = []
        for row in table.rows:
            epsilon, before, after = (mean_of(row[i]) for i in (0, plain, smoothed))
            if epsilon is not None and epsilon <= HIGH_PRIVACY and None not in (before, after):
                cases += _pairs([f"epsilon {row[0]}"], [after], [before])
        return counted(cases, f"{method} above none at epsilon {HIGH_PRIVACY:g} or less")

    return judge


def codes_suffice(result: Result) -> Verdict:
    """Whether codes of 8 and of 16 bits are as accurate as the measures, to a tenth of a point."""
    cases = []
    for table in result.tables:
        exact = _row(table, HEAD)
        for bits in BITS:
            coded = _row(table, f"{bits}-bit codes on [0, 1]")
            for column, a, b in zip(table.columns[1:], exact, coded, strict=False):
                if a is not None and b is not None:
                    name = _data_of(table)
                    # Of means that are printed with one digit.
                    cases.append((f"{name}, {bits} bits, {column}", round(a - b, 6) <= 0.1))
    return counted(cases, "codes on [0, 1] within a tenth of a point of the measures")

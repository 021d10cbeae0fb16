"""What full runs say to the claims of fednewton.txt, and to its safeguard, which is ours."""

from benchmarks._harness import Table
from benchmarks._results import Result
from benchmarks._verdicts import NO_TABLE, Judge, Verdict, counted, grouped, mean_of, mostly

HEADS = "test accuracy in percent by round"
STEPS = "step size and damping"
PRINTED, GUARDED = "FedNewton as printed", "FedNewton, safeguard"
RIVALS = ("FedAvg", "FedProx", "FedSophia")
ERRORS, ACCURACIES = "mean squared test error", "test accuracy in percent"
"""Tables of FedNewton's figures 3 and 5: of the synthetic data, of MNIST."""


def rounds_of_table(at: int, method: str) -> Judge:
    """Whether a method's round is above DKRR, FedAvg as printed, and FedProx."""

    def judge(result: Result) -> Verdict:
        table = result.table("accuracy in percent")
        if table is None:
            return NO_TABLE
        once, place = table.columns.index("at once"), table.columns.index(f"round {at}")
        last = table.columns.index("round 8")
        cases = []
        for name, rows in grouped(table, ("data set",), "method").items():
            rivals = [
                mean_of(rows["DKRR"][once]),
                mean_of(rows["FedAvg, 2 steps"][last]),
                mean_of(rows["FedProx, exact local solutions"][last]),
            ]
            ours = mean_of(rows[method][place])
            known = [each for each in rivals if each is not None]
            cases.append((name, ours is not None and ours > max(known)))
        return counted(cases, f"{method}, round {at}, above DKRR, FedAvg and FedProx")

    return judge


def _better(name: str, a: float | None, b: float | None) -> bool:
    """Whether a mean in such a table is better than another."""
    return a is not None and b is not None and (a < b if name == ERRORS else a > b)


def sample_size(name: str) -> Judge:
    """Whether eight printed rounds help with few clients and hurt with many (figure 3)."""

    def judge(result: Result) -> Verdict:
        table = result.table(name)
        if table is None:
            return NO_TABLE
        hurt: list[int] = []
        helped: list[int] = []
        once, last = table.columns.index("at once"), table.columns.index("round 8")
        small = Table("", table.columns, [row for row in table.rows if row[0] == "3"])
        for clients, rows in grouped(small, ("clients",), "method").items():
            start, end = mean_of(rows["DKRR"][once]), mean_of(rows[PRINTED][last])
            (helped if _better(name, end, start) else hurt).append(int(clients))
        if not hurt or not helped:
            return Verdict("does not hold", "eight rounds help everywhere or nowhere")
        text = f"eight rounds help up to {max(helped)} clients and hurt from {min(hurt)} on"
        return Verdict("holds" if max(helped) < min(hurt) else "holds in part", text)

    return judge


def by_round(name: str, ours: str) -> Judge:
    """Whether eight rounds are better than DKRR, FedAvg and FedProx (figure 5)."""

    def judge(result: Result) -> Verdict:
        table = result.table(name)
        if table is None:
            return NO_TABLE
        once, last = table.columns.index("at once"), table.columns.index("round 8")
        figure = Table("", table.columns, [row for row in table.rows if row[0] == "5"])
        rows = grouped(figure, ("figure",), "method").get("5")
        if rows is None:
            return NO_TABLE
        end = mean_of(rows[ours][last])
        starts = {"DKRR": once, "FedAvg, 2 steps": last, "FedProx, exact local solutions": last}
        cases = [
            (rival, _better(name, end, mean_of(rows[rival][place])))
            for rival, place in starts.items()
        ]
        pooled = mean_of(
            next(row for method, row in rows.items() if method.startswith("pooled"))[once]
        )
        return counted(cases, f"round 8 at {end}, pooled {pooled}; better than rivals")

    return judge


def heads_by_round(ours: str) -> Judge:
    """Whether a head is above the rivals' after as many rounds (figure 6)."""

    def judge(result: Result) -> Verdict:
        table = result.table(HEADS)
        if table is None:
            return NO_TABLE
        columns = [name for name in table.columns if name.startswith("round ")]
        return counted(_above(table, ("data", "alpha"), ours, columns), _OF_HEADS.format(ours))

    return judge


def heads_by_second(ours: str) -> Judge:
    """Whether it is above them after most numbers of seconds (figure 7)."""

    def judge(result: Result) -> Verdict:
        cases: list[tuple[str, bool]] = []
        for table in result.tables:
            if table.name.endswith("by time"):
                columns = [name for name in table.columns if name.endswith(" s")]
                data = table.name.partition(":")[0]
                found = _above(table, ("alpha",), ours, columns)
                cases += [(f"{data}, {name}", held) for name, held in found]
        return mostly(cases, _OF_HEADS.format(ours))

    return judge


_OF_HEADS = "{} above FedAvg, FedProx and FedSophia"


def _above(
    table: Table, where: tuple[str, ...], ours: str, columns: list[str]
) -> list[tuple[str, bool]]:
    """Whether ours is above the best of the rivals, by setting and column."""
    cases = []
    for setting, rows in grouped(table, where, "method").items():
        own = next((row for method, row in rows.items() if method.startswith(ours)), None)
        if own is None:
            continue
        rivals = [rows[rival] for rival in RIVALS if rival in rows]
        for column in columns:
            place = table.columns.index(column)
            known = [score for row in rivals if (score := mean_of(row[place])) is not None]
            higher = _better(HEADS, mean_of(own[place]), max(known, default=None))
            cases.append((f"{setting}, {column}", higher))
    return cases


def step_sizes(result: Result) -> Verdict:
    """Whether a small step is slow, and a whole one with weak damping unstable (figure 11)."""
    table = result.table(STEPS)
    if table is None:
        return NO_TABLE
    last = table.columns.index("round 10")
    found = {(row[1], row[2]): mean_of(row[last]) for row in table.rows}
    best, weak = found.get((0.1, 1e-4)), 1e-4
    cases = [
        ("step 0.01 slower than 0.1", _better(HEADS, best, found.get((0.01, weak)))),
        ("step 1 worse than 0.1, damping 1e-4", _better(HEADS, best, found.get((1.0, weak)))),
    ]
    return counted(cases, f"step 0.1 with damping 1e-4 at {best} % after ten rounds")

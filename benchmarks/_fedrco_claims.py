"""What the paper of FedRCO says, and what full runs say to it by their cases."""

from dataclasses import dataclass

from benchmarks import _fedrco_compared as compared
from benchmarks._fedrco import ALONE, TUNED
from benchmarks._results import Result
from benchmarks._verdicts import NO_TABLE, Verdict, counted, left_out

SEEN = 25
"""Rounds of 2.5 inversion intervals: a run shows before them what its first batches are worth."""


@dataclass(frozen=True)
class Compared:
    """A claim.

    Attributes:
        number: table or figure of fedrco.txt that it rests on, unique with what follows the comma.
        text: the claim.
        study: whose cases judge it; "" for those of fedrco_tables.
        rival: the method that FedRCO is compared with.
        what: compares better.
        test: of the networks' tests, the one that shows that it is the paper's algorithm.
        sampled: whether the cases differ by seed, and are tested where there are several.
    """

    number: str
    text: str
    study: str
    rival: str
    what: str
    test: str = "test_second_order.py"
    sampled: bool = False

    @property
    def benchmark(self) -> str:
        """Whose runs judge it."""
        return "fedrco_studies" if self.study else "fedrco_tables"

    @property
    def runs(self) -> str:
        """The method whose runs the rival is of."""
        return "FedAvg" if self.rival == TUNED else self.rival

    def judge(self, result: Result) -> Verdict:
        """What the cases of a full run say; see `Gain.better` for one."""
        table = result.table(compared.TABLE)
        if table is None or table.columns != compared.COLUMNS:
            return NO_TABLE
        if not self.study and result.parameters.get("search") != "intervals":
            return Verdict("not judged", "its rates were searched over less than 2.5 T_inv")
        rows = [row for row in table.rows if row[0] == self.number]
        seen = [row for row in rows if int(str(row[2])) >= SEEN]
        what = self.what + (_by({int(str(row[3])) for row in seen}) if self.sampled else "")
        found = counted([(str(row[1]), row[7] is True) for row in seen], what)
        short = [str(row[1]) for row in rows if row not in seen]
        return left_out(found, short, "ended before 2.5 T_inv")


def _by(seeds: set[int]) -> str:
    """How cases of so many seeds were told apart."""
    if seeds <= {1}:
        return ", one seed and no test,"
    return f", {' or '.join(map(str, sorted(seeds)))} seeds, p < 0.05,"


_OWN = "personal models above {} on the clients' own mixes"
_RIVALS = {
    "FedAvg": "FedAvg's global model",
    TUNED: "FedAvg tuned at every client",
    ALONE: "what clients reach alone",
}
_STUDIES = (
    ("table 2", "clients", "with 10, 50 and 100 of them"),
    ("table 2", "participation", "whatever the participation, from 0.1 to 1"),
    ("figure 12", "partitions", "on every partition"),
    ("figure 20", "cifar10", "on CIFAR-10 (here: features of it)"),
)

TABLE_1 = tuple(
    Compared(
        f"table 1, {rival}",
        f"The clients' models of FedRCO are more accurate than {name}.",
        "",
        rival,
        _OWN.format(rival),
        sampled=True,
    )
    for rival, name in _RIVALS.items()
)

COMPARED = (
    *TABLE_1,
    *(
        Compared(
            f"{number}, {study}, {rival}",
            f"The clients' models of FedRCO are more accurate than {_RIVALS[rival]}, {where}.",
            study,
            rival,
            _OWN.format(rival),
            sampled=True,
        )
        for number, study, where in _STUDIES
        for rival in (("FedAvg", TUNED) if study == "participation" else _RIVALS)
    ),
    Compared(
        "figure 4",
        "The monitor keeps the steps in a bounded range that they leave without it.",
        "gradients",
        "FedRCO, no monitor",
        "largest step applied smaller than without the monitor",
        "test_trajectory.py",
    ),
    Compared(
        "figure 2",
        "Communication takes a smaller share of FedRCO's time than of FedAvg's.",
        "communication",
        "FedAvg",
        "share of communication smaller than FedAvg's",
    ),
)

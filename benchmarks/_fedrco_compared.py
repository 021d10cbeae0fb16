"""What the papers say that the studies of FedRCO judge; each claim is a row of cases of a run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Compared:
    """A claim.

    Attributes:
        number: table or figure of fedrco.txt that it rests on, unique with what follows the comma.
        text: the claim.
        study: whose cases judge it.
        rival: the method that FedRCO is compared with.
        what: compares better.
        test: of the networks' tests, the one that shows that it is the paper's algorithm.
    """

    number: str
    text: str
    study: str
    rival: str
    what: str
    test: str = "test_second_order.py"


_OWN = "personal models above {} on the clients' own mixes"
_STUDIES = (
    ("table 2", "clients", "with 10, 50 and 100 of them"),
    ("table 2", "participation", "whatever the participation, from 0.1 to 1"),
    ("figure 12", "partitions", "on every partition"),
    ("figure 20", "cifar10", "on CIFAR-10 (here: features of it)"),
)

COMPARED = (
    *(
        Compared(
            f"{number}, {study}, {rival}",
            f"The clients' models of FedRCO are more accurate than {name}, {where}.",
            study,
            rival,
            _OWN.format(rival),
        )
        for number, study, where in _STUDIES
        for rival, name in (
            ("FedAvg", "FedAvg's global model"),
            ("FedAvg, tuned", "FedAvg tuned at every client"),
        )
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

TABLE = "what is compared for the papers' claims"
COLUMNS = ("claim", "setting", "rounds", "FedRCO", "the other", "better")

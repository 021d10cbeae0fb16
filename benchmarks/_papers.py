"""Figures printed in the papers, to stand beside what is measured here; never a result of ours.

Each table names its paper and number. They were measured on other machines, and mostly with other
encoders, features and splits than ours; `setting` says how.
"""

from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = str | int | float | None

KAHM = "Kumar et al., operator-theoretic gradient-free federated learning"
FEDNEWTON = "FedNewton: statistical optimality of Newton-type federated learning"
FEDAVGR = "Wei et al., FedAvgR"
FEDNL = "Safaryan et al., FedNL"
FEDRCO = "FedRCO, robust second-order federated learning"


@dataclass(frozen=True)
class PaperTable:
    """One table of a paper.

    Attributes:
        benchmark: module that measures the same question.
        beside: start of the name of the measured table that it stands beside; "" for none.
        paper: whose.
        number: where in the paper.
        setting: how theirs differs from ours.
        columns: names.
        rows: one cell a column.
    """

    benchmark: str
    beside: str
    paper: str
    number: str
    setting: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


PAPER_TABLES = (
    PaperTable(
        "kahm_accuracy",
        "test accuracy %, 20 Newsgroups",
        KAHM,
        "Table 1",
        "20Newsgroup, 100 clients, N_b = 100, 1,024 features of mxbai-embed-large, a larger"
        " encoder than ours",
        ("method", "alpha 5", "alpha 1", "alpha 0.1"),
        (
            ("SFM (proposed)", 85.3, 84.7, 84.7),
            ("Adapter", 69.1, 65.5, 56.1),
            ("LoRA", 69.5, 67.7, 56.6),
            ("Compacter", 65.9, 62.8, 50.1),
            ("Prompt-tuning", 51.6, 46.4, 28.2),
            ("BitFit", 67.1, 66.5, 55.1),
            ("AdaMix", 68.7, 65.3, 54.5),
            ("C2A", 71.6, 70.4, 61.0),
        ),
    ),
    PaperTable(
        "kahm_accuracy",
        "test accuracy %, long-tailed CIFAR-10",
        KAHM,
        "Table 2",
        "CIFAR-10-LT, 20 clients, N_b = 20, ResNet-50 features of the lossless images",
        ("method", "rho 10", "rho 50", "rho 100"),
        (
            ("SFM (proposed)", 87.95, 83.86, 80.99),
            ("FedAvg", 77.45, 59.36, 56.17),
            ("FedAvgM", 70.81, 57.11, 52.03),
            ("FedProx", 76.53, 60.89, 56.92),
            ("FedDF", 76.51, 58.74, 55.15),
            ("FedBE", 77.78, 59.55, 55.79),
            ("CCVR", 78.48, 71.89, 69.53),
            ("FedNova", 77.79, 63.91, 57.79),
            ("Fed-Focal Loss", 73.74, 57.42, 53.83),
            ("Ratio Loss", 78.14, 64.77, 59.75),
            ("FedAvg + tau-norm", 72.08, 51.41, 49.95),
            ("CREFF", 80.71, 73.08, 70.55),
        ),
    ),
    PaperTable(
        "kahm_accuracy",
        "test accuracy %, long-tailed CIFAR-10",
        KAHM,
        "Table 7",
        "CIFAR-100-LT (ours is CIFAR-10-LT): only the differences between the options compare",
        ("measure, option of eq. (102)", "rho 10", "rho 50", "rho 100"),
        (
            ("SFM-1", 64.98, 50.92, 46.16),
            ("SFM-2", 65.01, 50.92, 46.17),
            ("SFM-3", 65.01, 50.92, 46.17),
            ("SFM-4", 64.71, 50.14, 45.58),
        ),
    ),
    PaperTable(
        "kahm_accuracy",
        "test accuracy %, long-tailed CIFAR-10",
        KAHM,
        "Table 9",
        "CIFAR-100-LT (ours is CIFAR-10-LT): only the order of the batch sizes compares",
        ("N_b", "rho 10", "rho 50", "rho 100"),
        ((20, 64.98, 50.92, 46.16), (50, 58.17, 44.77, 41.34), (100, 54.32, 42.07, 38.93)),
    ),
    PaperTable(
        "privacy_utility",
        "test accuracy %, 20 Newsgroups",
        KAHM,
        "Table 5",
        "20Newsgroup, alpha 0.1, delta 1e-5 per element; smoothing with the paper's own choice of"
        " passes, which looks at the private matrix; 1,024 features of mxbai-embed-large",
        ("epsilon per element", "not smoothed", "smoothed"),
        (
            ("1", 69.46, 70.03),
            ("1.5", 74.03, 74.55),
            ("2", 78.52, 78.89),
            ("3", 78.89, 79.22),
            ("5", 80.88, 81.35),
            ("8", 83.05, 82.97),
        ),
    ),
    PaperTable(
        "fhe",
        "primitives on pairs",
        KAHM,
        "Table 6",
        "TFHE-rs on an iMac (M1, 8 GB), failure at most 2^-128; another library and processor",
        ("bits", "minimum, ms", "equality, ms", "20Newsgroup accuracy %"),
        ((8, 101, 44, 84.75), (16, 195, 82, 84.75)),
    ),
    PaperTable(
        "fednewton_tables",
        "accuracy in percent",
        FEDNEWTON,
        "Table 4",
        "other draws of random features and partitions; mean ± deviation of trials",
        ("data set", "DKRR", "FedAvg", "FedProx", "#1", "#2", "#4", "#8"),
        (
            (
                "dna",
                "90.91±0.50",
                "91.09±0.42",
                "89.42±6.98",
                "92.23±0.53",
                "91.96±0.48",
                "92.02±0.40",
                "88.19±11.58",
            ),
            (
                "letter",
                "77.18±0.12",
                "77.11±0.17",
                "77.17±0.12",
                "77.30±0.12",
                "77.30±0.12",
                "77.30±0.12",
                "77.30±0.12",
            ),
            (
                "pendigits",
                "97.12±0.09",
                "97.12±0.11",
                "97.12±0.10",
                "97.29±0.13",
                "97.31±0.10",
                "97.31±0.11",
                "97.23±0.31",
            ),
            (
                "satimage",
                "87.70±0.17",
                "87.84±0.08",
                "87.74±0.11",
                "88.49±0.19",
                "88.26±0.17",
                "88.31±0.14",
                "88.31±0.15",
            ),
            (
                "Sensorless",
                "96.81±0.12",
                "96.87±0.14",
                "96.84±0.13",
                "97.32±0.11",
                "96.87±0.14",
                "96.44±0.17",
                "84.43±1.20",
            ),
            (
                "shuttle",
                "98.46±0.06",
                "98.53±0.08",
                "98.51±0.07",
                "98.54±0.07",
                "98.51±0.07",
                "98.50±0.07",
                "98.44±0.16",
            ),
            (
                "usps",
                "92.95±0.10",
                "92.95±0.12",
                "92.95±0.12",
                "93.49±0.18",
                "93.24±0.13",
                "93.28±0.14",
                "93.30±0.15",
            ),
            (
                "mnist",
                "95.38±0.12",
                "95.40±0.13",
                "95.46±0.11",
                "95.53±0.13",
                "95.48±0.13",
                "95.49±0.13",
                "95.48±0.12",
            ),
        ),
    ),
    PaperTable(
        "head_tuning",
        "test accuracy in percent by round",
        FEDNEWTON,
        "Table 5",
        "MNIST on ResNet-18's features (ours: pixels), the mean of the last 5 of 50 rounds",
        ("alpha", "FedAvg", "FedProx", "FedSophia", "FedNew", "FedNewton"),
        (
            ("0.1", "85.27±0.69", "85.49±0.63", "89.37±0.96", "89.30±1.04", "94.50±0.71"),
            ("0.5", "93.60±0.31", "93.56±0.30", "93.82±0.36", "93.78±0.37", "97.82±0.06"),
            ("10", "94.79±0.04", "94.71±0.05", "94.37±0.05", "94.32±0.05", "97.86±0.03"),
        ),
    ),
    PaperTable(
        "head_tuning",
        "five solvers",
        FEDNEWTON,
        "Table 9",
        "CIFAR-10 on ResNet-18's features, rounds and seconds to 88 %, on a graphics card",
        ("solver", "best accuracy", "rounds", "seconds"),
        (
            ("L-BFGS", "71.41±7.40", ">Max", "1263±547"),
            ("Low-Rank", "76.35±0.03", ">Max", "5430±324"),
            ("CG", "86.90±0.05", ">Max", "5860±93"),
            ("Exact Hessian", "88.15±0.09", "30.0", "2939±1011"),
        ),
    ),
    PaperTable(
        "fedavgr_tables",
        "regularisers one by one",
        FEDAVGR,
        "Table 2",
        "random Fourier features, 250 rounds of 10 epochs",
        ("data set", "none", "trace norm", "feature norm", "MMD", "all"),
        (
            ("svmguide1", "89.05", "89.20", "89.45", "89.61", "90.70"),
            ("vehicle", "77.12", "77.17", "77.17", "77.46", "78.32"),
            ("dna", "95.33", "95.52", "95.36", "95.45", "95.70"),
            ("pendigits", "95.70", "95.71", "95.74", "95.94", "95.90"),
            ("usps", "94.57", "94.72", "94.82", "94.80", "94.82"),
        ),
    ),
    PaperTable(
        "fedavgr_synthetic",
        "regularisers one by one",
        FEDAVGR,
        "Table 2",
        "another draw of the synthetic set, (u, v) = (0.5, 0.5), 250 rounds",
        ("data set", "none", "trace norm", "feature norm", "MMD", "all"),
        (("synthetic", "95.82", "96.07", "96.06", "96.12", "96.23"),),
    ),
    PaperTable(
        "fedavgr_tables",
        "test accuracy in percent",
        FEDAVGR,
        "Table 3",
        "random Fourier features, 2 shards a client, 300 rounds of 10 epochs, 10 seeds",
        ("data set", "OneShot", "FedAvg", "FedProx", "FL+HC", "FedAvgR"),
        (
            ("a1a", "76.86±0.30", "84.29±0.06", "84.27±0.06", "81.63±0.94", "84.30±0.06"),
            ("svmguide1", "71.50±4.21", "90.95±0.86", "91.19±0.84", "85.66±4.48", "91.77±1.01"),
            ("splice", "75.95±4.56", "90.37±0.21", "90.38±0.20", "85.12±2.14", "90.40±0.26"),
            ("vehicle", "52.31±4.36", "78.61±1.08", "78.58±1.06", "62.24±8.12", "78.82±0.98"),
            ("dna", "63.73±1.02", "95.23±0.17", "95.18±0.21", "92.09±3.25", "95.59±0.23"),
            ("pendigits", "46.70±2.32", "94.87±0.58", "94.85±0.59", "86.81±4.58", "95.12±0.48"),
            ("satimage", "73.07±2.39", "88.83±0.41", "88.46±0.31", "76.72±2.96", "88.93±0.39"),
            ("usps", "56.83±4.06", "94.57±0.15", "94.53±0.13", "88.03±3.62", "94.80±0.19"),
            ("MNIST", "68.80±2.06", "97.26±0.09", "97.24±0.07", "85.13±2.23", "97.34±0.06"),
        ),
    ),
    PaperTable(
        "fedrco_tables",
        "",
        FEDRCO,
        "Table 1",
        "CIFAR-10, 100 clients, participation 0.8; accuracy averaged over the participating"
        " clients' own models, on a graphics card",
        (
            "method",
            "alpha 0.1",
            "alpha 0.5",
            "alpha 1",
            "2 labels a client",
            "5 labels a client",
            "IID",
        ),
        (
            ("FedAvg", 0.563, 0.620, 0.632, 0.537, 0.601, 0.650),
            ("FedProx", 0.553, 0.628, 0.637, 0.530, 0.616, 0.631),
            ("FedAdam", 0.557, 0.639, 0.610, 0.439, 0.623, 0.619),
            ("FedAvgM", 0.556, 0.614, 0.635, 0.530, 0.607, 0.658),
            ("LocalNewton", 0.509, 0.613, 0.621, 0.492, 0.598, 0.626),
            ("FedPM", 0.547, 0.602, 0.620, 0.518, 0.603, 0.635),
            ("FedRCO-ori", 0.695, 0.713, 0.727, 0.612, 0.712, 0.725),
            ("FedRCO", 0.788, 0.742, 0.730, 0.753, 0.751, 0.719),
        ),
    ),
    PaperTable(
        "fedrco_studies",
        "clients: accuracy",
        FEDRCO,
        "Table 2",
        "CIFAR-10, Dirichlet 0.1; participation 0.8 for the number of clients, 100 clients for the"
        " participation; accuracy averaged over the participating clients' own models",
        (
            "method",
            "10 clients",
            "50 clients",
            "100 clients",
            "participation 0.1",
            "participation 0.5",
            "participation 1",
        ),
        (
            ("FedAvg", 0.539, 0.521, 0.563, 0.538, 0.576, 0.565),
            ("FedProx", 0.557, 0.573, 0.553, 0.540, 0.575, 0.554),
            ("FedAdam", 0.456, 0.539, 0.557, 0.397, 0.549, 0.525),
            ("FedAvgM", 0.517, 0.570, 0.556, 0.555, 0.559, 0.551),
            ("LocalNewton", 0.495, 0.559, 0.509, 0.512, 0.534, 0.538),
            ("FedPM", 0.539, 0.507, 0.547, 0.546, 0.551, 0.543),
            ("FedRCO-ori", 0.622, 0.609, 0.695, 0.650, 0.675, 0.662),
            ("FedRCO", 0.743, 0.786, 0.788, 0.630, 0.737, 0.764),
        ),
    ),
)
"""FedNL prints curves and no table of results; nothing is read off a curve here."""


def tables_of(benchmark: str) -> tuple[PaperTable, ...]:
    """The tables that stand beside a benchmark's own."""
    return tuple(each for each in PAPER_TABLES if each.benchmark == benchmark)

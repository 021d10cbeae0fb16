"""Every table and figure of the five papers: what measures it here, and what is not, and why."""

from dataclasses import dataclass
from typing import Literal

from benchmarks._papers import FEDAVGR, FEDNEWTON, FEDNL, FEDRCO, KAHM


@dataclass(frozen=True)
class Place:
    """A table or figure, or several in a row of which the same holds.

    Attributes:
        paper: whose.
        kind: of all of them.
        first: number of the first.
        last: of the last.
        benchmark: the module that measures it; "" for none.
        absent: what is not measured here, and why; "" where all of it is.
        also: another module, that measures a part of it; "" for none.
    """

    paper: str
    kind: Literal["table", "figure"]
    first: int
    last: int
    benchmark: str
    absent: str
    also: str = ""

    @property
    def measured_by(self) -> str:
        """The modules that do; "" for none."""
        return ", ".join(filter(None, (self.benchmark, self.also)))

    @property
    def name(self) -> str:
        """Such as "table 4" or "figures 6 to 16"."""
        if self.first == self.last:
            return f"{self.kind} {self.first}"
        return f"{self.kind}s {self.first} to {self.last}"


def _table(paper: str, number: int, benchmark: str, absent: str, last: int = 0) -> Place:
    return Place(paper, "table", number, last or number, benchmark, absent)


def _figure(paper: str, number: int, benchmark: str, absent: str, last: int = 0) -> Place:
    return Place(paper, "figure", number, last or number, benchmark, absent)


_DRAWING = "a drawing of the method: nothing to measure"
_THEORY = "a summary of what is proved: nothing to measure"
_NOTATION = "notation: nothing to measure"
_XGLUE = "XGLUE-NC is not at hand"
_CIFAR_100 = "CIFAR-100 is not at hand; the same is asked of long-tailed CIFAR-10"
_BACKBONE = (
    "features of its backbones, and Fashion-MNIST, CIFAR-10 and -100 images, are not at hand"
)
_HEADS = f"{_BACKBONE}; ours are heads on MNIST's pixels and on embeddings of 20 Newsgroups"
_CARD = "; its seconds and memory are a graphics card's"
_FEDNL_SETS = "panels on w7a and madelon: data sets that are not at hand"
_DAYS = "100 clients and 1,600 rounds are days on two cores"
_IMAGES = f"EMNIST and CIFAR-10 images are not at hand, and {_DAYS}; ours is MNIST, fewer rounds"

PLACES = (
    _table(KAHM, 1, "kahm_accuracy", "its larger encoder, and its peers, which fine-tune encoders"),
    _table(
        KAHM,
        2,
        "kahm_accuracy",
        "ResNet-50 features of the lossless images are not at hand; its peers fine-tune networks",
    ),
    _table(KAHM, 3, "", _XGLUE),
    _table(KAHM, 4, "", "CIFAR-100 is not at hand"),
    _table(KAHM, 5, "privacy_utility", f"{_XGLUE}; 20 Newsgroups has a smaller encoder's features"),
    Place(
        KAHM,
        "table",
        6,
        6,
        "fhe",
        f"TFHE-rs on an M1 is another library and processor; {_XGLUE}",
        "kahm_accuracy",
    ),
    _table(KAHM, 7, "kahm_accuracy", _CIFAR_100),
    _table(KAHM, 8, "", f"{_XGLUE}; the options are compared on CIFAR-10, beside table 7"),
    _table(KAHM, 9, "kahm_accuracy", _CIFAR_100),
    _table(KAHM, 10, "", f"{_XGLUE}, nor are its two encoders"),
    _figure(KAHM, 1, "", _DRAWING),
    _figure(KAHM, 2, "folding", "its own points: ours are an arc and a cloud", last=3),
    _figure(KAHM, 4, "", _DRAWING),
    _table(FEDNEWTON, 1, "", _THEORY),
    _table(FEDNEWTON, 2, "", _THEORY),
    _table(FEDNEWTON, 3, "", "data sets and settings, which fednewton_tables takes"),
    _table(FEDNEWTON, 4, "fednewton_tables", "letter, Sensorless and shuttle: sets not at hand"),
    _table(FEDNEWTON, 5, "head_tuning", _HEADS),
    _table(FEDNEWTON, 6, "head_tuning", _HEADS + _CARD),
    _table(FEDNEWTON, 7, "", "a list of backbones: nothing to measure"),
    _table(FEDNEWTON, 8, "", _BACKBONE + _CARD),
    _table(FEDNEWTON, 9, "head_tuning", _HEADS + _CARD, last=10),
    _figure(FEDNEWTON, 1, "", _DRAWING),
    _figure(FEDNEWTON, 2, "partitions", "its draw of the partition: ours is another"),
    Place(FEDNEWTON, "figure", 3, 3, "fednewton_synthetic", "", "fednewton_mnist"),
    _figure(FEDNEWTON, 4, "fednewton_synthetic", ""),
    Place(FEDNEWTON, "figure", 5, 5, "fednewton_synthetic", "", "fednewton_mnist"),
    _figure(FEDNEWTON, 6, "head_tuning", _HEADS),
    _figure(FEDNEWTON, 7, "head_tuning", _HEADS + _CARD),
    _figure(FEDNEWTON, 8, "", _BACKBONE),
    _figure(FEDNEWTON, 9, "head_tuning", _HEADS + _CARD, last=10),
    _figure(FEDNEWTON, 11, "head_tuning", f"ResNet-18's features: ours are MNIST's pixels{_CARD}"),
    _table(FEDAVGR, 1, "", "data sets; vehicle has 346 test records, not 446"),
    Place(FEDAVGR, "table", 2, 2, "fedavgr_tables", "", "fedavgr_synthetic"),
    _table(FEDAVGR, 3, "fedavgr_tables", ""),
    _figure(FEDAVGR, 1, "", _DRAWING),
    _figure(FEDAVGR, 2, "fedavgr_synthetic", ""),
    _table(FEDNL, 1, "", _THEORY, last=5),
    _table(FEDNL, 6, "", "data sets and cuts, which the benchmarks take"),
    _table(FEDNL, 7, "", _NOTATION),
    _figure(FEDNL, 1, "fednl_figures", _FEDNL_SETS),
    _figure(FEDNL, 2, "fednl_variants", _FEDNL_SETS, last=6),
    _figure(FEDNL, 7, "fednl_peers", _FEDNL_SETS),
    _figure(FEDNL, 8, "fednl_variants", _FEDNL_SETS),
    _figure(FEDNL, 9, "fednl_peers", _FEDNL_SETS),
    _figure(FEDNL, 10, "fednl_figures", _FEDNL_SETS, last=12),
    _figure(FEDNL, 13, "fednl_figures", ""),
    _figure(FEDNL, 14, "", _DRAWING),
    _table(
        FEDRCO,
        1,
        "fedrco_tables",
        f"{_IMAGES}; Dirichlet 0.5 and 1, 5 labels and IID are in fedrco_studies",
    ),
    _table(FEDRCO, 2, "fedrco_studies", _IMAGES),
    _table(FEDRCO, 3, "", _NOTATION),
    _figure(FEDRCO, 1, "fedrco_tables", _IMAGES),
    _figure(
        FEDRCO,
        2,
        "fedrco_studies",
        "its line and graphics card: bytes are metered, and the share is of lines of 10 to 1,000"
        " Mbit/s; accuracy by seconds is in fedrco_tables",
    ),
    _figure(FEDRCO, 3, "fedrco_tables", _IMAGES),
    _figure(FEDRCO, 4, "fedrco_studies", f"{_IMAGES}; rates are the searched one and twice it"),
    _figure(FEDRCO, 5, "partitions", "ours are partitions of handwritten digits"),
    _figure(
        FEDRCO,
        6,
        "fedrco_studies",
        f"EMNIST is not at hand, and {_DAYS}; ours is MNIST, fewer rounds, partitions by 10"
        " clients",
        last=16,
    ),
    _figure(
        FEDRCO,
        17,
        "fedrco_studies",
        f"CIFAR-10 images are not at hand, and {_DAYS}; ours are features of the long-tailed set at"
        " figure 20's setting",
        last=26,
    ),
)
"""By paper, tables before figures."""

"""What the papers claim, and what saved full runs say to it: one line a claim, of tables alone.

A claim is judged by the figures of a full run or not at all; a short one (`--quick`) judges none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks import _fedavgr_claims as fedavgr
from benchmarks import _fednewton_claims as newton
from benchmarks import _fednl_claims as fednl
from benchmarks import _fedrco_claims as fedrco
from benchmarks import _kahm_claims as kahm
from benchmarks._papers import FEDAVGR, FEDNEWTON, FEDNL, FEDRCO, KAHM
from benchmarks._results import Result
from benchmarks._verdicts import Judge, Verdict

OURS = "ours"
"""In the place of a paper: a claim that goes beyond it, of what follows no paper."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        paper: whose.
        number: table, figure or theorem that it rests on.
        text: the claim.
        benchmark: module whose tables judge it.
        test: file whose tests show that the algorithm is the paper's.
        judge: makes the verdict of a full run.
    """

    paper: str
    number: str
    text: str
    benchmark: str
    test: str
    judge: Judge


_LINEAR = "tests/secure_fl/trainers/linear"
_FEDNL = "tests/secure_fl/trainers/fednl"
_NETWORKS = "tests/secure_fl/trainers/networks"

_REGRESSION = "tests/secure_fl/objectives/test_regression.py"
_BY_ROUND = (
    (
        FEDNEWTON,
        "figure 5",
        "Eight rounds on unequal clients are better than DKRR, FedAvg and FedProx, on {}.",
        newton.PRINTED,
    ),
    (
        OURS,
        "-",
        "Eight rounds with the safeguard are better than DKRR, FedAvg and FedProx, on {}.",
        newton.GUARDED,
    ),
)

_FEDAVGR_RUNS = ("fedavgr_tables", "fedavgr_synthetic")

_HEADS = (
    (
        FEDNEWTON,
        "figure 6, table 5",
        "A linear head by FedNewton is more accurate than the rivals' after as many rounds.",
        newton.heads_by_round(newton.PRINTED),
    ),
    (
        FEDNEWTON,
        "figure 7",
        "A linear head by FedNewton is more accurate than the rivals' at most points of time.",
        newton.heads_by_second(newton.PRINTED),
    ),
    (
        FEDNEWTON,
        "figure 11",
        "Steps of 0.01 are slow, and whole ones with a damping of 1e-4 unstable; 0.1 is neither.",
        newton.step_sizes,
    ),
    (
        OURS,
        "-",
        "With safeguard and memory it is more accurate than the rivals' after as many rounds.",
        newton.heads_by_round("FedNewton, safeguard, memory"),
    ),
    (
        OURS,
        "-",
        "By L-BFGS on the server it is more accurate than the rivals' at most points of time.",
        newton.heads_by_second("L-BFGS"),
    ),
)
_RULE = "tests/kahm/test_rule_batches_bounds.py"

CLAIMS = (
    *(
        Claim(KAHM, number, text, "kahm_accuracy", _RULE, judge)
        for number, text, judge in (
            (
                "table 1, table 2, Q1",
                "Heads are more accurate than gradient-based federated learning (here: FedAvg of"
                " a linear head on the same features).",
                kahm.above_averaging,
            ),
            (
                "table 1, Q1",
                "The accuracy of heads is robust to label skew.",
                kahm.robust_to_skew,
            ),
            (
                "table 7, Q4",
                "The accuracy of heads hardly depends on the measure of eq. (102).",
                kahm.measures_alike,
            ),
            (
                "table 9, Q4",
                "Smaller batches are better under a long tail.",
                kahm.small_batches,
            ),
            (
                "table 6, Q3",
                "Codes of 8 and of 16 bits cost no accuracy.",
                kahm.codes_suffice,
            ),
        )
    ),
    *(
        Claim(paper, number, text, "privacy_utility", "tests/dp/test_smoothing.py", judge)
        for paper, number, text, judge in (
            (
                KAHM,
                "table 5, Q2",
                "Smoothing gains accuracy at epsilon 3 or less (its choice of passes looks at the"
                " private matrix: no guarantee).",
                kahm.smoothing_helps("oracle (no guarantee)"),
            ),
            (
                OURS,
                "-",
                "Smoothing gains accuracy at epsilon 3 or less where its choice looks at the noisy"
                " matrix alone.",
                kahm.smoothing_helps("default smoothing"),
            ),
        )
    ),
    Claim(
        FEDNEWTON,
        "table 4",
        "One round of FedNewton is more accurate than DKRR, FedAvg and FedProx.",
        "fednewton_tables",
        f"{_LINEAR}/test_fednewton.py",
        newton.rounds_of_table(1, newton.PRINTED),
    ),
    Claim(
        FEDNEWTON,
        "table 4",
        "Eight rounds of FedNewton are more accurate than DKRR, FedAvg and FedProx.",
        "fednewton_tables",
        f"{_LINEAR}/test_fednewton.py",
        newton.rounds_of_table(8, newton.PRINTED),
    ),
    Claim(
        OURS,
        "-",
        "Eight rounds with the safeguard are more accurate than DKRR, FedAvg and FedProx.",
        "fednewton_tables",
        f"{_LINEAR}/test_fednewton.py",
        newton.rounds_of_table(8, newton.GUARDED),
    ),
    *(
        Claim(paper, number, text, "head_tuning", f"{_LINEAR}/test_head.py", judge)
        for paper, number, text, judge in _HEADS
    ),
    Claim(
        FEDNEWTON,
        "figure 3, theorem 3",
        "On synthetic data rounds help where a client has records enough, and hurt where it has"
        " not.",
        "fednewton_synthetic",
        _REGRESSION,
        newton.sample_size(newton.ERRORS),
    ),
    Claim(
        FEDNEWTON,
        "figure 3, theorem 3",
        "On MNIST rounds help where a client has records enough, and hurt where it has not.",
        "fednewton_mnist",
        f"{_LINEAR}/test_fednewton.py",
        newton.sample_size(newton.ACCURACIES),
    ),
    *(
        Claim(paper, number, text.format(data), benchmark, test, newton.by_round(name, method))
        for data, benchmark, name, test in (
            ("synthetic data", "fednewton_synthetic", newton.ERRORS, _REGRESSION),
            ("MNIST", "fednewton_mnist", newton.ACCURACIES, f"{_LINEAR}/test_fednewton.py"),
        )
        for paper, number, text, method in _BY_ROUND
    ),
    Claim(
        FEDAVGR,
        "table 3",
        "FedAvgR is more accurate than FedAvg on label shards.",
        "fedavgr_tables",
        f"{_NETWORKS}/test_averaging.py",
        fedavgr.regularised,
    ),
    *(
        Claim(FEDAVGR, "table 2", text, benchmark, f"{_NETWORKS}/test_averaging.py", judge)
        for benchmark in _FEDAVGR_RUNS
        for text, judge in (
            ("Every regulariser alone is more accurate than none.", fedavgr.each_alone),
            ("All three together are more accurate than each alone.", fedavgr.all_best),
        )
    ),
    Claim(
        FEDAVGR,
        "figure 2",
        "The clients' features come nearer to one another as FedAvgR trains.",
        "fedavgr_synthetic",
        f"{_NETWORKS}/test_averaging.py",
        fedavgr.comes_nearer,
    ),
    Claim(
        FEDAVGR,
        "figure 2",
        "It is the MMD that brings them nearer: FedAvg leaves them further apart.",
        "fedavgr_synthetic",
        f"{_NETWORKS}/test_averaging.py",
        fedavgr.ends_nearer(fedavgr.OF_THE_PAPER, "distance"),
    ),
    Claim(
        OURS,
        "-",
        "The MMD by class brings features of one class nearer than FedAvg does.",
        "fedavgr_synthetic",
        f"{_NETWORKS}/test_class_mmd.py",
        fedavgr.ends_nearer(fedavgr.BY_CLASS_ALONE, "within classes"),
    ),
    *(
        Claim(
            OURS,
            "-",
            "FedAvgR is more accurate with the MMD by class than with the plain one.",
            benchmark,
            f"{_NETWORKS}/test_class_mmd.py",
            fedavgr.class_better,
        )
        for benchmark in _FEDAVGR_RUNS
    ),
    *(
        Claim(
            FEDNL,
            "figure 1, 10 to 13",
            f"{each.text}.",
            "fednl_figures",
            f"{_FEDNL}/test_trajectories.py",
            fednl.fewest(each),
        )
        for each in fednl.FIGURE_1
    ),
    Claim(
        FEDNL,
        "figure 7",
        "FedNL-BC needs fewer bits than DORE by orders of magnitude (judged: a hundredth).",
        "fednl_peers",
        f"{_FEDNL}/test_peers.py",
        fednl.fewer_bits("FedNL-BC, Top-d", "DORE", 100.0),
    ),
    *(
        Claim(
            FEDNL,
            f"figure {figure.partition(',')[0]}",
            text,
            "fednl_variants",
            f"{_FEDNL}/test_variants.py",
            fednl.cheapest(figure, ours, column, rivals),
        )
        for figure, ours, column, rivals, text in fednl.VARIANTS
    ),
    *(
        Claim(
            FEDNL,
            "figure 9",
            f"FedNL-PP with {share} of the clients needs fewer bits than Artemis by orders of"
            " magnitude (judged: a hundredth).",
            "fednl_peers",
            f"{_FEDNL}/test_peers.py",
            fednl.fewer_bits(f"FedNL-PP, {share} n", f"Artemis, {share} n", 100.0),
        )
        for share in ("0.2", "0.4", "0.8")
    ),
    *(
        Claim(
            FEDRCO,
            claim.number,
            claim.text,
            claim.benchmark,
            f"{_NETWORKS}/{claim.test}",
            claim.judge,
        )
        for claim in fedrco.COMPARED
    ),
)


def judged(results: Mapping[str, Result]) -> list[tuple[Claim, Verdict]]:
    """Every claim with what the saved results say to it."""
    found = []
    for claim in CLAIMS:
        result = results.get(claim.benchmark)
        if result is None:
            verdict = Verdict("not judged", f"no saved run of {claim.benchmark}")
        elif result.quick:
            verdict = Verdict("not judged", f"the saved run of {claim.benchmark} is a short one")
        else:
            verdict = claim.judge(result)
        found.append((claim, verdict))
    return found

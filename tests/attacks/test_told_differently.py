"""A server that asks the nodes of one masked sum for different things.

All nodes insist on masks, on noise or on their ledger, and each one's own check passes. The server
asks the victim for its true update and has the others add next to nothing, or noise that does not
arrive.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import Budget, Ledger, Record
from secure_fl.federation import Client
from secure_fl.federation.executor import Call, run_step
from secure_fl.federation.steps import step_name
from secure_fl.flower.settings import make_node
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear._client import local_gradient
from secure_fl.trainers.linear._local import LocalTraining
from secure_fl.trainers.linear._noisy_moments import MomentNoise, local_noisy_moments
from secure_fl.trainers.linear.fedavg import local_change
from tests.attacks.cheat import PLAIN, Cheat, decoded, terms
from tests.attacks.table import Attack
from tests.secure_fl.flower.consortium import CLASSES, write_parties
from tests.secure_fl.flower.post import Post
from tests.secure_fl.trainers.linear.federations import pool

ATTACK = Attack(
    name="asks the nodes of one masked sum for different things",
    holds="the training server, and what it tells each node: step, broadcast, settings, seeds,"
    " codes, noise, plan, scaling",
    before="the victim's update, exact to the fixed-point step; with noise 1.0 promised 0.4 to"
    " 0.55 of the clip; a sum of noise that had faded, booked at its full price",
    after="nothing: keys, seals and confirmations of nodes that were told differently do not meet",
)

NAMES = [f"c{i}" for i in range(5)]
VICTIM, OTHERS = NAMES[0], NAMES[1:]
OBJECTIVE = SquaredLoss(0.1, 3)
WEIGHTS = np.linspace(-1.0, 1.0, 18).reshape(6, 3)
TRUE, NEGLIGIBLE = LocalTraining(0.1, epochs=2), LocalTraining(1e-300)
STEP = 2.0**20 / 2**52
"""Of the codes of five clients with the clip of `PLAIN`, rounded up."""


def clients() -> list[Client]:
    data = pool(sizes=(30, 8, 17, 12, 20))
    return [Client(n, data.X[p], data.y[p]) for n, p in zip(NAMES, data.parts, strict=True)]


def post(folder: Path, **owner: Any) -> Post:
    return Post(clients(), folder, {name: terms(**owner) for name in NAMES})


def update(step: Callable[..., Any], *broadcast: Any) -> Any:
    """What the victim's step returns."""
    found = run_step(Call(step, broadcast, 0, 0, 0), clients()[0])
    return np.concatenate([np.ravel(each) for each in [found]])


def told(
    cheat: Cheat, to_victim: dict[str, Any], to_others: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    common = cheat.request(local_change, OBJECTIVE, WEIGHTS, TRUE)
    requests = {name: {**common, **to_others} for name in OTHERS}
    return {VICTIM: {**common, **to_victim}, **requests}


def small(**changed: Any) -> dict[str, Any]:
    return {"coding": {**PLAIN, **changed}}


DIFFERENT = {
    "broadcast": {"broadcast": (OBJECTIVE, WEIGHTS, NEGLIGIBLE)},
    "step": {
        "step": step_name(local_gradient),
        "broadcast": (SquaredLoss(1e-300, 3), np.zeros((6, 3))),
    },
    "clip": small(clip=2.0**900),
    "number of clients": small(clients=2**11),
    "seed": {"key": (9, 0, 0)},
    "epoch": {"epoch": "1"},
    "call of experiment randomness": {"key": (0, 0, 7)},
    "outside": small(outside="error"),
    "an unknown setting": small(more=1.0),
}
READ_OFF = {"broadcast", "clip"}
"""Of these the sum is the victim's update and nothing else."""


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_sum_of_nodes_that_were_told_differently_does_not_come_about(
    tmp_path: Path, what: str
) -> None:
    cheat = Cheat(post(tmp_path, secure=True).node, NAMES, 4)
    learned = decoded(cheat.sum(told(cheat, {}, DIFFERENT[what])), STEP)
    if what in READ_OFF and learned is not None:
        error = np.abs(learned - update(local_change, OBJECTIVE, WEIGHTS, TRUE)).max()
        pytest.fail(f"the victim's update, off by {error:.2g}")
    assert learned is None


def test_the_same_told_to_all_is_summed(tmp_path: Path) -> None:
    """The cheating server's own machinery works: told alike, the nodes answer."""
    cheat = Cheat(post(tmp_path, secure=True).node, NAMES, 4)
    learned = decoded(cheat.sum(told(cheat, {}, {})), STEP)
    whole = sum(
        run_step(Call(local_change, (OBJECTIVE, WEIGHTS, TRUE), 0, 0, 0), each)
        for each in clients()
    )
    assert learned is not None
    np.testing.assert_allclose(learned, whole.ravel(), atol=5 * STEP)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("what", ["broadcast", "step", "clip", "number of clients"])
def test_nor_does_one_whose_keys_serve_several_sums(tmp_path: Path, what: str, place: int) -> None:
    """Masked vectors leave then, under masks that are bound to what each node was told itself.

    The cheat gets all openings that it can, the victim's self mask among them: what it reads is
    neither the victim's update, nor the others', nor their sum.
    """
    cheat = Cheat(post(tmp_path, secure=True).node, NAMES, 4, sums=2)
    for _ in range(place):
        assert cheat.sum(told(cheat, {}, {})) is not None
    requests = told(cheat, {}, DIFFERENT[what])
    learned = decoded(cheat.sum(requests, quiet=[VICTIM]), STEP)
    assert learned is not None
    true = update(local_change, OBJECTIVE, WEIGHTS, TRUE)
    for known in (0 * true, true):
        assert not np.any(np.abs(learned - known) < 1e3)


@pytest.mark.parametrize("place", [0, 1])
def test_told_alike_such_sums_come_about(tmp_path: Path, place: int) -> None:
    cheat = Cheat(post(tmp_path, secure=True).node, NAMES, 4, sums=2)
    for _ in range(place + 1):
        learned = decoded(cheat.sum(told(cheat, {}, {})), STEP)
        assert learned is not None
        assert np.abs(learned).max() < 1e3


@pytest.mark.parametrize("apart", [1, 2, 3, 4])
def test_however_many_are_told_the_truth(tmp_path: Path, apart: int) -> None:
    """No group of fewer than the threshold is summed; those told alike are, where enough."""
    cheat = Cheat(post(tmp_path, secure=True).node, NAMES, 4)
    requests = told(cheat, {}, DIFFERENT["broadcast"])
    for name in NAMES[:apart]:
        requests[name] = requests[VICTIM]
    learned = decoded(cheat.sum(requests), STEP)
    if apart < 4 and len(NAMES) - apart < 4:
        assert learned is None
    elif learned is not None:
        # A sum of at least four, as any sum is: never the victim's alone.
        error = np.abs(learned - update(local_change, OBJECTIVE, WEIGHTS, TRUE)).max()
        assert error > 1e-3 or apart == 1
        assert apart != 1 or np.abs(learned).max() < 1e-9


# ------------------------------------------------------------------------------------------- noise


def noisy(steps: int, sigma: float, clip: float = 1.0) -> dict[str, Any]:
    coding = {**PLAIN, "clip": clip, "steps": steps, "sigma": sigma}
    return {"coding": coding}


OTHER_NOISE = {
    "a coarse grid": noisy(16, 16 / 2),
    "a coarser grid": noisy(2, 2 / 2),
    "another clip": noisy(2**23, 2**22, 0.5),
}


@pytest.mark.parametrize("what", OTHER_NOISE)
def test_noise_on_different_grids_hides_nothing_and_is_not_summed(
    tmp_path: Path, what: str
) -> None:
    """Each node checks sigma / steps sqrt(4) >= 1; the others' parts arrive as 2^-20 of theirs."""
    cheat = Cheat(post(tmp_path, noise=1.0, clip=1.0).node, NAMES, 4)
    requests = told(cheat, noisy(2**24, 2**23), OTHER_NOISE[what])
    learned = decoded(cheat.sum(requests), 2.0**-24)
    if learned is not None:
        exact = update(local_change, OBJECTIVE, WEIGHTS, TRUE)
        exact = exact / max(1.0, float(np.linalg.norm(exact)))
        pytest.fail(f"noise of {np.std(learned - exact):.2g} of the clip, 1.0 was promised")


def test_a_grid_so_coarse_that_parts_do_not_add_up_is_refused(tmp_path: Path) -> None:
    """All are told the same: a fifth of a step each is worth less than its deviation says."""
    cheat = Cheat(post(tmp_path, noise=1.0, clip=1.0).node, NAMES, 4)
    assert cheat.begin(told(cheat, noisy(1, 0.6), noisy(1, 0.6))) == {}


def test_noise_that_is_no_number_is_refused(tmp_path: Path) -> None:
    cheat = Cheat(post(tmp_path, noise=1.0, clip=1.0).node, NAMES, 4)
    for steps, sigma, clip in ((2**24, math.nan, 1.0), (2**24, 2**23, math.nan), (0, 0.0, 1.0)):
        cheat.calls += 1
        assert cheat.begin(told(cheat, noisy(steps, sigma, clip), {})).keys() <= set(OTHERS)


# ------------------------------------------------------------------------------------------ ledger


@pytest.mark.parametrize("clip", [2.0**14, 2.0**26])
def test_codes_that_differ_are_not_booked_for_less_than_they_are_worth(
    tmp_path: Path, clip: float
) -> None:
    """The others' noise arrives as 2^12 over their clip of what the ledger counts on."""
    books = {
        name: Ledger.create(tmp_path / f"{name}.books", name, Budget(1.0, 1e-5, Record(1.0)))
        for name in NAMES
    }
    nodes = Post(clients(), tmp_path, {n: terms(ledger=each) for n, each in books.items()})
    noise = MomentNoise(1.0, 3, 2.0**24)
    cheat = Cheat(nodes.node, NAMES, 4)
    true = cheat.request(local_noisy_moments, noise, coding={**PLAIN, "clip": 2.0**12})
    false = {**true, "coding": {**PLAIN, "clip": clip}}
    learned = cheat.sum({VICTIM: true, **dict.fromkeys(OTHERS, false)})
    said = [each.get_epsilon(1e-5).epsilon for each in books.values() if each.events]
    assert learned is None, f"a sum under a fraction of the noise; ledgers say {said}"
    # The others, told alike, may have been brought to mask; the victim never was.
    assert not books[VICTIM].events


# -------------------------------------------------------------------------------------------- plan


@pytest.mark.parametrize(
    "changed",
    [{"scale": 1e-150}, {"ridge": 0.2}, {"seed": 5}, {"classes": "x,y,z,w"}, {"rounds": 3}],
)
def test_nodes_with_different_plans_have_no_sum(tmp_path: Path, changed: dict[str, Any]) -> None:
    """The server ships each machine its configuration: features of the others scaled to nothing."""
    node, names = _of_plans(tmp_path, changed)
    cheat = Cheat(node, names, 3)
    request = cheat.request(local_gradient, OBJECTIVE, np.zeros((7, 3)))
    assert cheat.sum(dict.fromkeys(names, request)) is None


@pytest.mark.parametrize("apart", [False, True])
def test_nor_have_nodes_that_were_told_different_scalings_by_moments(
    tmp_path: Path, apart: bool
) -> None:
    """The server alone knows the moments, and tells the scaling: the others' to nothing."""
    node, names = _of_plans(tmp_path, {}, scaling="moments")
    cheat = Cheat(node, names, 3)
    constants = {"kind": "moments", "factor": 1.0, "offsets": np.zeros(6)}
    own, others = ({**constants, "spreads": np.full(6, each)} for each in (1.0, 1e150))
    request = cheat.request(local_gradient, OBJECTIVE, np.zeros((7, 3)))
    requests = {name: {**request, "scaling": others if apart else own} for name in names}
    requests["c0"] = {**request, "scaling": own}
    assert (cheat.sum(requests) is None) == apart


def _of_plans(
    folder: Path, changed: dict[str, Any], **settings: Any
) -> tuple[Callable[[str], Any], list[str]]:
    """Three nodes, c0 of a plan and the others of a changed one."""
    write_parties(folder)
    public = json.loads((folder / "members.json").read_text())
    plan = {
        "clients": ",".join(public),
        "classes": ",".join(CLASSES),
        "method": "fednewton",
        "out": "run",
        "secure": True,
        "max-weight": 100.0,
        **settings,
    }

    def node(name: str) -> Any:
        own = {
            "data": str(folder / "clients" / f"{name}.npz"),
            "state": str(folder / name),
            "identity": str(folder / f"{name}.key"),
            "directory": str(folder / "members.json"),
            "secure": True,
        }
        return make_node(own, plan if name == "c0" else {**plan, **changed})

    return node, list(public)

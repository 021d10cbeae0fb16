"""A querier that tries names of a batch until the ring puts its accomplices around the victim.

In the service the ring of a masked sum follows from what the querier signs, so it may choose it.
With 2 s - h accomplices among the victim's h - 1 neighbours (s shares open a secret) and an
evaluator that tells contributors different lists of survivors, the victim's row comes to light.
So what a ring withstands is counted among all contributors there, and owners allow each ring.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from secure_fl.federation.secagg import Parameters
from secure_fl.federation.secagg.graph import Graph
from secure_fl.federation.secagg.parameters import default_threshold
from secure_fl.heads.manifest import make_manifest
from secure_fl.masked import RowCoding
from secure_fl.service.masked_words import sum_parameters
from tests.attacks.table import Attack
from tests.attacks.test_split_survivors import SplitServer
from tests.secure_fl.federation.protocol import Party, names_of

ATTACK = Attack(
    name="tries names of a batch until the ring of its masked sum suits it",
    holds="the querier and the evaluator, c of the n contributors, and the choice of names",
    before="the victim's smallest code and its class at c = 2 s - h, wherever the accomplices"
    " stand: 3 of 12 on a ring of degree 4 after some 40 names (no version served rings without the"
    " owner's word)",
    after="nothing: contributors take no ring whose degree their owner has not allowed"
    " (`--min-degree`), and with it that bound among all contributors; below it no ring helps",
)

N, DEGREE = 12, 4
CODING = RowCoding(6, 3)
CODES = np.arange(3)[None] + np.arange(2)[:, None] * 20 + 11
"""The victim's, of two queries."""
MANIFEST = make_manifest(
    classes=("x", "y", "z"), clients=names_of(N), n_features=4, bits=6, rule="masked"
)


def parameters(batch: str) -> Parameters:
    """As every party of the service derives them."""
    return sum_parameters(MANIFEST, batch, default_threshold(N), bytes(32), DEGREE)


def neighbours(batch: str) -> tuple[str, ...]:
    names = MANIFEST.clients
    return Graph(names, DEGREE, parameters(batch).setup_context).neighbours(names[0])


def chosen(accomplices: tuple[str, ...]) -> str:
    """The first name of a batch whose ring puts them around the first contributor."""
    tried = (f"b{i}" for i in itertools.count())
    return next(batch for batch in tried if set(accomplices) <= set(neighbours(batch)))


def learned(batch: str, accomplices: tuple[str, ...], lost_at: tuple[str, ...]) -> Any:
    p = parameters(batch)
    options = {"degree": p.degree, "threshold": p.threshold, "shares": p.share_threshold}
    told: Any = {"session": p.session, "agreed": p.agreed, "sums": p.sums, "common": p.common}
    party = Party(N, **options, **told)  # type: ignore[arg-type]  # a dict of ints
    assert party.parameters == p
    empty = np.full((2, 3), 63)
    party.vectors = {name: CODING.rows(empty) for name in party.names}
    party.vectors[party.names[0]] = CODING.rows(CODES)
    return SplitServer(party, accomplices, lost_at).learned()


BOUND = 2 * parameters("b").share_threshold - (DEGREE + 1)


def test_at_the_bound_a_ring_that_the_querier_chose_opens_the_victims_row() -> None:
    """By few names: of 11 others 4 are neighbours, three of them the accomplices in 1 of 41."""
    accomplices = names_of(N)[N - BOUND :]
    honest = tuple(name for name in names_of(N)[1:] if name not in accomplices)
    row = learned(chosen(accomplices), accomplices, honest)
    opened = CODING.open(row)
    assert opened.codes.tolist() == CODES.min(axis=1).tolist()
    assert opened.classes.tolist() == CODES.argmin(axis=1).tolist()


def test_below_the_bound_no_ring_and_no_lie_about_survivors_helps() -> None:
    """Every way to tell the victim's honest neighbours that it was lost, and nobody or all else."""
    accomplices = names_of(N)[N - BOUND + 1 :]
    batch = chosen(accomplices)
    near = [name for name in neighbours(batch) if name not in accomplices]
    others = tuple(n for n in names_of(N)[1:] if n not in (*accomplices, *near))
    for count in range(len(near) + 1):
        for told in itertools.combinations(near, count):
            for rest in ((), others):
                assert learned(batch, accomplices, (*told, *rest)) is None


@pytest.mark.parametrize(
    ("n", "degree", "colluding", "fewest"), [(12, 4, 2, 4), (100, 42, 14, 29), (100, 0, 33, 67)]
)
def test_the_bounds_that_owners_are_told(n: int, degree: int, colluding: int, fewest: int) -> None:
    """Of docs/choosing-a-rule.md; the complete graph's are those of the whole federation."""
    facts = make_manifest(classes=("x", "y"), clients=names_of(n), n_features=2, rule="masked")
    p = sum_parameters(facts, "b", default_threshold(n), bytes(32), degree)
    assert (p.colluding, p.fewest) == (colluding, fewest)

from pathlib import Path

import numpy as np
import pytest

from dp import Ledger
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    PackedCodes,
    ScriptedDropOuts,
    SecureAggregation,
    Stage,
    wire,
)
from secure_fl.trainers.fednl import (
    Dithering,
    Identity,
    LogisticRidge,
    Natural,
    NewtonState,
    RankR,
    SharedRandK,
    TopK,
    fednl,
    fednl_bc,
    fednl_cr,
    fednl_ls,
    fednl_pp,
    mean_value,
    optimum,
)
from secure_fl.trainers.fednl.problem import LocalProblem
from secure_fl.trainers.fednl.server_steps import cubic_step, projected_step
from secure_fl.trainers.fednl.triangles import pack
from tests.secure_fl.trainers.fednl.problems import random_clients, real_clients

OBJECTIVE = LogisticRidge(0.05)
D = 8


def test_every_client_in_every_round_makes_partial_participation_full() -> None:
    """At tau = n Algorithm 2 keeps H, l and g of everybody; its x solves the same equation."""
    fed = Federation(random_clients(5, 40, D))
    best, _ = optimum(fed, OBJECTIVE, d=D)
    *_, last = fednl_pp(fed, OBJECTIVE, d=D, rounds=40, tau=5, compressor=RankR(1))
    assert np.allclose(last.weights, best, atol=1e-10)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.8])
def test_partial_participation_converges(share: float) -> None:
    fed = Federation(real_clients("phishing", 25, 110, 68))
    objective = LogisticRidge(1e-3)
    best, value = optimum(fed, objective, d=68)
    *_, last = fednl_pp(
        fed, objective, d=68, rounds=int(16 / share), tau=int(share * 25), compressor=RankR(1),
        x0=best + 0.01,
    )  # fmt: skip
    assert mean_value(fed, objective, last.weights) - value <= 1e-12


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_line_search_and_cubic_steps_decrease_the_loss_from_far_away(scale: float) -> None:
    fed = Federation(random_clients(4, 30, D))
    x0 = scale * np.random.default_rng(0).standard_normal(D)
    _, value = optimum(fed, OBJECTIVE, d=D)
    for trainer, rounds in ((fednl_ls, 40), (fednl_cr, 400)):
        states = trainer(fed, OBJECTIVE, d=D, rounds=rounds, compressor=RankR(1), x0=x0)
        losses = np.array([mean_value(fed, OBJECTIVE, s.weights) for s in states])
        above = losses[:-1] - value > 1e-12
        assert np.all(losses[1:][above] < losses[:-1][above])
        assert losses[-1] - value < (1e-13 if trainer is fednl_ls else 1e-6 * (losses[0] - value))


@pytest.mark.parametrize("option", [1, 2])
def test_bidirectional_compression_with_p_1_and_the_whole_model_is_fednl(option: int) -> None:
    fed = Federation(random_clients(4, 30, D))
    plain = fednl(fed, OBJECTIVE, d=D, rounds=8, option=option, compressor=RankR(1))
    xs = [s.weights for s in plain]
    both = fednl_bc(fed, OBJECTIVE, d=D, rounds=8, p=1.0, option=option, compressor=RankR(1))
    assert np.allclose([s.weights for s in both], xs, rtol=1e-10, atol=1e-12)


def test_bidirectional_compression_converges_with_few_gradients_and_half_the_model() -> None:
    fed = Federation(random_clients(4, 30, D))
    best, _ = optimum(fed, OBJECTIVE, d=D)
    *_, last = fednl_bc(
        fed, OBJECTIVE, d=D, rounds=120, p=0.5, option=2, compressor=RankR(1),
        model_compressor=TopK(4),
    )  # fmt: skip
    assert np.allclose(last.weights, best, atol=1e-8)
    assert last.bits_down < 120 * 64 * D


def test_the_identity_from_zero_learns_the_hessian_in_one_round() -> None:
    fed = Federation(random_clients(3, 30, D))
    states = list(
        fednl(fed, OBJECTIVE, d=D, rounds=12, option=2, compressor=Identity(), initial="zero")
    )
    assert states[-1].gradient_norm < 1e-13


@pytest.mark.parametrize("trainer", [fednl, fednl_ls, fednl_cr])
def test_secure_sums_give_the_plain_trajectory_with_the_shared_seed_as_default(
    trainer: object,
) -> None:
    secure = Federation(
        random_clients(5, 30, D), aggregation=SecureAggregation(clip=2.0**12, bits=64)
    )
    plain = Federation(random_clients(5, 30, D))
    compressor = SharedRandK(D * (D + 1) // 2)
    wanted = list(trainer(plain, OBJECTIVE, d=D, rounds=6, compressor=compressor))  # type: ignore[operator]
    found = list(trainer(secure, OBJECTIVE, d=D, rounds=6))  # type: ignore[operator]
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a.weights, b.weights, atol=1e-7)


def test_other_compressors_send_triangles_under_secure_aggregation() -> None:
    secure = Federation(random_clients(4, 30, D), aggregation=SecureAggregation(clip=2.0**12))
    best, _ = optimum(Federation(random_clients(4, 30, D)), OBJECTIVE, d=D)
    *_, last = fednl(secure, OBJECTIVE, d=D, rounds=20, compressor=TopK(9), option=2)
    assert np.allclose(last.weights, best, atol=1e-6)


def test_client_level_privacy_runs_through_the_handle_and_books_every_sum(tmp_path: Path) -> None:
    rounds = 4
    fed = Federation(
        random_clients(6, 30, D),
        privacy=ClientPrivacy(
            clip=2.0,
            noise_multiplier=0.05,
            sums=rounds + 1,
            ledger=Ledger.create(tmp_path / "ledger.jsonl", "trial"),
        ),
    )
    states = list(fednl(fed, OBJECTIVE, d=D, rounds=rounds, option=2))
    assert np.isfinite(states[-1].weights).all()
    assert fed.spent is not None
    assert fed.spent.epsilon > 0


def test_after_a_drop_out_the_server_again_holds_the_mean_of_the_clients_estimates() -> None:
    """A client that moved its estimate and was lost would leave the server behind for ever."""
    clients = random_clients(4, 30, D)
    script = ScriptedDropOuts(at={(3, 0): {"c1": Stage.MASK}})
    fed = Federation(clients, drop_outs=script)
    states = list(fed.rounds(fednl(fed, OBJECTIVE, d=D, rounds=12, compressor=TopK(6), option=2)))
    from secure_fl.trainers.fednl.problem import local_problem

    held = [local_problem(c).support.dense(c.state["hessian"]) for c in clients]
    assert np.allclose(states[-1].hessian, np.mean(held, axis=0), atol=1e-12)
    best, _ = optimum(Federation(random_clients(4, 30, D)), OBJECTIVE, d=D)
    assert np.linalg.norm(states[-1].weights - best) < 1e-6


def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "run"
    options = {"d": D, "option": 2, "compressor": RankR(1)}
    whole = Federation(random_clients(3, 30, D))
    *_, wanted = whole.rounds(fednl(whole, OBJECTIVE, rounds=6, **options))  # type: ignore[arg-type]
    first = Federation(random_clients(3, 30, D))
    for _ in first.rounds(fednl(first, OBJECTIVE, rounds=3, **options), checkpoint=path):  # type: ignore[arg-type]
        pass
    again = Federation(random_clients(3, 30, D))
    start: NewtonState = again.resume(path)
    *_, found = again.rounds(fednl(again, OBJECTIVE, rounds=6, start=start, **options))  # type: ignore[arg-type]
    assert np.array_equal(found.weights, wanted.weights)
    assert found.bits == wanted.bits


@pytest.mark.parametrize("k", [1, 500])
def test_one_feature_one_label_a_zero_feature_and_more_entries_than_there_are(k: int) -> None:
    from scipy.sparse import csr_array

    one = [Client("a", csr_array([[1.0], [2.0]]), np.array([1.0, 1.0]))]
    empty = [
        Client("a", csr_array([[1.0, 0.0], [3.0, 0.0]]), np.array([1.0, -1.0])),
        Client("b", csr_array((2, 2)), np.array([1.0, 1.0])),
    ]
    for clients, d in ((one, 1), (empty, 2)):
        for compressor in (TopK(k), SharedRandK(k), RankR(k)):
            fed = Federation([Client(c.name, c.features, c.targets) for c in clients])
            best, _ = optimum(fed, OBJECTIVE, d=d)
            *_, last = fednl(fed, OBJECTIVE, d=d, rounds=80, option=2, compressor=compressor)
            assert np.allclose(last.weights, best, atol=1e-8)


def test_the_projected_step_is_that_of_the_projected_matrix() -> None:
    """Eqs. 21 and 22 by a full decomposition, for matrices that need it and that do not."""
    rng = np.random.default_rng(0)
    for shift in (0.0, 20.0):
        M = rng.standard_normal((6, 6))
        M, g = M + M.T + shift * np.eye(6), rng.standard_normal(6)
        values, vectors = np.linalg.eigh(M)
        P = vectors @ np.diag(np.maximum(values - 0.3, 0)) @ vectors.T + 0.3 * np.eye(6)
        assert np.allclose(projected_step(pack(M), 0.3, g), np.linalg.solve(P, g))


def test_a_matrix_whose_smallest_eigenvalue_is_mu_itself_is_stepped_on_as_it_is() -> None:
    """What no record has leaves mu as an eigenvalue, in the server's mean but for its rounding."""
    rng = np.random.default_rng(1)
    B, g = rng.standard_normal((9, 4)), rng.standard_normal(9)
    M = B @ B.T + 1e-3 * np.eye(9)
    assert np.allclose(projected_step(pack(M), 1e-3, g), np.linalg.solve(M, g), rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_step_has_a_smaller_cubic_model(seed: int) -> None:
    """Stationarity and A + L r/2 I >= 0 are necessary and sufficient (Nesterov, Polyak 2006)."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((6, 6))
    M, g, L = M + M.T, rng.standard_normal(6), 0.7
    h = cubic_step(pack(M), 0.1, g, L)
    A = M + (0.1 + L / 2 * np.linalg.norm(h)) * np.eye(6)
    assert np.allclose(A @ h, -g, atol=1e-9)
    assert np.linalg.eigvalsh(A)[0] >= -1e-9


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        (fednl, {"option": 3}, "option 3"),
        (fednl, {"l_norm": "max"}, "l_norm"),
        (fednl, {"initial": "half"}, "initial"),
        (fednl, {"x0": np.zeros(3)}, "x0"),
        (fednl_ls, {"gamma": 1.0}, "line search"),
        (fednl_cr, {"lipschitz": -1.0}, "lipschitz"),
        (fednl_pp, {"tau": 0}, "tau 0"),
        (fednl_bc, {"p": 0.0}, "p 0.0"),
    ],
)
def test_options_out_of_range_are_refused_before_any_round(
    trainer: object, options: dict[str, object], message: str
) -> None:
    fed = Federation(random_clients(2, 10, D))
    with pytest.raises(ValueError, match=message):
        next(trainer(fed, OBJECTIVE, d=D, rounds=1, **options))  # type: ignore[operator]


@pytest.mark.parametrize("compressor", [Natural(), Dithering(5)], ids=str)
def test_quantised_hessians_travel_as_their_codes(compressor: Natural | Dithering) -> None:
    """Far fewer bytes up than the triangle's floats; server and clients decode the same."""
    clients = random_clients(3, 30, D)
    fed = Federation(clients)
    driven = fed.rounds(fednl(fed, OBJECTIVE, d=D, rounds=30, option=2, compressor=compressor))
    next(driven)
    before = fed.meter.total("c0").bytes_up
    *_, last = driven
    entries = D * (D + 1) // 2
    message = PackedCodes.of(np.zeros(entries), compressor.entry_bits, 0.0)
    assert len(message.data) == -(-compressor.entry_bits * entries // 8)
    sent = wire.measure({"slope": np.zeros(D + 2), "difference": message})[0]
    assert fed.meter.total("c0").bytes_up - before == 30 * sent
    assert sent + 100 < wire.measure({"slope": np.zeros(D + 2), "difference": np.zeros(entries)})[0]
    assert np.allclose(last.weights, optimum(Federation(clients), OBJECTIVE, d=D)[0], atol=1e-8)
    held = [LocalProblem(c, True).support.dense(c.state["hessian"]) for c in clients]
    assert np.allclose(last.hessian, np.mean(held, axis=0), atol=1e-12)

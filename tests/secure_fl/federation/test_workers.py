"""One and many worker processes give the same bytes."""

import os
import signal

import numpy as np
import pytest
import scipy.sparse

from secure_fl.federation import Client, Federation, FederationError, SecureAggregation, StepError
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.shared import one_line


@pytest.fixture(scope="module")
def three():
    with Federation(make_clients(7), seed=5, workers=3) as fed:
        yield fed


def everything(fed: Federation) -> list[np.ndarray]:
    found = []
    for _ in range(2):
        found.append(fed.sum(steps.drawn))
        found.append(fed.mean(steps.gradient, steps.Ridge(0.5), np.arange(4.0)))
        found.append(fed.sum(steps.sparse, 9))
        found.append(fed.sum(steps.statistics)["pair"][1][0])
        found.append(fed.sum(steps.counted, over=["f", "b"]))
        found.extend(fed.gather(steps.drawn))
        fed.close_round()
    return found


def test_one_and_three_workers_give_the_same_bytes(three: Federation):
    one = Federation(make_clients(7), seed=5)
    for a, b in zip(everything(one), everything(three), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    assert one.meter.total() == three.meter.total()


def test_a_failing_step_in_a_worker_names_the_client_and_leaves_the_rest_usable(three: Federation):
    for _ in range(2):
        with pytest.raises(StepError) as caught:
            three.sum(steps.failing)
        assert 'client "a": failing failed' in one_line(caught.value)
        assert "ZeroDivisionError: no such luck" in one_line(caught.value)
        assert three.sum(steps.constant, np.ones(2)).tolist() == [7.0, 7.0]


def test_a_sum_that_was_given_up_leaves_no_answers_behind(three: Federation):
    with pytest.raises(FederationError, match="one structure everywhere"):
        three.sum(steps.uneven)
    assert three.sum(steps.constant, np.ones(2)).tolist() == [7.0, 7.0]


def test_secure_sums_over_workers():
    one = Federation(make_clients(4), aggregation=SecureAggregation())
    with Federation(make_clients(4), aggregation=SecureAggregation(), workers=2) as two:
        assert one.sum(steps.drawn).tobytes() == two.sum(steps.drawn).tobytes()


def test_sparse_features_reach_their_worker():
    dense = make_clients(2)
    clients = [Client(c.name, scipy.sparse.csr_array(c.features), c.targets) for c in dense]
    arguments = (steps.gradient, steps.Ridge(0.0), np.ones(4))
    with Federation(clients, workers=2) as fed:
        np.testing.assert_allclose(fed.sum(*arguments), Federation(dense).sum(*arguments))


def test_a_worker_that_dies_is_an_error_and_not_a_hang():
    with Federation(make_clients(2), workers=2) as fed:
        fed.sum(steps.drawn)
        os.kill(fed._engine._runtime._workers[0]._process.pid, signal.SIGKILL)
        with pytest.raises(StepError, match=r"ended with code -9; its clients' state is lost"):
            fed.sum(steps.drawn)


def test_closing_ends_the_processes():
    fed = Federation(make_clients(2), workers=2)
    workers = [worker._process for worker in fed._engine._runtime._workers]
    fed.close()
    fed.close()
    assert [process.poll() for process in workers] == [0, 0]

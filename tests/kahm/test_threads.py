"""Linear algebra keeps to one thread where the work is parallel by itself."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from kahm.bank import Bank
from kahm.threads import SMALL, one_thread


def blas_threads() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_one_thread_holds_inside_and_gives_back_what_was_there():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_small_machines_are_fitted_and_queried_by_one_thread(monkeypatch):
    import kahm.bank as bank

    seen: dict[str, list[int]] = {}

    def watched(name, function):
        def call(*arguments, **named):
            seen[name] = blas_threads()
            return function(*arguments, **named)

        return call

    for name in ("fit_stack", "measure_stack"):
        monkeypatch.setattr(bank, name, watched(name, getattr(bank, name)))
    rng = np.random.default_rng(0)
    with threadpool_limits(2, user_api="blas"):
        made = Bank.fit([rng.normal(size=(20, 4)) for _ in range(3)], [0, 1, 2], 3)
        made.measures(rng.normal(size=(5, 4)))
    assert SMALL > 20
    assert {name: set(found) for name, found in seen.items()} == {
        "fit_stack": {1},
        "measure_stack": {1},
    }

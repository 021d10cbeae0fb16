"""What all tests share: examples on any machine, files outside the repository, skips counted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow; that is no fault of what is tested. Before any test file is read, for
# settings in a decorator take what they do not name from the profile of that moment.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / "build" / "test-cache"
SHARED = REPOSITORY.parent / "shared"
ABSENT = "the data folder `shared` does not stand beside the repository"


@pytest.fixture(scope="session", autouse=True)
def circuit_cache() -> Iterator[None]:
    """One cache of compiled circuits for the suite and the commands it starts, not the user's.

    It outlives the run: an entry is named by the digest of the code that compiles it, of the
    library's version and of the rule. `make clean` removes it.
    """
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECUREFL_CACHE", str(CACHE))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data sets and of outputs of the papers' own code."""
    if not SHARED.is_dir():
        pytest.skip(ABSENT)
    return SHARED


FIRST = (
    "secure_fl/flower/test_flower_processes.py",
    "secure_fl/service/test_living.py",
    "secure_fl/service/test_network.py",
    "attacks/test_answer_oracle.py",
    "test_docs.py",
    "test_readme.py",
    "test_wheel.py",
)
"""Files that mostly wait for other processes: last of a run, one worker would wait alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts with the files that take longest by the clock; lets slow tests be slow."""
    folder = Path(__file__).resolve().parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(folder).as_posix() if folder in item.path.parents else ""
        return FIRST.index(name) if name in FIRST else len(FIRST)

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests did not run for want of the data folder."""
    absent = [r for r in terminalreporter.stats.get("skipped", []) if ABSENT in str(r.longrepr)]
    if absent:
        terminalreporter.write_line(f"{len(absent)} tests skipped: {ABSENT}")

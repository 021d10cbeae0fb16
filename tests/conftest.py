"""Fixtures that need files outside the repository, and a count of what their absence skipped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
ABSENT = "the data folder `shared` does not stand beside the repository"


@pytest.fixture(scope="session", autouse=True)
def circuit_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of compiled circuits for the suite and the commands it starts, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECUREFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data sets and of outputs of the papers' own code."""
    if not SHARED.is_dir():
        pytest.skip(ABSENT)
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests did not run for want of the data folder."""
    absent = [r for r in terminalreporter.stats.get("skipped", []) if ABSENT in str(r.longrepr)]
    if absent:
        terminalreporter.write_line(f"{len(absent)} tests skipped: {ABSENT}")

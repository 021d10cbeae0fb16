"""Where the public data sets are, for tests that compare with real data."""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared_file(*parts: str) -> Path:
    """A public data file beside the repository; skips the test where it is absent."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs the public data file ../shared/data/{'/'.join(parts)}")
    return path


def one_line(error: BaseException) -> str:
    """The error's message, which must be one line."""
    text = str(error)
    assert text
    assert "\n" not in text
    return text

"""What the extra `service` brings."""

from importlib.util import find_spec

from secure_fl.errors import MissingExtraError

MODULES = (
    "fastapi",
    "httpx",
    "prometheus_client",
    "uvicorn",
    "cryptography.hazmat.primitives.hpke",
)


def check_extra() -> None:
    """Says which extra to install where a module is absent.

    Raises:
        MissingExtraError: so.
    """
    for name in MODULES:
        if find_spec(name) is None:
            raise MissingExtraError(
                f"queries over a network need {name}, which is not installed; run"
                " pip install 'securefl[service]'"
            )

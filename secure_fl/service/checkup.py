"""What `securefl doctor` looks at of a training server or an evaluator."""

from pathlib import Path
from urllib.parse import urlsplit

from secure_fl.flower.checkup import Door
from secure_fl.service.serving import check_url
from secure_fl.service.signing import LIFETIME


def door_of(url: str, authority: Path | None) -> Door:
    """Who serves at an address; see `secure_fl.flower.checkup.check_door`.

    Raises:
        InputError: no address of a service.
    """
    parts = urlsplit(check_url(url, insecure=True))
    plain = parts.scheme == "http"
    port = parts.port or (80 if plain else 443)
    return Door("server", f"{parts.hostname}:{port}", authority, plain, LIFETIME, LIFETIME)

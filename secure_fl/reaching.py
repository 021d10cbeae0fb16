"""Why another party cannot be reached, where the cause is one that waiting does not mend."""

import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen

from secure_fl.errors import InputError

_PROBE = 5.0
"""Seconds to find out whether the other side speaks TLS."""


@frozen
class Remedies:
    """What to do, in the words of the caller's own options.

    Attributes:
        untrusted: the other side's certificate is not trusted.
        plain: it does not speak TLS.
        encrypted: it speaks TLS, and was called without.
    """

    untrusted: str = (
        "name the PEM file of who signed it (--authority), or the name that the certificate is for"
    )
    plain: str = "call it by http://, or give it a certificate"
    encrypted: str = "call it by https://"


_SERVICE = Remedies()


def check_proxy(url: str) -> str:
    """A proxy's address.

    Raises:
        InputError: not http(s)://HOST:PORT.
    """
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        fine = False
    if not fine:
        raise InputError(f"--proxy {url[:100]}: expected http://HOST:PORT")
    return url


def tls_context(authority: Path | None) -> ssl.SSLContext:
    """What checks the other side's certificate.

    Args:
        authority: PEM file of who signed it; None trusts the system's.

    Raises:
        InputError: the file holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise InputError(
            f"{authority}: holds no certificate in PEM ({error.strerror or error}); name the file"
            " of who signed the other side's"
        ) from error


def lasting_cause(
    error: BaseException, url: str, *, direct: bool, remedies: Remedies = _SERVICE
) -> str | None:
    """What is wrong and what to do; None where trying again later makes sense.

    Args:
        error: what a call of the service raised.
        url: of the service.
        direct: whether it is called without a proxy, so that its port can be asked.
        remedies: what to do.
    """
    parts = urlsplit(url)
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({tls.verify_message}); {remedies.untrusted}"
    if tls is not None and tls.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return f"it does not speak TLS on this port; {remedies.plain}"
    if parts.scheme == "http" and direct and _speaks_tls(parts.hostname, parts.port or 80):
        return f"it speaks TLS on this port; {remedies.encrypted}"
    return None


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _speaks_tls(host: str | None, port: int) -> bool:
    # Only whether there is TLS at all; nothing is sent over it, so no certificate is checked.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_PROBE) as line,
            context.wrap_socket(line),
        ):
            return True
    except (OSError, ValueError):
        return False

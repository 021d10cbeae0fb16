"""A member's line to the evaluator: signed requests, and responses that are checked."""

import hashlib
import ssl
import time
from pathlib import Path
from typing import Self

import httpx
from attrs import frozen

from secure_fl.errors import ServiceError
from secure_fl.heads.manifest import Manifest
from secure_fl.service.members import Member, signature_keys
from secure_fl.service.serving import check_url
from secure_fl.service.signing import (
    REPLY_HEADER,
    SCHEME,
    Request,
    Response,
    new_request,
    read_token,
    signed,
)

RECIPIENT = "evaluator"
TIME_OUT = 60.0
LARGEST = 256 * 2**20
"""Bytes of a response; an answer of 1,000 queries has some 30 MB."""


@frozen
class Reply:
    """A response whose signature was right.

    Attributes:
        status: of HTTP.
        content: the body.
    """

    status: int
    content: bytes


class Channel:
    """Calls the evaluator as one member.

    Args:
        url: of the evaluator.
        member: that calls.
        manifest: of the federation, with the evaluator's key.
        authority: PEM file of the certificate authority; None trusts the system's.
        insecure: allow plain HTTP beyond loopback.
        patience: seconds that a call is repeated while the evaluator is away or busy.

    Raises:
        InputError: the URL may not be used so.
    """

    def __init__(
        self,
        url: str,
        member: Member,
        manifest: Manifest,
        *,
        authority: Path | None = None,
        insecure: bool = False,
        patience: float = 60.0,
    ) -> None:
        self._url = check_url(url, insecure=insecure)
        self._member, self._patience = member, patience
        self._federation, self._keys = manifest.fingerprint, signature_keys(manifest)
        # Reading the system's authorities takes a while, and plain HTTP has no use for them.
        tls = self._url.startswith("https:")
        verify = ssl.create_default_context(cafile=authority) if tls else False
        self._http = httpx.Client(verify=verify, timeout=TIME_OUT, follow_redirects=False)

    def call(self, method: str, path: str, body: bytes = b"") -> Reply:
        """One request, repeated with a fresh signature while it cannot be granted for now.

        Args:
            method: of HTTP.
            path: below /v1/FEDERATION, with its query string.
            body: of the request.

        Raises:
            ServiceError: the evaluator cannot be reached, or the response is not its own.
        """
        end, pause = time.monotonic() + self._patience, 0.2
        while True:
            problem = "busy"
            try:
                status, headers, content = self._send(method, path, body)
            except httpx.TransportError as error:
                problem = f"cannot be reached ({type(error).__name__})"
            else:
                if status not in (429, 503):
                    return Reply(status, content)
                after = headers.get("retry-after", "")
                pause = max(pause, float(after) if after.isdigit() else 0.0)
            if time.monotonic() + pause > end:
                raise ServiceError(
                    f"evaluator {self._url}: {problem}, for {self._patience:.0f} s; is it running?"
                )
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def expect(self, method: str, path: str, body: bytes = b"", *, what: str) -> bytes:
        """The body of a call that succeeds.

        Raises:
            ServiceError: as `call`, or the evaluator refused; `what` says what was asked.
        """
        found = self.call(method, path, body)
        if found.status >= 300:
            raise ServiceError(f"{what}: the evaluator refused ({found.status}): {_text(found)}")
        return found.content

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """The channel."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def _send(self, method: str, path: str, body: bytes) -> tuple[int, httpx.Headers, bytes]:
        target = f"/v1/{self._federation}{path}"
        claims = new_request(self._member, RECIPIENT, self._federation, method, target, body)
        headers = {"Authorization": f"{SCHEME} {signed(self._member, claims)}"}
        url = self._url + target
        with self._http.stream(method, url, content=body, headers=headers) as response:
            content = _capped(response)
        # Only a refusal may be without a signature, by who does not know the sender.
        if REPLY_HEADER in response.headers or response.status_code < 400:
            self._check(claims, response, content)
        return response.status_code, response.headers, content

    def _check(self, request: Request, response: httpx.Response, content: bytes) -> None:
        token, claims = read_token(response.headers.get(REPLY_HEADER, ""), Response)
        expected = Response(
            sender=RECIPIENT,
            nonce=request.nonce,
            status=response.status_code,
            body=hashlib.sha256(content).hexdigest(),
        )
        if claims != expected:
            raise ServiceError(f"evaluator {self._url}: its response answers something else")
        token.check(self._keys)


def _capped(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > LARGEST:
            raise ServiceError(f"the evaluator sends more than {LARGEST} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _text(reply: Reply) -> str:
    # Of an unsigned refusal nothing is believed; it is shown to a person, short.
    return reply.content[:300].decode(errors="replace")

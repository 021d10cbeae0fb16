"""A member's line to a service: signed requests, and responses that are checked."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
from attrs import frozen

from fhe.envelope import load_json
from secure_fl.errors import AwayError, ServiceError
from secure_fl.files import digest_of, placed
from secure_fl.heads.manifest import Manifest
from secure_fl.reaching import check_proxy, lasting_cause, tls_context
from secure_fl.service.gate import Circle
from secure_fl.service.members import Member, signature_keys
from secure_fl.service.serving import check_url
from secure_fl.service.signing import (
    REPLY_HEADER,
    SCHEME,
    Request,
    Response,
    read_token,
    request_of,
    signed,
)

RECIPIENT = "evaluator"
TIME_OUT = 60.0
LARGE_TIME_OUT = 600.0
"""Seconds for the answer to a body of a hundred megabytes, which is looked at in its turn."""
_PIECE = 1 << 20
LARGEST = 256 * 2**20
"""Bytes of a response; an answer of 1,000 queries has some 30 MB."""


@frozen
class Reply:
    """A response; its signature was right where it has one.

    Attributes:
        status: of HTTP.
        content: the body.
        signed: whether the evaluator signed it; only a refusal may come without, and then from
            anybody on the way.
    """

    status: int
    content: bytes
    signed: bool

    @property
    def told(self) -> dict[str, Any]:
        """The JSON object that it holds; empty where it holds something else."""
        try:
            found = load_json(self.content)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@frozen
class Sink:
    """A file for a large answer; what it holds is nobody's word before the call returns.

    Attributes:
        path: of the file, which is written anew by every try.
        most: bytes of the answer.
    """

    path: Path
    most: int

    def take(self, pieces: Iterator[bytes]) -> str:
        """Writes an answer; returns its SHA-256, hexadecimal.

        Raises:
            ServiceError: it is longer than it may be.
        """
        hashed, size = hashlib.sha256(), 0
        with placed(self.path), self.path.open("wb") as file:
            for piece in pieces:
                size += len(piece)
                if size > self.most:
                    raise ServiceError(f"the answer has more than {self.most} bytes")
                hashed.update(piece)
                file.write(piece)
        return hashed.hexdigest()


class Channel:
    """Calls a service as one member.

    Args:
        url: of the service.
        member: that calls.
        circle: manifest of the federation, or whatever else has a fingerprint and its members'
            keys, the service's among them.
        recipient: name of the service among the members.
        authority: PEM file of the certificate authority; None trusts the system's.
        insecure: allow plain HTTP beyond loopback.
        patience: seconds that a call is repeated while the evaluator is away or busy.
        proxy: http(s)://HOST:PORT to call through; None calls directly, whatever the environment's
            variables say: they may have been set for other programs.

    Raises:
        InputError: the URL or the proxy's may not be used so.
    """

    def __init__(
        self,
        url: str,
        member: Member,
        circle: Manifest | Circle,
        *,
        recipient: str = RECIPIENT,
        authority: Path | None = None,
        insecure: bool = False,
        patience: float = 60.0,
        proxy: str | None = None,
    ) -> None:
        self._url = check_url(url, insecure=insecure)
        self._member, self._patience = member, patience
        self._recipient, self._federation = recipient, circle.fingerprint
        self._keys = signature_keys(circle) if isinstance(circle, Manifest) else circle.members
        # Reading the system's authorities takes a while, and plain HTTP has no use for them.
        tls = self._url.startswith("https:")
        verify = tls_context(authority) if tls else False
        self._direct = proxy is None
        self._http = httpx.Client(
            verify=verify,
            timeout=TIME_OUT,
            follow_redirects=False,
            trust_env=False,
            proxy=None if proxy is None else check_proxy(proxy),
        )

    def call(self, method: str, path: str, body: bytes | Path = b"") -> Reply:
        """One request, repeated with a fresh signature while it cannot be granted for now.

        Args:
            method: of HTTP.
            path: below /v1/FEDERATION, with its query string.
            body: of the request, or its file, which is read in pieces.

        Raises:
            ServiceError: the evaluator cannot be reached, or the response is not its own. At once
                where waiting would not help: its certificate is not trusted, or one side speaks
                TLS and the other does not.
        """
        return self._repeated(method, path, body, None)

    def fetch(self, path: str, sink: Sink, *, what: str) -> Reply:
        """As `heard`, a GET whose answer goes to a file where it is no refusal."""
        return self._own_words(self._repeated("GET", path, b"", sink), what)

    def _repeated(self, method: str, path: str, body: bytes | Path, sink: Sink | None) -> Reply:
        end, pause = time.monotonic() + self._patience, 0.2
        while True:
            problem = "busy"
            try:
                reply, headers = self._send(method, path, body, sink)
            except httpx.TransportError as error:
                lasting = lasting_cause(error, self._url, direct=self._direct)
                if lasting is not None:
                    raise ServiceError(f"{self._recipient} {self._url}: {lasting}") from None
                problem = f"cannot be reached ({type(error).__name__}); is it running?"
            else:
                if not _passing(reply):
                    return reply
                if not reply.signed:
                    problem = f"{reply.status} without its signature, as of a proxy on the way"
                elif _text(reply):
                    problem = f"busy: {_text(reply)}"
                after = headers.get("retry-after", "")
                pause = max(pause, float(after) if after.isdigit() else 0.0)
            if time.monotonic() + pause > end:
                where = f"{self._recipient} {self._url}"
                raise AwayError(f"{where}: for {self._patience:.0f} s {problem}")
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def heard(self, method: str, path: str, body: bytes | Path = b"", *, what: str) -> Reply:
        """As `call`, where only the evaluator's own words count.

        Raises:
            ServiceError: as `call`, or the response is not signed.
        """
        return self._own_words(self.call(method, path, body), what)

    def _own_words(self, found: Reply, what: str) -> Reply:
        if not found.signed:
            raise ServiceError(
                f"{what}: {found.status} without the {self._recipient}'s signature; it does not"
                f" know this member, or something on the way answered: {_text(found)}"
            )
        return found

    def expect(self, method: str, path: str, body: bytes | Path = b"", *, what: str) -> bytes:
        """The body of a call that succeeds.

        Raises:
            ServiceError: as `call`, or the evaluator refused; `what` says what was asked.
        """
        return self.granted(method, path, body, what=what).content

    def granted(self, method: str, path: str, body: bytes | Path = b"", *, what: str) -> Reply:
        """The reply to a call that succeeds.

        Raises:
            ServiceError: as `expect`.
        """
        found = self.call(method, path, body)
        if found.status >= 300:
            unsigned = "" if found.signed else ", unsigned"
            raise ServiceError(
                f"{what}: the {self._recipient} refused ({found.status}{unsigned}): {_text(found)}"
            )
        return found

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """The channel."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def _send(
        self, method: str, path: str, content: bytes | Path, sink: Sink | None = None
    ) -> tuple[Reply, httpx.Headers]:
        target, body = f"/v1/{self._federation}{path}", _Body.of(content)
        claims = request_of(
            *(self._member, self._recipient, self._federation, method, target),
            *(body.digest, body.length),
        )
        headers = {"Authorization": f"{SCHEME} {signed(self._member, claims)}"}
        url, large = self._url + target, isinstance(body.content, Path)
        if large:
            headers["Content-Length"] = str(body.length)
        with self._http.stream(
            method,
            url,
            content=body.pieces(),
            headers=headers,
            timeout=httpx.Timeout(TIME_OUT, read=LARGE_TIME_OUT if large else TIME_OUT),
        ) as response:
            if sink is not None and response.status_code == 200:
                found, digest = b"", sink.take(response.iter_raw())
            else:
                found = _capped(response)
                digest = hashlib.sha256(found).hexdigest()
        # Only a refusal may be without a signature, by who does not know the sender.
        is_signed = REPLY_HEADER in response.headers
        if is_signed or response.status_code < 400:
            self._check(claims, response, digest)
        return Reply(response.status_code, found, is_signed), response.headers

    def _check(self, request: Request, response: httpx.Response, digest: str) -> None:
        token, claims = read_token(response.headers.get(REPLY_HEADER, ""), Response)
        expected = Response(
            sender=self._recipient,
            nonce=request.nonce,
            status=response.status_code,
            body=digest,
        )
        if claims != expected:
            raise ServiceError(
                f"{self._recipient} {self._url}: its response answers something else"
            )
        token.check(self._keys)


@frozen
class _Body:
    """What is sent, as often as it takes.

    Attributes:
        content: the bytes, or their file.
        digest: SHA-256, hexadecimal.
        length: bytes.
    """

    content: bytes | Path
    digest: str
    length: int

    @classmethod
    def of(cls, content: bytes | Path) -> Self:
        """Of bytes or a file, which is read once for its digest."""
        if isinstance(content, Path):
            return cls(content, digest_of(content), content.stat().st_size)
        return cls(content, hashlib.sha256(content).hexdigest(), len(content))

    def pieces(self) -> bytes | Iterator[bytes]:
        """The bytes, or those of the file one after the other."""
        return self._read(self.content) if isinstance(self.content, Path) else self.content

    @staticmethod
    def _read(path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _capped(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > LARGEST:
            raise ServiceError(f"the evaluator sends more than {LARGEST} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _passing(reply: Reply) -> bool:
    """Whether a refusal is one of the moment, so that the call is repeated."""
    if reply.status in (429, 503):
        return True
    if not reply.signed:
        return reply.status >= 500
    # Something on the way sent the request twice, and the second was heard first.
    return reply.status == 409 and reply.told.get("reason") == "replayed"


def _text(reply: Reply) -> str:
    # Of an unsigned refusal nothing is believed; it is shown to a person, short.
    detail = reply.told.get("detail")
    text = detail if isinstance(detail, str) else reply.content[:300].decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text[:300]).split())

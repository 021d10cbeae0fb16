"""Signed requests and responses: who speaks, to whom, in which federation, about which bytes.

A request carries its claims and a signature over them in the header `Authorization`, so that the
evaluator knows the sender before it reads the body. A response carries its own in the header
`Securefl-Signature`, bound to the request by its nonce. Claims hold the body's SHA-256.
"""

import base64
import binascii
import hashlib
import json
import secrets
import time
from typing import TypeVar

import attrs
from attrs import frozen

from fhe.envelope import load_json
from secure_fl.crypto.keys import SIGNATURE, Directory, verify
from secure_fl.errors import ProtocolError, ServiceError
from secure_fl.service.members import Member

SCHEME = "Securefl"
REPLY_HEADER = "Securefl-Signature"
MAX_TOKEN = 4096
LIFETIME = 60.0
"""Seconds that a request is valid before and after the time it names; clocks may differ so much."""


@frozen(kw_only=True)
class Request:
    """What the sender of a request claims.

    Attributes:
        sender: member that signs.
        recipient: member that it is meant for.
        federation: fingerprint of the manifest.
        method: of HTTP.
        target: path and query string.
        body: SHA-256, hexadecimal.
        length: of the body, bytes.
        issued: seconds since 1970.
        nonce: 32 hexadecimal digits, drawn for this request alone.
    """

    sender: str
    recipient: str
    federation: str
    method: str
    target: str
    body: str
    length: int
    issued: float
    nonce: str


@frozen(kw_only=True)
class Response:
    """What the sender of a response claims.

    Attributes:
        sender: member that signs.
        nonce: of the request.
        status: of HTTP.
        body: SHA-256, hexadecimal.
    """

    sender: str
    nonce: str
    status: int
    body: str


Claims = TypeVar("Claims", Request, Response)


def new_request(
    member: Member, recipient: str, federation: str, method: str, target: str, body: bytes
) -> Request:
    """Claims of a request that is sent now."""
    digest = hashlib.sha256(body).hexdigest()
    return request_of(member, recipient, federation, method, target, digest, len(body))


def request_of(
    member: Member,
    recipient: str,
    federation: str,
    method: str,
    target: str,
    digest: str,
    length: int,
) -> Request:
    """As `new_request`, of a body that is not in memory."""
    return Request(
        sender=member.name,
        recipient=recipient,
        federation=federation,
        method=method,
        target=target,
        body=digest,
        length=length,
        issued=time.time(),
        nonce=secrets.token_hex(16),
    )


def signed(member: Member, claims: Request | Response) -> str:
    """The header's value: claims and signature, each in base64."""
    text = json.dumps(attrs.asdict(claims), sort_keys=True).encode()
    signature = member.identity.sign(_label(type(claims)), text)
    return ".".join(base64.urlsafe_b64encode(part).decode() for part in (text, signature))


@frozen
class Token:
    """Claims that nobody has checked yet.

    Attributes:
        claims: as they were sent.
        text: the bytes that are signed.
        signature: 64 bytes.
    """

    claims: Request | Response
    text: bytes
    signature: bytes

    def check(self, directory: Directory) -> None:
        """Checks the signature by the key of the member that the claims name.

        Raises:
            ServiceError: no such member, or not its signature.
        """
        try:
            verify(
                directory,
                self.claims.sender,
                self.signature,
                _label(type(self.claims)),
                self.text,
            )
        except ProtocolError:
            raise ServiceError("its signature is not that of the member it names") from None


def read_token(value: str, kind: type[Claims]) -> tuple[Token, Claims]:
    """Parses a header's value.

    Raises:
        ServiceError: it holds something else.
    """
    try:
        if len(value) > MAX_TOKEN:
            raise ValueError
        parts = [base64.b64decode(part, b"-_", validate=True) for part in value.split(".")]
        text, signature = parts
        found = load_json(text)
        kinds = {field.name: field.type for field in attrs.fields(kind)}
        if len(signature) != SIGNATURE or {k: type(v) for k, v in found.items()} != kinds:
            raise ValueError
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise ServiceError("its signature header cannot be read") from None
    claims = kind(**found)
    return Token(claims, text, signature), claims


def _label(kind: type) -> bytes:
    return b"service " + kind.__name__.encode()

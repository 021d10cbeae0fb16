"""What the evaluator's routes have in common, as its OpenAPI schema shows it."""

from typing import Annotated, Any

from fastapi import Path

from secure_fl.service.signing import SCHEME

FederationName = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Fingerprint.")]
BatchName = Annotated[str, Path(pattern="^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]

SIGNED: dict[str, Any] = {"security": [{SCHEME: []}]}
BINARY: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
}

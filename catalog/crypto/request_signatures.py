"""Signs and verifies HTTP requests, so that an engine proves that it holds its key.

One profile of HTTP Message Signatures, and nothing beside it:

    Content-Digest: sha-256=:BASE64:
    Signature-Input: lakewarden=("@method" "@path" "@query" "authorization" "content-digest")
        ;created=SECONDS;nonce="…";keyid="UUID";alg="ed25519";tag="lakewarden-engine"
    Signature: lakewarden=:BASE64:

- The signature covers the method, path and query as they are sent, the user's bearer token, and the body by
  its SHA-256 (an empty body has one too). A request with an `Idempotency-Key` covers that as well, behind
  "authorization". Components, parameters and their order are fixed.
- The host is not covered, so that proxies can rename it: a key is known to one catalog alone. A catalog whose
  address has a path signs what follows it.
- Whether the time and the nonce are good is decided by `catalog.authorization.engine_keys`.

Source: RFC 9421, sections 2.2 (derived components), 2.5 (signature base), 3.3.6 (ed25519) and 4; RFC 9530,
section 2 (Content-Digest).
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from policy.errors import NotAuthenticated

SIGNATURE_INPUT: Final = "Signature-Input"
SIGNATURE: Final = "Signature"
CONTENT_DIGEST: Final = "Content-Digest"
#: The rule of every refused signature.
RULE: Final = "engine-signature"

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_LABEL: Final = "lakewarden="
_PARAMETERS: Final = re.compile(
    r'\("@method" "@path" "@query" "authorization"(?: "idempotency-key")? "content-digest"\)'
    r";created=([1-9][0-9]{0,11})"
    r';nonce="([A-Za-z0-9_-]{22})"'
    r';keyid="([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"'
    r';alg="ed25519";tag="lakewarden-engine"',
    re.ASCII,
)
_DIGEST: Final = "sha-256="


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The parts of a request that a signature covers, besides its own parameters.

    Attributes:
        method: in upper case.
        path: as it is sent, not decoded.
        query: as it is sent, without the question mark; empty if there is none.
        authorization: the value of the header, with the user's token.
        idempotency_key: the value of the header, or None.
        body_sha256: of the body.
    """

    method: str
    path: str
    query: str
    authorization: str
    idempotency_key: str | None
    body_sha256: bytes

    @property
    def components(self) -> Mapping[str, str]:
        """Return the covered components by name and in order."""
        key = {} if self.idempotency_key is None else {"idempotency-key": self.idempotency_key}
        return {
            "@method": self.method,
            "@path": self.path,
            "@query": f"?{self.query}",
            "authorization": self.authorization,
            **key,
            "content-digest": f"{_DIGEST}{_binary(self.body_sha256)}",
        }


@dataclass(frozen=True, slots=True)
class SignatureParameters:
    """The parameters of a signature.

    Attributes:
        created: when it was made, in seconds since 1970.
        nonce: 128 random bits in base64url; no two signatures of a key have the same.
        key_id: the key that it was made with.
    """

    created: int
    nonce: str
    key_id: uuid.UUID

    @classmethod
    def new(cls, key_id: uuid.UUID, created: int) -> Self:
        """Return new parameters."""
        return cls(created, secrets.token_urlsafe(16), key_id)

    def of(self, request: SignedRequest) -> str:
        """Return the parameters with the components that they cover."""
        names = " ".join(f'"{name}"' for name in request.components)
        return (
            f'({names});created={self.created};nonce="{self.nonce}";keyid="{self.key_id}"'
            ';alg="ed25519";tag="lakewarden-engine"'
        )


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """A signature with its parameters, and their text as it was sent."""

    parameters: SignatureParameters
    text: str
    value: bytes

    @classmethod
    def parse(cls, signature_input: str, signature: str) -> Self:
        """Read the two headers.

        Raises:
            NotAuthenticated: they are not of this profile.
        """
        labelled = signature_input.startswith(_LABEL) and signature.startswith(_LABEL)
        text = signature_input.removeprefix(_LABEL)
        matched = _PARAMETERS.fullmatch(text) if labelled else None
        value = _bytes_of(signature.removeprefix(_LABEL))
        if matched is None or value is None:
            raise refused(f"{SIGNATURE_INPUT} or {SIGNATURE} does not have the form that engines send.")
        return cls(SignatureParameters(int(matched[1]), matched[2], uuid.UUID(matched[3])), text, value)

    def is_by(self, public_key: bytes, request: SignedRequest) -> bool:
        """Return whether the holder of a key signed all of this request.

        Args:
            public_key: 32 bytes (RFC 8032, section 5.1.5).
            request: as it was received.
        """
        if self.text != self.parameters.of(request):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(self.value, _base(request, self.parameters))
        except InvalidSignature:
            return False
        return True


def sign(
    request: SignedRequest, key: Ed25519PrivateKey, parameters: SignatureParameters
) -> Mapping[str, str]:
    """Return the headers of a signed request."""
    signature = key.sign(_base(request, parameters))
    return {
        CONTENT_DIGEST: f"{_DIGEST}{_binary(request.body_sha256)}",
        SIGNATURE_INPUT: f"{_LABEL}{parameters.of(request)}",
        SIGNATURE: f"{_LABEL}{_binary(signature)}",
    }


def digest_in(header: str) -> bytes:
    """The SHA-256 in a `Content-Digest` header.

    Raises:
        NotAuthenticated: it holds anything else.
    """
    digest = _bytes_of(header.removeprefix(_DIGEST))
    if not header.startswith(_DIGEST) or digest is None:
        raise refused(f"{CONTENT_DIGEST} must hold exactly one sha-256 digest.")
    return digest


def refused(problem: str) -> NotAuthenticated:
    """The error for a signature that is not valid."""
    return NotAuthenticated(
        problem,
        rule=RULE,
        hint="Sign the request as described in docs/rest-api.md, and check that proxies do not change it.",
    )


def _base(request: SignedRequest, parameters: SignatureParameters) -> bytes:
    """The signature base (RFC 9421, section 2.5)."""
    signed = {**request.components, "@signature-params": parameters.of(request)}
    return "\n".join(f'"{name}": {value}' for name, value in signed.items()).encode("latin-1")


def _binary(value: bytes) -> str:
    """Encode a byte sequence of structured fields (RFC 8941, section 3.3.5)."""
    return f":{base64.b64encode(value).decode('ascii')}:"


def _bytes_of(text: str) -> bytes | None:
    """Parse a byte sequence; None if the text is not canonical."""
    try:
        value = base64.b64decode(text.removeprefix(":").removesuffix(":"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if _binary(value) == text else None

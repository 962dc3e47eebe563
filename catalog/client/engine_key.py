"""The engine's key in this process: generated here, registered once, and used to sign each request.

The key follows the catalog's clock, as far as the catalog says that it is another than this host's, and no
further than `MAX_CORRECTION_S`.

Source: docs/rest-api.md, "Engines that sign".
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from catalog.client.errors import not_the_catalog
from catalog.crypto.request_signatures import IDEMPOTENCY_KEY, SignatureParameters, SignedRequest, sign

#: Where a key is registered, below the catalog's address.
REGISTER: Final = "/engine/v1/keys"
#: How far this host's clock can be from the catalog's, in seconds.
MAX_CORRECTION_S: Final = 600
_TIME: Final = "Lakewarden-Time"
_UNAUTHORIZED: Final = 401


class _Answer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


class EngineKey:
    """A private key, under the id that the catalog gave it."""

    def __init__(self, key_id: uuid.UUID, private: Ed25519PrivateKey) -> None:
        self._id = key_id
        self._private = private
        self._ahead_s = 0

    def __repr__(self) -> str:
        return f"EngineKey({self._id})"

    def signed(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> dict[str, str]:
        """The headers of a request with its signature.

        Args:
            method: in upper case.
            target: path and query below the catalog's address, encoded.
            body: None for none.
            headers: with `Authorization`, and `Idempotency-Key` if there is one.
        """
        path, _, query = target.partition("?")
        digest = hashlib.sha256(body or b"").digest()
        idempotency_key = headers.get(IDEMPOTENCY_KEY)
        request = SignedRequest(method, path, query, headers["Authorization"], idempotency_key, digest)
        parameters = SignatureParameters.new(self._id, int(time.time()) + self._ahead_s)
        return {**headers, **sign(request, self._private, parameters)}

    def corrected_by(self, answer: _Answer) -> bool:
        """Take over the time that a refusal gives; whether the request is to be signed and sent again."""
        said = answer.headers.get(_TIME, "") if answer.status == _UNAUTHORIZED else ""
        if not said.isascii() or not said.isdigit():
            return False
        ahead = int(said) - int(time.time())
        if abs(ahead) > MAX_CORRECTION_S:
            return False
        self._ahead_s = ahead
        return True


class EngineSigner:
    """Makes and registers the key of an engine at its first request; for threads.

    Args:
        bootstrap: the header with the engine's own token.
    """

    def __init__(self, bootstrap: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._private = Ed25519PrivateKey.generate()
        self._key: EngineKey | None = None
        self._lock = threading.Lock()

    def key(self, register: Callable[[Mapping[str, str], Mapping[str, str]], Mapping[str, Any]]) -> EngineKey:
        """The registered key.

        Args:
            register: sends a body with headers to `REGISTER` and returns the answer.

        Raises:
            LakewardenError: the catalog refuses the token.
            CatalogUnavailable: no answer, or not the catalog's.
        """
        with self._lock:
            if self._key is None:
                self._key = EngineKey(self._registered(register), self._private)
            return self._key

    def _registered(
        self, register: Callable[[Mapping[str, str], Mapping[str, str]], Mapping[str, Any]]
    ) -> uuid.UUID:
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        answer = register({"public-key": base64.b64encode(public).decode("ascii")}, self._bootstrap)
        try:
            return uuid.UUID(answer["key-id"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise not_the_catalog() from None

"""A KMS behind HTTP with a client for it, as small as they can be: the local KMS, in another thread."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import UUID

import httpx

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.local import LocalKms
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, LakewardenError
from tests.support.fault_proxy import Dialect, Fault

_STATUS: dict[type[LakewardenError], int] = {KeyNotUsable: 403, DecryptionRefused: 422, KmsUnavailable: 503}
_JSON = "application/json"


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unpacked(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _packed_context(context: KeyContext) -> dict[str, str]:
    return {"catalog": context.catalog, "table": str(context.table_uuid)}


def _unpacked_context(document: dict[str, str]) -> KeyContext:
    return KeyContext(document["catalog"], UUID(document["table"]))


class KmsServer:
    """Answers requests by a local KMS.

    Args:
        kms: the local KMS.
    """

    def __init__(self, kms: LocalKms) -> None:
        self._kms = kms

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        given = json.loads(asked.rfile.read(int(asked.headers["Content-Length"])))
        try:
            status, document = 200, self._answer(asked.path, given)
        except LakewardenError as error:
            status, document = _STATUS[type(error)], {}
        content = json.dumps(document).encode()
        asked.send_response(status)
        asked.send_header("Content-Length", str(len(content)))
        asked.end_headers()
        asked.wfile.write(content)

    def _answer(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        if path == "/rewrap":
            items = [(_unpacked(each["wrapped"]), _unpacked_context(each)) for each in given["items"]]
            return {"wrapped": [_packed(each) for each in self._kms.rewrap_keys(items)]}
        context = _unpacked_context(given)
        if path == "/create":
            made = self._kms.create_key(given["master"], given["length"], context)
            return {"wrapped": _packed(made.wrapped), "key": _packed(made.key.reveal())}
        return {"key": _packed(self._kms.get_key(_unpacked(given["wrapped"]), context).reveal())}


class HttpKms(KmsClient):
    """The client: one attempt, a timeout for each wait, everything unexpected is `KmsUnavailable`.

    Args:
        url: the server's address.
        timeout_s: bound of each wait for bytes.
    """

    identifier = "http"

    def __init__(self, url: str, timeout_s: float = 0.5) -> None:
        self._client = httpx.Client(base_url=url, timeout=timeout_s)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        answer = self._post("create", master=master_key_id, length=length, **_packed_context(context))
        return CreatedKey(_bytes(answer, "wrapped"), SecretBytes(_bytes(answer, "key")))

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        answer = self._post("unwrap", wrapped=_packed(wrapped), **_packed_context(context))
        return SecretBytes(_bytes(answer, "key"))

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        given = [{"wrapped": _packed(wrapped), **_packed_context(context)} for wrapped, context in items]
        return [_unpacked(each) for each in self._post("rewrap", items=given)["wrapped"]]

    def _post(self, what: str, **given: Any) -> dict[str, Any]:
        try:
            answer = self._client.post(f"/{what}", json=given)
            document = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            raise KmsUnavailable("The KMS does not answer.", rule="kms", hint="Mend it.") from None
        if answer.status_code == 403:
            raise KeyNotUsable("The master key cannot be used.", rule="master-key")
        if answer.status_code == 422:
            raise DecryptionRefused("The wrapped key does not open.", rule="wrapped-key")
        if answer.status_code != 200 or not isinstance(document, dict):
            raise KmsUnavailable("The KMS does not answer as it should.", rule="kms", hint="Mend it.")
        return document


def _bytes(document: dict[str, Any], name: str) -> bytes:
    try:
        return _unpacked(document[name])
    except (KeyError, TypeError, ValueError):
        raise KmsUnavailable("The KMS does not answer as it should.", rule="kms", hint="Mend it.") from None


def _with_key(content: bytes, key: bytes) -> bytes:
    return json.dumps({**json.loads(content), "key": _packed(key)}).encode()


DIALECT = Dialect(
    {
        Fault.THROTTLED: (429, _JSON, b'{"message": "slow down"}'),
        Fault.BROKEN: (500, "text/html", b"<h1>Internal error</h1>"),
        Fault.EXPIRED: (401, _JSON, b'{"message": "token expired"}'),
        Fault.GARBAGE: (200, _JSON, b"\x00\xff{{{"),
        Fault.EMPTY: (200, _JSON, b""),
    },
    _with_key,
)

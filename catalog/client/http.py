"""Sends requests to the catalog over HTTP.

- Only the address given is asked: no redirect is followed, no proxy of the environment taken.
- Another host is asked over TLS alone, since each request carries a token.
- A request is sent once more when the connection broke before the answer. It carries an idempotency key, so
  that it takes effect once; operations that do not heed the key are asked once (`ask`). What may have been
  done, and was not answered, is `CommitStateUnknown`.
- Tokens stand in headers alone, and in no error or repr.
- An engine's token is sent once, to register a key that is made here; requests are then signed with that key.

Source: docs/rest-api.md.
"""

from __future__ import annotations

import io
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID, uuid4

import urllib3
from urllib3.exceptions import ConnectTimeoutError as ConnectTimeout
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError
from urllib3.response import BaseHTTPResponse

from catalog.base.addresses import is_private_way
from catalog.base.ca_files import why_unusable
from catalog.base.identifiers import TableName
from catalog.client.engine_key import REGISTER, EngineSigner
from catalog.client.errors import CatalogUnavailable, not_the_catalog, refusal
from catalog.crypto.request_signatures import IDEMPOTENCY_KEY
from policy.errors import CommitStateUnknown, LakewardenError, NotAuthenticated, RequestInvalid

#: Operations of which nothing is left if they are not answered: they read, or begin what expires.
_HARMLESS: Final = frozenset({"load", "plan", "writes"})
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 300.0
_LONGEST_ANSWER: Final = 512 << 20
#: The variable that names a file of certificate authorities, in PEM; the Spark extension takes it, too.
CA_FILE: Final = "LAKEWARDEN_CA_FILE"


def table_path(table: TableName, operation: str) -> tuple[str, ...]:
    """The address of an operation for engines on a table."""
    return ("engine", "v1", "tables", "\x1f".join(table.namespace), table.name, operation)


class CatalogClient:
    """A user's way to the catalog.

    Args:
        uri: the address of the service, such as ``https://lake.example``.
        token: the user's token.
        engine_token: the token of an engine that acts for the user; None for the user's own process. The
            first request registers a key with it.
        ca_file: authorities that the service's certificate is checked against. By default those in the file
            that `LAKEWARDEN_CA_FILE` names, else those of the system.

    Raises:
        RequestInvalid: the address is none, or another host's without TLS; or the authorities cannot be read.
        NotAuthenticated: a token with characters that no token has.
    """

    def __init__(
        self, uri: str, token: str, engine_token: str | None = None, ca_file: Path | None = None
    ) -> None:
        self._base = _address(uri)
        self._headers = _bearer(token)
        self._engine = None if engine_token is None else EngineSigner(_bearer(engine_token))
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
        self._pool = urllib3.PoolManager(
            retries=False, timeout=timeout, maxsize=16, ca_certs=authorities(ca_file)
        )

    def __repr__(self) -> str:
        return f"CatalogClient({self._base})"

    @property
    def is_engine(self) -> bool:
        """Whether an engine's credential signs the requests; else this is a user's own process."""
        return self._engine is not None

    def post(self, path: Sequence[str], body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask for something; the answer is a JSON object.

        Raises:
            LakewardenError: the catalog's refusal, as the class that it names.
            CatalogUnavailable: no answer, or not the catalog's.
            CommitStateUnknown: the connection broke, and something may have been changed.
        """
        document = self.ask("POST", path, body)
        if document is None:
            raise not_the_catalog("not a JSON object")
        return document

    def ask(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
        *,
        again: bool = True,
    ) -> dict[str, Any] | None:
        """Send a request; the answer is a JSON object, or None if it has no content.

        Args:
            method: the HTTP method.
            path: the names in the address of the operation.
            body: the JSON object to send.
            query: the query; what has no value is left out.
            again: whether the operation can be repeated, so that the request is sent once more.

        Raises:
            LakewardenError: as in `post`.
        """
        with self._answer(method, path, body, query, again=again) as answer:
            content = _whole(answer)
        document = _json(content)
        if content and not isinstance(document, dict):
            raise not_the_catalog("not a JSON object")
        return cast(dict[str, Any] | None, document)

    def read(self, path: Sequence[str], query: Mapping[str, object] | None = None) -> tuple[bytes, str]:
        """Ask for a document, byte for byte, with its `ETag` without quotes. Errors as in `post`."""
        with self._answer("GET", path, None, query) as answer:
            return _whole(answer), answer.headers.get("ETag", "").strip('"')

    @contextmanager
    def stream(self, path: Sequence[str], body: Mapping[str, Any]) -> Iterator[io.BufferedIOBase]:
        """Ask for a stream of bytes; errors as in `post`."""
        with self._answer("POST", path, body) as answer, _reached(self._base):
            yield cast(io.BufferedIOBase, answer)

    def delete(self, path: Sequence[str]) -> None:
        """Ask for something to be given up; errors as in `post`."""
        self.ask("DELETE", path)

    @contextmanager
    def _answer(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None,
        query: Mapping[str, object] | None = None,
        *,
        again: bool = True,
    ) -> Iterator[BaseHTTPResponse]:
        # An address that ends in a name, such as that of a table `plan`, takes other methods.
        harmless = method == "GET" or (method == "POST" and path[-1] in _HARMLESS)
        lost = _unreached if harmless else _unanswered
        answer = self._send(method, _target(path, query), body, lost, again=again or harmless)
        try:
            if answer.status // 100 != 2:
                raise refusal(answer.status, _json(_whole(answer)))
            yield answer
        finally:
            answer.close()

    def _send(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None,
        lost: Callable[[str], LakewardenError],
        *,
        again: bool,
    ) -> BaseHTTPResponse:
        key = str(_new_key())
        try:
            return self._once(method, target, body, key)
        except (NewConnectionError, ConnectTimeout) as error:
            raise _unreached(self._base) from error
        except HTTPError as error:
            if _is_untrusted(error):
                raise _untrusted(self._base) from error
            if not again:
                raise lost(self._base) from error
        try:
            return self._once(method, target, body, key)
        except HTTPError as error:
            raise lost(self._base) from error

    def _once(
        self, method: str, target: str, body: Mapping[str, Any] | None, idempotency_key: str
    ) -> BaseHTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, IDEMPOTENCY_KEY: idempotency_key}
        if self._engine is None:
            return self._request(method, target, content, headers)
        key = self._engine.key(self._register)
        answer = self._request(method, target, content, key.signed(method, target, content, headers))
        if not key.corrected_by(answer):
            return answer
        answer.close()
        return self._request(method, target, content, key.signed(method, target, content, headers))

    def _register(self, body: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, Any]:
        with _reached(self._base):
            answer = self._request("POST", REGISTER, json.dumps(body).encode(), headers)
        try:
            document = _json(_whole(answer))
        finally:
            answer.close()
        if answer.status != 200 or not isinstance(document, dict):
            raise refusal(answer.status, document)
        return document

    def _request(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> BaseHTTPResponse:
        """One request; `target` is the path below the catalog's address."""
        declared = {} if content is None else {"Content-Type": "application/json"}
        return self._pool.request(
            method,
            self._base + target,
            body=content,
            headers={**headers, **declared},
            redirect=False,
            preload_content=False,
        )


def _target(path: Sequence[str], query: Mapping[str, object] | None) -> str:
    """The address of an operation, below the catalog's; what the query has no value for is left out."""
    asked = urlencode({name: value for name, value in (query or {}).items() if value is not None})
    return "".join(f"/{quote(each, safe='')}" for each in path) + (f"?{asked}" if asked else "")


def _new_key() -> UUID:
    """A UUIDv7 (RFC 9562, section 5.7)."""
    variant_and_random = uuid4().int & (1 << 76) - 1
    return UUID(int=time.time_ns() // 1_000_000 << 80 | 7 << 76 | variant_and_random)


@contextmanager
def _reached(base: str) -> Iterator[None]:
    """Says of an answer that broke off that the catalog cannot be reached."""
    try:
        yield
    except HTTPError as error:
        raise _unreached(base) from error


def _whole(answer: BaseHTTPResponse) -> bytes:
    with _reached("the catalog"):
        body = answer.read(_LONGEST_ANSWER + 1)
    if len(body) > _LONGEST_ANSWER:
        raise not_the_catalog(f"longer than {_LONGEST_ANSWER} bytes")
    return body


def _json(body: bytes) -> object:
    """The body as JSON; None if it is none."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def _address(uri: str) -> str:
    """The address without a slash at its end.

    Credentials and queries have no place in it, since messages show it.
    """
    if not _is_address(uri):
        raise RequestInvalid(
            "The catalog's address is not an http or https URL with a host and a port.",
            rule="catalog-uri",
            hint="Use an address such as http://127.0.0.1:8181, and give the token separately.",
        )
    if not is_private_way(uri):
        raise RequestInvalid(
            f"The catalog's address {uri} is that of another host, and not https. The token would travel in "
            "plaintext.",
            rule="catalog-uri",
            hint="Use an https address. docs/operations.md, TLS, says how to serve one.",
        )
    return uri.rstrip("/")


def authorities(ca_file: Path | None) -> str | None:
    """The file of authorities, or that of the environment; None for those of the system.

    Raises:
        RequestInvalid: it cannot be read.
    """
    named = ca_file or os.environ.get(CA_FILE)
    if not named:
        return None
    if why_unusable(Path(named)) is not None:
        raise RequestInvalid(
            f"The certificate authorities in {named} cannot be read.",
            rule="ca-file",
            hint=f"Name a PEM file with `ca_file` or {CA_FILE}.",
        )
    return str(named)


def _is_address(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    if not token or not all("!" <= each <= "~" for each in token):
        raise NotAuthenticated(
            "The token is empty or contains invalid characters.",
            rule="token",
            hint="Pass the token as it was issued, without spaces and line breaks.",
        )
    return {"Authorization": f"Bearer {token}"}


def _is_untrusted(error: HTTPError) -> bool:
    """Whether the certificate was refused, so that nothing was sent."""
    return isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError)


def _untrusted(base: str) -> CatalogUnavailable:
    return CatalogUnavailable(
        f"The certificate of the catalog at {base} is not trusted.",
        rule="catalog-certificate",
        hint=f"Check the address, and name the authority of its certificate with `ca_file` or {CA_FILE}.",
    )


def _unreached(base: str) -> CatalogUnavailable:
    return CatalogUnavailable(
        f"The catalog at {base} cannot be reached, or the connection broke.",
        rule="catalog",
        hint="Check that the service is running, and try again.",
    )


def _unanswered(base: str) -> CommitStateUnknown:
    return CommitStateUnknown(
        f"The connection to the catalog at {base} broke before a response arrived.",
        rule="catalog",
        hint="The change might have taken effect. Check whether it has before you try again.",
    )

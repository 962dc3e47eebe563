"""Signs S3 requests with the catalog's own credentials, by Signature Version 4 in a header.

Credentials come from botocore. The signature is computed here: botocore's own takes longer than all of the
decision before it. A test compares the two.

- Path and query are signed as they stand. S3 encodes them once more before it verifies; an address that is
  encoded in another way does not match, and is refused there.
- Every header that the request is known to have is signed (`s3_requests`).

Source: Amazon S3 API Reference, "Signature Calculations for the Authorization Header".
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from catalog.settings.sections import S3Settings
from catalog.storage_access.s3_requests import CONTENT_SHA256, S3Request
from policy.errors import NotSupportedYet, StorageUnavailable

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class BotoSigner:
    """Signs with credentials of botocore.

    Args:
        settings: region, and fixed credentials; without these, the standard chain of the AWS SDK applies.
        now: the time, with a zone.

    Raises:
        NotSupportedYet: botocore is not installed.
    """

    def __init__(self, settings: S3Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        try:
            from botocore import session
        except ModuleNotFoundError:
            raise NotSupportedYet(
                "Signing requests to S3 needs botocore, which is not installed.",
                rule="s3-signing",
                hint="Run `pip install 'lakewarden[aws]'`, or set s3.signing to false.",
            ) from None
        self._region = settings.region or ""
        self._now = now
        self._session = session.Session()
        if settings.access_key_id is not None and settings.secret_access_key is not None:
            self._session.set_credentials(
                settings.access_key_id, settings.secret_access_key.get_secret_value()
            )

    def sign(self, request: S3Request) -> dict[str, str]:
        """Return the headers that a request has to be sent with, by name in small letters.

        Raises:
            StorageUnavailable: the catalog has no credentials.
        """
        credentials, stamp = self._credentials(), self._now().astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {**request.headers, "x-amz-date": stamp, CONTENT_SHA256: request.payload}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        signed = {**headers, "host": _host(request.uri)}
        scope = (stamp[:8], self._region, "s3", "aws4_request")
        digest = hashlib.sha256(_canonical(request, signed).encode()).hexdigest()
        text = "\n".join((_ALGORITHM, stamp, "/".join(scope), digest))
        key = reduce(_hmac, scope, f"AWS4{credentials.secret_key}".encode())
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{'/'.join(scope)}, "
            f"SignedHeaders={';'.join(sorted(signed))}, Signature={_hmac(key, text).hex()}"
        )
        return headers

    def _credentials(self) -> ReadOnlyCredentials:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise StorageUnavailable(
                "The catalog has no credentials for S3.",
                rule="s3-signing",
                hint="Set s3.access_key_id and s3.secret_access_key, or give the process a role.",
            )
        return credentials.get_frozen_credentials()


def _canonical(request: S3Request, headers: Mapping[str, str]) -> str:
    """Return the request in the form that is signed."""
    address, names = urlsplit(request.uri), sorted(headers)
    pairs = sorted(each.partition("=")[::2] for each in address.query.split("&") if each)
    query = "&".join(f"{name}={value}" for name, value in pairs)
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in names]
    parts = (request.method, address.path or "/", query, *lines, "", ";".join(names), request.payload)
    return "\n".join(parts)


def _host(uri: str) -> str:
    """Return the host as clients send it: without the port of the scheme."""
    address = urlsplit(uri)
    return address.netloc.removesuffix(_DEFAULT_PORTS[address.scheme])


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")

"""Signatures of requests to S3 are those that botocore computes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from botocore import auth, awsrequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from catalog.settings.sections import S3Settings
from catalog.storage_access.s3_requests import Action, S3Request
from catalog.storage_access.signatures import BotoSigner
from policy.errors import StorageUnavailable
from policy.location.location import Location

KEY, SECRET, REGION = "AKIATESTING", "testing/secret+key", "eu-central-1"
AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
FILE = Location.parse("s3://b/k")
HOSTS = (
    "http://127.0.0.1:9000",
    "https://b.s3.eu-central-1.amazonaws.com",
    "https://s3.example:443",
    "http://h:80",
)
NAMES = ("x-amz-copy-source", "x-amz-checksum-crc32", "if-none-match", "content-md5", "x-amz-te")
PAYLOADS = ("UNSIGNED-PAYLOAD", "0" * 64, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")

encoded = st.text("aZ09-_.~/%2F+()' =".replace(" ", ""), max_size=12).map(
    lambda each: each.replace("%", "%25")
)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
queries = st.lists(
    st.tuples(st.sampled_from(["uploads", "uploadId", "x-id", "partNumber"]), encoded), max_size=3
)


class _Botocore(auth.S3SigV4Auth):  # type: ignore[misc]
    """botocore's signature of a request whose payload is given."""

    def payload(self, request: Any) -> str:
        """Return what the request says."""
        return str(request.context["payload"])


def _signer(settings: S3Settings) -> BotoSigner:
    return BotoSigner(settings, lambda: AT)


def _request(uri: str, headers: dict[str, str], payload: str, method: str = "PUT") -> S3Request:
    return S3Request(Action.CREATE, method, uri, (FILE,), None, headers, payload)


@given(
    host=st.sampled_from(HOSTS),
    path=encoded,
    query=queries,
    headers=st.dictionaries(st.sampled_from(NAMES), values),
    payload=st.sampled_from(PAYLOADS),
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    token=st.sampled_from([None, "a/session+token=="]),
)
def test_a_signature_is_that_of_botocore(
    host: str,
    path: str,
    query: list[tuple[str, str]],
    headers: dict[str, str],
    payload: str,
    method: str,
    token: str | None,
) -> None:
    parameters = "&".join(f"{name}={value}" if value else name for name, value in dict(query).items())
    uri = f"{host}/{path}" + (f"?{parameters}" if parameters else "")
    signer = _signer(S3Settings(region=REGION))
    signer._session.set_credentials(KEY, SECRET, token)
    given_ = signer.sign(_request(uri, headers, payload, method))
    made = awsrequest.AWSRequest(method=method, url=uri, headers=dict(headers))
    made.context["payload"] = payload
    with patch.object(auth, "get_current_datetime", lambda: AT.replace(tzinfo=None)):
        _Botocore(Credentials(KEY, SECRET, token), "s3", REGION).add_auth(made)
    assert given_ == {name.lower(): value for name, value in made.headers.items()}


def test_without_credentials_nothing_is_signed() -> None:
    signer = _signer(S3Settings(region=REGION, access_key_id=KEY, secret_access_key=SecretStr(SECRET)))
    assert SECRET not in str(signer.sign(_request("http://h/b/k", {}, PAYLOADS[0])))
    with patch.object(signer._session, "get_credentials", lambda: None), pytest.raises(StorageUnavailable):
        signer.sign(_request("http://h/b/k", {}, PAYLOADS[0]))

"""Requests that clients want signed are parsed strictly; what is not known to be harmless is refused."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.storage_access.s3_requests import Action, Asked, S3Request, Store, parse
from policy.errors import LocationInvalid, RequestInvalid
from policy.location.location import Location

OWN = Store("http://127.0.0.1:9000", "eu-central-1")
AMAZON = Store(None, "eu-central-1")
KEY = "http://127.0.0.1:9000/lake/t/data/f.parquet"
_COPY = {"x-amz-copy-source": "lake/t/data/g.parquet"}


def _parse(method: str, uri: str, store: Store = OWN, body: str | None = None, **headers: Any) -> S3Request:
    listed = {name: [value] if isinstance(value, str) else value for name, value in headers.items()}
    return parse(store, Asked(method, store.region, uri, listed, body))


@pytest.mark.parametrize(
    ("method", "uri", "headers", "action"),
    [
        (
            "GET",
            KEY,
            {"Range": "bytes=0-9", "If-Match": '"e"', "x-amz-checksum-mode": "ENABLED"},
            Action.READ,
        ),
        # As the AWS SDK for Java 2 sends it in Iceberg's S3FileIO.
        ("GET", KEY, {"x-amz-te": "append-md5", "amz-sdk-request": "attempt=1; max=6"}, Action.READ),
        ("HEAD", KEY, {}, Action.LOOK),
        ("PUT", KEY, {"x-amz-checksum-crc32": "AAAAAA=="}, Action.CREATE),
        ("PUT", KEY, _COPY, Action.CREATE),
        ("POST", f"{KEY}?uploads", {}, Action.BEGIN),
        ("PUT", f"{KEY}?uploadId=u%2B1&partNumber=1", {}, Action.PART),
        (
            "PUT",
            f"{KEY}?partNumber=1&uploadId=u",
            {**_COPY, "x-amz-copy-source-range": "bytes=0-9"},
            Action.PART,
        ),
        ("POST", f"{KEY}?uploadId=u", {}, Action.COMPLETE),
        ("DELETE", f"{KEY}?uploadId=u", {}, Action.ABORT),
        ("DELETE", KEY, {}, Action.DELETE),
    ],
)
def test_requests_that_tables_need(method: str, uri: str, headers: dict[str, str], action: Action) -> None:
    request = _parse(method, uri, **headers)
    assert request.action is action
    assert [str(each) for each in request.targets] == ["s3://lake/t/data/f.parquet"]
    assert (request.source is not None) == ("x-amz-copy-source" in headers)
    assert (request.headers.get("if-none-match") == "*") == (action in (Action.CREATE, Action.COMPLETE))


@pytest.mark.parametrize(
    ("store", "uri"),
    [
        (OWN, "http://127.0.0.1:9000/lake/t/f"),
        (AMAZON, "https://s3.eu-central-1.amazonaws.com/lake/t/f"),
        (AMAZON, "https://lake.s3.eu-central-1.amazonaws.com/t/f"),
        (AMAZON, "https://lake.s3.dualstack.eu-central-1.amazonaws.com/t/f"),
        (Store(None, "us-east-1"), "https://lake.s3.amazonaws.com/t/f"),
        (Store(None, "cn-north-1"), "https://lake.s3.cn-north-1.amazonaws.com.cn/t/f"),
    ],
)
def test_addresses_of_the_store(store: Store, uri: str) -> None:
    assert str(_parse("GET", uri, store).targets[0]) == "s3://lake/t/f"


@pytest.mark.parametrize(
    ("store", "uri"),
    [
        (OWN, "https://127.0.0.1:9000/lake/t/f"),
        (OWN, "http://127.0.0.1:9001/lake/t/f"),
        (OWN, "http://127.0.0.1/lake/t/f"),
        (OWN, "http://127.0.0.1:9000@evil.example/lake/t/f"),
        (OWN, "http://evil.example/?http://127.0.0.1:9000/lake/t/f"),
        (OWN, "http://lake.127.0.0.1:9000/other/f"),
        (OWN, "http://127.0.0.1:9000\\@evil/lake/t/f"),
        (OWN, "HTTP://127.0.0.1:9000/lake/t/f"),
        (OWN, "http://127.0.0.1:9000"),
        (OWN, "http://127.0.0.1:9000/lake"),
        (OWN, "http://127.0.0.1:9000/lake/"),
        (OWN, "http://127.0.0.1:9000//t/f"),
        (AMAZON, "http://s3.eu-central-1.amazonaws.com/lake/t/f"),
        (AMAZON, "https://s3.us-east-1.amazonaws.com/lake/t/f"),
        (AMAZON, "https://s3.amazonaws.com/lake/t/f"),
        (AMAZON, "https://lake.s3.eu-central-1.amazonaws.com.evil.example/t/f"),
        (AMAZON, "https://lakes3.eu-central-1.amazonaws.com/t/f"),
        (AMAZON, "https://.s3.eu-central-1.amazonaws.com/t/f"),
    ],
)
def test_addresses_of_others_and_confused_hosts(store: Store, uri: str) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        _parse("GET", uri, store)
    assert "evil" not in str(refusal.value)


@pytest.mark.parametrize(
    "path",
    [
        "t/../other/f",
        "t/%2e%2e/other/f",
        "t/%2E%2E%2fother/f",
        "t/./f",
        "t//f",
        "t/f/",
        "t/a+b",
        "t/a b",
        "t/é",
        "t/%ff",
        "t/%zz",
        "t/%",
        "t/a%00b",
        "t/a%0Ab",
        "t/a%5Cb",
        "t/a%3Fb",
        "t/a%23b",
        "t/f#x",
        "t/f?",
        "%2e%2e/f",
    ],
)
def test_ambiguous_keys(path: str) -> None:
    with pytest.raises(RequestInvalid):
        _parse("GET", f"http://127.0.0.1:9000/lake/{path}")


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3))
def test_a_key_is_decoded_once_and_names_one_location(names: list[str]) -> None:
    """With wildcards, quotes, encodings and any Unicode: the object of that name, or a refusal."""
    key = "/".join(names)
    try:
        uri = f"http://127.0.0.1:9000/lake/{quote(key, safe='/')}"
    except UnicodeEncodeError:
        return
    try:
        expected = Location.parse(f"s3://lake/{key}").canonical
    except LocationInvalid:
        expected = ""
    if expected != f"s3://lake/{key}":
        with pytest.raises(RequestInvalid):
            _parse("GET", uri)
    else:
        assert _parse("GET", uri).targets[0].canonical == expected


def test_wildcards_quotes_and_encodings_are_literal() -> None:
    for name in ("*", "x*y", "'a'", '"a"', "a%20b", "a%2Fb", "${*}", "a+b", "é", "日本", "a&b", "a=b"):
        found = _parse("GET", f"http://127.0.0.1:9000/lake/t/{quote(name, safe='')}").targets[0]
        assert found.canonical == f"s3://lake/t/{name}"


@pytest.mark.parametrize(
    "query",
    [
        "versionId=1",
        "response-content-type=text/html",
        "acl",
        "tagging",
        "retention",
        "legal-hold",
        "torrent",
        "attributes",
        "select&select-type=2",
        "restore",
        "X-Amz-Signature=0123456789abcdef",
        "x-id=ListBuckets",
        "uploads",
        "uploadId=",
        "uploads=1",
        "uploads&uploads",
        "partNumber=1",
        "uploadId=u&uploadId=v",
        "uploadId=u;versionId=1",
        "uploadId=u&",
        "&uploadId=u",
        "%75ploadId=u",
        "delete",
        "list-type=2",
    ],
)
def test_parameters_that_are_not_known(query: str) -> None:
    for method in ("GET", "HEAD", "PUT", "PATCH", "OPTIONS", "get"):
        with pytest.raises(RequestInvalid) as refusal:
            _parse(method, f"{KEY}?{query}")
        assert "0123456789abcdef" not in str(refusal.value)


def test_an_operation_that_the_address_names_is_the_one_of_the_request() -> None:
    """The SDKs for Go and JavaScript name the operation in `x-id`."""
    bucket = KEY.partition("/t/")[0]
    body = "<Delete><Object><Key>t/f</Key></Object></Delete>"
    named: list[tuple[str, str, str, dict[str, str], str | None]] = [
        ("GetObject", "GET", f"{KEY}?x-id=", {}, None),
        ("HeadObject", "HEAD", f"{KEY}?x-id=", {}, None),
        ("PutObject", "PUT", f"{KEY}?x-id=", {}, None),
        ("CopyObject", "PUT", f"{KEY}?x-id=", _COPY, None),
        ("CreateMultipartUpload", "POST", f"{KEY}?uploads&x-id=", {}, None),
        ("UploadPart", "PUT", f"{KEY}?partNumber=1&uploadId=u&x-id=", {}, None),
        ("UploadPartCopy", "PUT", f"{KEY}?partNumber=1&uploadId=u&x-id=", _COPY, None),
        ("CompleteMultipartUpload", "POST", f"{KEY}?uploadId=u&x-id=", {}, None),
        ("AbortMultipartUpload", "DELETE", f"{KEY}?uploadId=u&x-id=", {}, None),
        ("DeleteObject", "DELETE", f"{KEY}?x-id=", {}, None),
        ("DeleteObjects", "POST", f"{bucket}?delete&x-id=", {}, body),
        ("ListObjectsV2", "GET", f"{bucket}?list-type=2&prefix=t%2F&x-id=", {}, None),
    ]
    names = [operation for operation, *_ in named]
    for operation, method, uri, headers, sent in named:
        assert _parse(method, uri + operation, body=sent, **headers).uri == uri + operation
        for other in {*names, "", operation.lower(), f"{operation}%20"} - {operation}:
            with pytest.raises(RequestInvalid, match="names another operation"):
                _parse(method, uri + other, body=sent, **headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-amz-acl", "public-read"),
        ("X-Amz-Grant-Read", "id=1"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-website-redirect-location", "http://evil.example"),
        ("x-amz-server-side-encryption-customer-key", "a"),
        ("x-amz-copy-source-server-side-encryption-customer-key", "a"),
        ("x-amz-server-side-encryption", "aws:kms"),
        ("x-amz-server-side-encryption-aws-kms-key-id", "k"),
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-bypass-governance-retention", "true"),
        ("x-amz-meta-a", "b"),
        ("x-amz-storage-class", "GLACIER"),
        ("x-amz-security-token", "t"),
        ("x-amz-date", "20260101T000000Z"),
        ("x-amz-copy-source-range", "bytes=0-1"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("x-minio-force-delete", "true"),
        ("x-forwarded-host", "evil.example"),
        ("Authorization", "AWS4-HMAC-SHA256 x"),
        ("Host", "evil.example"),
        ("host", ["127.0.0.1:9000", "evil.example"]),
        ("If-None-Match", '"e"'),
        ("If-Match", "*"),
        ("x-amz-checksum-crc32", "a\r\nx-amz-acl: public-read"),
    ],
)
def test_headers_that_are_not_known(name: str, value: Any) -> None:
    with pytest.raises(RequestInvalid):
        _parse("PUT", KEY, **{name: value})


@pytest.mark.parametrize(
    "source",
    [
        "",
        "lake",
        "/lake/",
        "lake/t/../other/f",
        "lake/t/%2e%2e/f",
        "lake/t/f?versionId=1",
        "lake/t/f%3FversionId=1",
        "//lake/t/f",
        "arn:aws:s3:eu-central-1:123456789012:accesspoint/x/object/f",
        "http://127.0.0.1:9000/lake/t/f",
    ],
)
def test_copy_sources_that_are_ambiguous(source: str) -> None:
    with pytest.raises(RequestInvalid):
        _parse("PUT", KEY, **{"x-amz-copy-source": source})
    for method in ("GET", "DELETE"):
        with pytest.raises(RequestInvalid):
            _parse(method, KEY, **_COPY)


@pytest.mark.parametrize("prefix", ["", "t", "/", "t//", "t/../o/", "../", "t/%00/"])
def test_a_list_stays_in_a_directory(prefix: str) -> None:
    root = "http://127.0.0.1:9000/lake"
    with pytest.raises(RequestInvalid):
        _parse("GET", f"{root}?list-type=2&prefix={prefix}")
    for uri in (
        f"{root}?prefix=t/",
        f"{root}?list-type=1&prefix=t/",
        f"{root}/t/?list-type=2&prefix=t/",
        f"{root}?list-type=2&prefix=t/&versions",
        root,
    ):
        with pytest.raises(RequestInvalid):
            _parse("GET", uri)
    for text, directory in (("t/", "t"), ("t/d", "t"), ("t/d/", "t/d")):
        found = _parse("GET", f"{root}?list-type=2&prefix={text}&delimiter=%2F&max-keys=1")
        assert (found.action, str(found.targets[0])) == (Action.LIST, f"s3://lake/{directory}")


def _body(*keys: str, more: str = "") -> str:
    objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}{more}</Delete>'


def test_all_keys_of_a_delete_are_read_and_its_body_is_signed() -> None:
    uri, body = (
        "http://127.0.0.1:9000/lake?delete",
        _body("t/a", "t/b&amp;&#x63;", more="<Quiet>true</Quiet>"),
    )
    request = _parse("POST", uri, body=f'<?xml version="1.0" encoding="UTF-8"?>{body}')
    assert [str(each) for each in request.targets] == ["s3://lake/t/a", "s3://lake/t/b&c"]
    assert _parse("POST", uri, body=body).payload == hashlib.sha256(body.encode()).hexdigest()
    with pytest.raises(RequestInvalid):
        _parse("POST", uri, body=body, **{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "<Delete/>",
        _body(),
        _body("t/../a"),
        _body(*("t/a" for _ in range(1001))),
        _body("t/a", more="<Object><Key>t/b</Key><VersionId>1</VersionId></Object>"),
        _body("t/a", more="<Object><Key>t/b<!-- x --></Key></Object>"),
        _body("t/a", more="<Object><Key><![CDATA[t/b]]></Key></Object>"),
        _body("t/a", more="<?x y?>"),
        _body("t/a", more="<Object><Key>t/b</Key><Key>t/c</Key></Object>"),
        _body("t/a", more="<o:Object xmlns:o='urn:x'><Key>t/b</Key></o:Object>"),
        '<!DOCTYPE Delete [<!ENTITY x "t/b">]>' + _body("&x;"),
        _body("t/a").replace("Delete", "Other"),
    ],
)
def test_bodies_of_deletes_that_are_not_plain(body: str | None) -> None:
    with pytest.raises(RequestInvalid):
        _parse("POST", "http://127.0.0.1:9000/lake?delete", body=body)


def test_a_delete_of_many_objects_without_its_body_says_what_to_do() -> None:
    """PyIceberg 0.12 sends none."""
    with pytest.raises(RequestInvalid, match=r"did not send the body of DeleteObjects.*one by one"):
        _parse("POST", "http://127.0.0.1:9000/lake?delete=")


def test_another_region() -> None:
    with pytest.raises(RequestInvalid, match="region"):
        parse(OWN, Asked("GET", "us-east-1", KEY, {}))

"""Parses the S3 requests of clients, strictly: what is not known to be harmless is refused.

- A request reads, looks at, creates, copies or deletes an object, deletes many, lists a prefix, or is a step
  of an upload in parts. Any other method or query parameter is refused, such as `versionId`, `acl`,
  `tagging`, `response-*` and those of a presigned URL. A parameter is given once. The parameter `x-id` of the
  SDKs for Go and JavaScript names the operation that the request is.
- The address is that of the configured store: the bucket is in the path, or, at Amazon S3, in the host. A key
  is decoded once. A key that a location cannot name byte for byte is refused.
- Of headers that begin with `x-`, a short list passes. None of them changes permissions, tags, the storage
  class, encryption keys, redirects or locks.
- A list has a prefix that ends in a directory, or goes on below one.
- Bodies that decide are part of the request: the keys of a delete of many objects, whose digest is signed.

Nothing of a request that is refused is repeated in an error: an address can have a signature in it.

Sources: Amazon S3 API Reference; RFC 3986, section 3; RFC 9110, section 13.1.2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

from policy.errors import LocationInvalid, RequestInvalid
from policy.location.location import Location

#: Keys of one request that deletes many objects (Amazon S3 API Reference, DeleteObjects).
MAX_DELETED: Final = 1000

_URI: Final = re.compile(r"(https?)://([a-z0-9.:-]+|\[[0-9a-f:.]+\](?::[0-9]+)?)(/[!-~]*)?")
_PATH: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*,;=:@/-]|%[0-9A-Fa-f]{2})*")
_PARAMETER: Final = re.compile(r"([A-Za-z-]+)(?:=((?:[A-Za-z0-9._~!$'()*,;:@/-]|%[0-9A-Fa-f]{2})*))?")
_SHA256: Final = re.compile(r"[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER")
_VALUE: Final = re.compile(r"[ -~]{0,2048}")
_XML: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"

CONTENT_SHA256: Final = "x-amz-content-sha256"
COPY_SOURCE: Final = "x-amz-copy-source"
IF_NONE_MATCH: Final = "if-none-match"
_COPY_RANGE: Final = "x-amz-copy-source-range"
_SERVER_SIDE: Final = "x-amz-server-side-encryption"
_KNOWN: Final = frozenset(
    {
        CONTENT_SHA256,
        COPY_SOURCE,
        _COPY_RANGE,
        _SERVER_SIDE,
        *(f"x-amz-checksum-{each}" for each in ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")),
        *(f"x-amz-checksum-{each}" for each in ("algorithm", "mode", "type")),
        "x-amz-sdk-checksum-algorithm",
        "x-amz-trailer",
        # How the body of an answer ends; the AWS SDK for Java 2 asks for an MD5 there.
        "x-amz-te",
        "x-amz-decoded-content-length",
        "x-amz-mp-object-size",
    }
)
#: Signed beside those that begin with `x-`. What proxies change is not signed.
_SIGNED: Final = frozenset({"content-md5", IF_NONE_MATCH})


class Action(Enum):
    """What a request does."""

    READ = "read"
    LOOK = "look"
    CREATE = "create"
    BEGIN = "begin-upload"
    PART = "upload-part"
    COMPLETE = "complete-upload"
    ABORT = "abort-upload"
    DELETE = "delete"
    LIST = "list"


#: Method, and the names of all query parameters but those that may be left out.
_ACTIONS: Final[Mapping[tuple[str, frozenset[str]], Action]] = MappingProxyType(
    {
        ("GET", frozenset[str]()): Action.READ,
        ("HEAD", frozenset[str]()): Action.LOOK,
        ("PUT", frozenset[str]()): Action.CREATE,
        ("POST", frozenset({"uploads"})): Action.BEGIN,
        ("PUT", frozenset({"partNumber", "uploadId"})): Action.PART,
        ("POST", frozenset({"uploadId"})): Action.COMPLETE,
        ("DELETE", frozenset({"uploadId"})): Action.ABORT,
        ("DELETE", frozenset[str]()): Action.DELETE,
    }
)
#: Names of operations by what they do, and by whether they copy an object or are about many.
_OPERATIONS: Final[Mapping[tuple[Action, bool], str]] = MappingProxyType(
    {
        (Action.READ, False): "GetObject",
        (Action.LOOK, False): "HeadObject",
        (Action.CREATE, False): "PutObject",
        (Action.CREATE, True): "CopyObject",
        (Action.BEGIN, False): "CreateMultipartUpload",
        (Action.PART, False): "UploadPart",
        (Action.PART, True): "UploadPartCopy",
        (Action.COMPLETE, False): "CompleteMultipartUpload",
        (Action.ABORT, False): "AbortMultipartUpload",
        (Action.DELETE, False): "DeleteObject",
        (Action.DELETE, True): "DeleteObjects",
        (Action.LIST, False): "ListObjectsV2",
    }
)
_OPERATION: Final = "x-id"
_OF_LISTS: Final = frozenset(
    {"continuation-token", "delimiter", "encoding-type", "fetch-owner", "max-keys", "start-after"}
)


@dataclass(frozen=True, slots=True)
class Store:
    """The object store that requests are signed for.

    Attributes:
        endpoint: its URL without a path; None for Amazon S3.
        region: of its buckets.
    """

    endpoint: str | None
    region: str

    def bucket_of(self, scheme: str, host: str) -> str | None:
        """Return the bucket that a host names; empty where the path names it.

        Returns:
            None if it is a host of another store.
        """
        for known_scheme, known in self._hosts():
            if scheme == known_scheme and host == known:
                return ""
            # Another store could take a part of the path for the bucket, whatever the host says.
            if self.endpoint is None and scheme == known_scheme and host.endswith(f".{known}"):
                return host[: -len(known) - 1] or None
        return None

    def _hosts(self) -> list[tuple[str, str]]:
        if self.endpoint is not None:
            scheme, _, host = self.endpoint.partition("://")
            return [(scheme, host)]
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        hosts = [f"s3.{self.region}.{domain}", f"s3.dualstack.{self.region}.{domain}"]
        if self.region == "us-east-1":
            hosts.append(f"s3.{domain}")
        return [("https", each) for each in hosts]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a client asks for its signature.

    Attributes:
        method: the HTTP method.
        region: the region that the client signs for.
        uri: the whole address.
        headers: values by name.
        body: the body, of requests that the catalog has to read.
    """

    method: str
    region: str
    uri: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request that is understood.

    Attributes:
        action: what it does.
        method: the HTTP method.
        uri: the whole address, as it was given.
        targets: the objects that it is about; of a list, the directory.
        source: the object that it copies; None if it copies none.
        headers: those that are signed, by name in small letters.
        payload: what `x-amz-content-sha256` says.
    """

    action: Action
    method: str
    uri: str
    targets: tuple[Location, ...]
    source: Location | None
    headers: Mapping[str, str]
    payload: str


def parse(store: Store, asked: Asked) -> S3Request:
    """Parse a request.

    Raises:
        RequestInvalid: it is not for this store, ambiguous, or nothing that a table needs.
    """
    if asked.region != store.region:
        _refuse("region", "The region is not that of the store.")
    path_and_query, host, bucket = _address(store, asked.uri)
    path, mark, query = path_and_query.partition("?")
    if not _PATH.fullmatch(path) or (mark and not query):
        _refuse("uri", "The address has characters that are not encoded.")
    if not bucket:
        bucket, _, path = path.removeprefix("/").partition("/")
    else:
        path = path.removeprefix("/")
    parameters, headers = _parameters(query), _headers(asked.headers, host)
    named = parameters.pop(_OPERATION, None)
    request = _request(asked, bucket, path, parameters, headers)
    several = request.source is not None or "delete" in parameters
    if named is not None and named != _OPERATIONS[request.action, several]:
        _refuse("operation", "The parameter x-id names another operation.")
    return request


def _request(
    asked: Asked, bucket: str, path: str, parameters: Mapping[str, str], headers: dict[str, str]
) -> S3Request:
    if asked.method == "POST" and set(parameters) == {"delete"}:
        return _delete_many(asked, bucket, path, parameters, headers)
    if "list-type" in parameters:
        return _list(asked, bucket, path, parameters, headers)
    action = _ACTIONS.get((asked.method, frozenset(parameters)))
    if action is None:
        _refuse("operation", "The method or a parameter of the request is not supported.")
    source = _source(headers, action)
    return _made(action, asked, (_object(bucket, path),), headers, parameters=parameters, source=source)


def _address(store: Store, uri: str) -> tuple[str, str, str]:
    """Return path with query, host, and the bucket that the host names."""
    found = _URI.fullmatch(uri)
    bucket = found and store.bucket_of(found[1], found[2])
    if found is None or bucket is None:
        _refuse("uri", "The address is not one of the store.")
    return found[3] or "/", found[2], bucket


def _parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for each in query.split("&") if query else ():
        found = _PARAMETER.fullmatch(each)
        if found is None or found[1] in parameters:
            _refuse("query", "A parameter of the address is malformed, or given twice.")
        parameters[found[1]] = _decoded(found[2] or "")
    return parameters


def _headers(given: Mapping[str, Sequence[str]], host: str) -> dict[str, str]:
    """Return the headers that count, by name in small letters."""
    headers: dict[str, str] = {}
    for name, values in given.items():
        lower = name.lower()
        if lower == "authorization" or (lower.startswith("x-") and lower not in _KNOWN):
            _refuse("header", "A header of the request is not supported.")
        if lower not in _KNOWN and lower not in (*_SIGNED, "host", "if-match"):
            continue
        if len(values) != 1 or lower in headers or not _VALUE.fullmatch(values[0]):
            _refuse("header", "A header of the request is malformed, or given twice.")
        headers[lower] = values[0]
    if headers.pop("host", host) != host:
        _refuse("host", "The header Host is not the host of the address.")
    if headers.get(_SERVER_SIDE, "AES256") != "AES256":
        _refuse("header", "Objects are encrypted as their bucket says, or by AES256.")
    return headers


def _source(headers: Mapping[str, str], action: Action) -> Location | None:
    source = headers.get(COPY_SOURCE)
    if (source is None and _COPY_RANGE in headers) or (_COPY_RANGE in headers and action is not Action.PART):
        _refuse("copy-source", "The header x-amz-copy-source-range belongs to a copied part.")
    if source is None:
        return None
    bucket, _, key = source.removeprefix("/").partition("/")
    if action not in (Action.CREATE, Action.PART) or not _PATH.fullmatch(source):
        _refuse("copy-source", "The header x-amz-copy-source is malformed, or does not belong there.")
    return _object(bucket, key)


def _list(
    asked: Asked, bucket: str, path: str, parameters: Mapping[str, str], headers: dict[str, str]
) -> S3Request:
    unknown = set(parameters) - _OF_LISTS - {"list-type", "prefix"}
    prefix = parameters.get("prefix", "")
    if asked.method != "GET" or path or unknown or parameters["list-type"] != "2" or "/" not in prefix:
        _refuse("list", "Only ListObjectsV2 with a prefix inside of a directory is supported.")
    # S3 compares prefixes as text: `t1` would list `t10` too. What goes on behind a slash stays below it.
    directory = _object(bucket, prefix.rpartition("/")[0], encoded=False)
    return _made(Action.LIST, asked, (directory,), headers, parameters=parameters)


def _delete_many(
    asked: Asked, bucket: str, path: str, parameters: Mapping[str, str], headers: dict[str, str]
) -> S3Request:
    if asked.body is None:
        _refuse(
            "delete",
            "The client did not send the body of DeleteObjects, which names the objects. Delete them one by "
            "one, or with a client that sends it, such as Iceberg's Java library.",
        )
    if path or parameters["delete"]:
        _refuse("delete", "DeleteObjects is asked of a bucket, by the parameter delete without a value.")
    digest = hashlib.sha256(asked.body.encode()).hexdigest()
    if headers.get(CONTENT_SHA256, digest) != digest:
        _refuse("delete", "The header x-amz-content-sha256 is not the digest of the body.")
    keys = _keys(asked.body)
    targets = tuple(_object(bucket, key, encoded=False) for key in keys)
    return _made(Action.DELETE, asked, targets, headers | {CONTENT_SHA256: digest}, parameters=parameters)


def _keys(body: str) -> list[str]:
    """Return the keys that a body of DeleteObjects names.

    Readers of XML differ in what they do with declarations, comments and processing instructions.
    """
    text = re.sub(r"""\A<\?xml version=["']1\.0["'](?: encoding=["'](?:UTF|utf)-8["'])? ?\?>""", "", body)
    if "<!" in text or "<?" in text:
        _refuse("delete", "The body has XML declarations.")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        _refuse("delete", "The body is not XML.")
    keys: list[str] = []
    for each in root:
        name, children = _name(each), list(each)
        if name == "Object" and [_name(child) for child in children] == ["Key"] and not list(children[0]):
            keys.append(children[0].text or "")
        elif name != "Quiet" or children or (each.text or "") not in ("true", "false"):
            _refuse("delete", "The body has an element that is not supported.")
    if _name(root) != "Delete" or not 0 < len(keys) <= MAX_DELETED:
        _refuse("delete", f"The body does not name from 1 to {MAX_DELETED} objects.")
    return keys


def _name(element: ElementTree.Element) -> str:
    if element.attrib:
        _refuse("delete", "The body has attributes.")
    return element.tag.removeprefix(_XML)


def _made(
    action: Action,
    asked: Asked,
    targets: tuple[Location, ...],
    headers: dict[str, str],
    *,
    parameters: Mapping[str, str],
    source: Location | None = None,
) -> S3Request:
    """Return the request with the headers that are signed."""
    if ("uploadId" in parameters and not parameters["uploadId"]) or parameters.get("uploads"):
        _refuse("query", "A parameter of the address has a wrong value.")
    creates = action in (Action.CREATE, Action.COMPLETE)
    match, none_match = headers.pop("if-match", None), headers.pop(IF_NONE_MATCH, None)
    known = match is None and none_match in ((None, "*") if creates else (None,))
    if not known and action not in (Action.READ, Action.LOOK):
        _refuse(
            "overwrite", "Its one condition can be If-None-Match: *, of a request that creates an object."
        )
    if creates:
        headers |= _of_creations()
    payload = headers.pop(CONTENT_SHA256, "UNSIGNED-PAYLOAD")
    if not _SHA256.fullmatch(payload):
        _refuse("header", "The payload has to be unsigned, or signed by its SHA-256.")
    return S3Request(action, asked.method, asked.uri, targets, source, MappingProxyType(headers), payload)


def _of_creations() -> dict[str, str]:
    """Return the condition of S3 that no object is overwritten; a request without it voids the signature."""
    return {IF_NONE_MATCH: "*"}


def _object(bucket: str, key: str, *, encoded: bool = True) -> Location:
    """Return the location of an object whose key stands in an address, encoded, or as it is."""
    name = f"s3://{bucket}/{_decoded(key) if encoded else key}"
    try:
        location = Location.parse(name)
    except LocationInvalid:
        _refuse("key", "The key is empty or ambiguous.")
    if location.canonical != name or not location.name:
        _refuse("key", "The key is empty or ambiguous.")
    return location


def _decoded(text: str) -> str:
    """Decode percent-encodings once."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        _refuse("uri", "The address is not UTF-8.")


def _refuse(rule: str, message: str) -> NoReturn:
    raise RequestInvalid(
        f"The S3 request cannot be signed. {message}",
        rule=f"sign-{rule}",
        hint="docs/rest-api.md lists the requests that are signed.",
    )

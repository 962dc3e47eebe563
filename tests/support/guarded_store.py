"""moto's S3 and STS behind IAM: an assumed role can do what its session policy allows.

moto itself enforces no session policies. The evaluator is `tests.support.iam_policies`; the role allows
everything, so that the session policy alone decides. As in S3, an object that is not there is 403 for those
who cannot list the bucket.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.sts.models import sts_backends
from werkzeug.serving import make_server

from tests.support.iam_policies import is_allowed
from tests.support.moto_server import ACCESS_KEY_ID, MotoS3

ROLE = "arn:aws:iam::123456789012:role/lakewarden-tables"
_KEY_ID = re.compile(r"Credential=([^/,]+)/")
_KEYS_OF_DELETE = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

_Environ = dict[str, Any]
_App = Callable[[_Environ, Any], Iterable[bytes]]


@dataclass(frozen=True)
class GuardedStore:
    """A running store.

    Attributes:
        s3: the store, as the catalog reaches it.
        denied: action and resource of each request that was denied.
        roles: how often a role was assumed.
    """

    s3: MotoS3
    denied: list[tuple[str, str]]
    roles: list[str]

    def settings(self, **more: str) -> dict[str, str]:
        """Settings of a catalog that issues credentials of this store."""
        given = {"ROLE_ARN": ROLE, "ENDPOINT": self.s3.endpoint, "POLICY_VARIABLES": "true", **more}
        return {f"S3__STS__{name}": value for name, value in given.items()}

    def client(self, config: dict[str, str]) -> Any:
        """A boto3 client with a credential as the catalog answers it."""
        return boto3.client(
            "s3",
            endpoint_url=config["s3.endpoint"],
            region_name=config["client.region"],
            aws_access_key_id=config["s3.access-key-id"],
            aws_secret_access_key=config["s3.secret-access-key"],
            aws_session_token=config["s3.session-token"],
        )


@contextmanager
def guarded_store(moto: MotoS3) -> Iterator[GuardedStore]:
    """Serve the buckets of a running moto behind IAM, at another address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    denied: list[tuple[str, str]] = []
    roles: list[str] = []
    app = _guarded(DomainDispatcherApplication(create_backend_app), denied, roles)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    options = moto.options.model_copy(update={"endpoint": endpoint})
    try:
        yield GuardedStore(replace(moto, endpoint=endpoint, options=options), denied, roles)
    finally:
        server.shutdown()
        thread.join()


def _guarded(app: Any, denied: list[tuple[str, str]], roles: list[str]) -> _App:
    def guarded(environ: _Environ, start: Any) -> Iterable[bytes]:
        key_id = _key_id(environ)
        if "/sts/" in environ.get("HTTP_AUTHORIZATION", ""):
            roles.append(ROLE)
        if key_id == ACCESS_KEY_ID:
            return app(environ, start)
        policy = _policy(key_id, environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""))
        for action, resource, context in _asked(environ):
            if policy is None or not is_allowed(policy, action, resource, context):
                denied.append((action, resource))
                return _deny(start)
        bucket = f"arn:aws:s3:::{_place(environ)[0]}"
        lists = policy is not None and is_allowed(policy, "s3:ListBucket", bucket)

        def started(status: str, headers: Any, *more: Any) -> Any:
            if status.startswith("404") and not lists:
                status = "403 Forbidden"
            return start(status, headers, *more)

        return app(environ, started)

    return guarded


def _deny(start: Any) -> Iterable[bytes]:
    start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(_DENIED)))])
    return [_DENIED]


def _key_id(environ: _Environ) -> str:
    found = _KEY_ID.search(environ.get("HTTP_AUTHORIZATION", ""))
    return "" if found is None else found[1]


def _policy(key_id: str, token: str) -> str | None:
    """The session policy of a credential; None if there is no such credential."""
    account = ROLE.split(":")[4]
    for role in sts_backends[account]["aws"].assumed_roles:
        if role.access_key_id == key_id and role.session_token == token:
            return role.policy
    return None


def _place(environ: _Environ) -> tuple[str, str]:
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8")
    bucket, _, key = path[1:].partition("/")
    return bucket, key


def _asked(environ: _Environ) -> Iterator[tuple[str, str, dict[str, str]]]:
    """What a request needs, as S3 maps operations to actions."""
    method, query = environ["REQUEST_METHOD"], parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
    # The SDKs of AWS name the operation by it.
    query.pop("x-id", None)
    bucket, key = _place(environ)
    there = f"arn:aws:s3:::{bucket}/{key}"
    if (
        not key
        and method == "GET"
        and not set(query) - {"list-type", "prefix", "delimiter", "max-keys", *_MORE}
    ):
        context = {"s3:prefix": query["prefix"][0]} if "prefix" in query else {}
        yield "s3:ListBucket", f"arn:aws:s3:::{bucket}", context
    elif not key and method == "POST" and "delete" in query:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = _Again(body)
        for each in _KEYS_OF_DELETE.findall(body):
            yield "s3:DeleteObject", f"arn:aws:s3:::{bucket}/{each.decode()}", {}
    elif key and method in ("GET", "HEAD") and not query:
        yield "s3:GetObject", there, {}
    elif key and (method, *sorted(query)) in _PUTS:
        yield "s3:PutObject", there, {}
        if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
            yield "s3:GetObject", f"arn:aws:s3:::{unquote(source).removeprefix('/')}", {}
    elif key and method == "DELETE" and not query:
        yield "s3:DeleteObject", there, {}
    elif key and method == "DELETE" and set(query) == {"uploadId"}:
        yield "s3:AbortMultipartUpload", there, {}
    else:
        yield f"unknown:{method}", there, {}


_MORE = {"encoding-type", "continuation-token", "start-after", "marker", "fetch-owner"}
_PUTS = {
    ("PUT",),
    ("PUT", "partNumber", "uploadId"),
    ("POST", "uploads"),
    ("POST", "uploadId"),
}


class _Again:
    """A body that was read, to be read once more."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        size = len(self._body) if size is None or size < 0 else size
        taken, self._body = self._body[:size], self._body[size:]
        return taken

"""From errors to answers, at one boundary.

- Every `LakewardenError` has a status and a `type`. Where Iceberg clients choose their exception by `type`,
  it is theirs; our own class stands beside it in `lakewarden`, with the rule that decided.
- The answer has Iceberg's error model (Iceberg REST specification, "IcebergErrorResponse"), whatever was
  called; below `/kms/v1` it also has Hadoop's (`kms_errors`).
- What nobody foresaw is a 500 that names the request id and nothing else.

Errors of HTTP itself hang in the tree of `policy.errors`:

    InvalidInput
    └── RequestInvalid
        ├── BodyTooLarge             413
        ├── ContentTypeRefused       415
        ├── NoSuchEndpoint           404
        ├── MethodRefused            405
        ├── RequestTimedOut          408
        ├── HeadTooLarge             431
        ├── IdempotencyKeyReused     422 (`catalog.state.idempotency`)
        ├── NoSuchWarehouse          404
        └── NoSuchDocument           404
    Unavailable
    ├── TooManyConnections           503
    └── TooManyBodies                503
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from catalog.authorization.engine_keys import STALE_RULE
from catalog.base import errors as catalog_errors
from catalog.http import kms_errors
from catalog.http.metrics import Metrics
from catalog.state.idempotency import IdempotencyKeyReused
from policy import errors as policy_errors
from policy.errors import LakewardenError, RequestInvalid, Unavailable

#: Key, in the request's state, of the error that it is answered with.
ERROR_STATE: Final = "error"

_BAD_REQUEST: Final = "BadRequestException"
_CHALLENGE: Final = 'Bearer realm="lakewarden"'
_PLACE_LENGTH: Final = 200
_RETRY_AFTER_S: Final = "1"
#: The catalog's time in seconds since 1970, for an engine whose signature is stale and that signs again.
TIME: Final = "Lakewarden-Time"


class BodyTooLarge(RequestInvalid):
    """A request body of more bytes than the service reads."""


class ContentTypeRefused(RequestInvalid):
    """A request body that is not declared to be JSON."""


class NoSuchEndpoint(RequestInvalid):
    """No operation has this path."""


class MethodRefused(RequestInvalid):
    """The path is known, but not with this method."""


class RequestTimedOut(RequestInvalid):
    """A request that did not arrive in time."""


class HeadTooLarge(RequestInvalid):
    """A request line or header fields of more than the service reads."""


class TooManyConnections(Unavailable):
    """A connection more than the service keeps open, in total or for one address."""


class TooManyBodies(Unavailable):
    """More bytes of request bodies at a time than the service keeps in memory."""


class NoSuchWarehouse(RequestInvalid):
    """The catalog serves no warehouse or prefix of this name."""


class NoSuchDocument(RequestInvalid):
    """The catalog keeps no policy document of this name or revision."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a class of errors is answered.

    Attributes:
        status: the HTTP status.
        iceberg_type: the `type` by which Iceberg clients choose their exception; None to use our class name.
    """

    status: int
    iceberg_type: str | None = None


#: By class; a class that is not listed is answered as the nearest of its ancestors.
SHAPES: Final[Mapping[type[LakewardenError], Shape]] = MappingProxyType(
    {
        policy_errors.InvalidInput: Shape(400),
        policy_errors.RequestInvalid: Shape(400, _BAD_REQUEST),
        policy_errors.Refused: Shape(403),
        policy_errors.NotAuthorized: Shape(403, "ForbiddenException"),
        policy_errors.NotAuthenticated: Shape(401, "NotAuthorizedException"),
        policy_errors.Unavailable: Shape(503, "ServiceUnavailableException"),
        policy_errors.CommitStateUnknown: Shape(500, "CommitStateUnknownException"),
        catalog_errors.NoSuchNamespace: Shape(404, "NoSuchNamespaceException"),
        catalog_errors.NoSuchTable: Shape(404, "NoSuchTableException"),
        catalog_errors.NamespaceExists: Shape(409, "AlreadyExistsException"),
        catalog_errors.TableExists: Shape(409, "AlreadyExistsException"),
        catalog_errors.NamespaceNotEmpty: Shape(409, "NamespaceNotEmptyException"),
        catalog_errors.CommitConflict: Shape(409, "CommitFailedException"),
        BodyTooLarge: Shape(413, _BAD_REQUEST),
        ContentTypeRefused: Shape(415, _BAD_REQUEST),
        RequestTimedOut: Shape(408, _BAD_REQUEST),
        HeadTooLarge: Shape(431, _BAD_REQUEST),
        NoSuchEndpoint: Shape(404, "NotFoundException"),
        MethodRefused: Shape(405, "UnsupportedOperationException"),
        IdempotencyKeyReused: Shape(422),
        NoSuchWarehouse: Shape(404, "NoSuchWarehouseException"),
        NoSuchDocument: Shape(404, "NotFoundException"),
    }
)


def shape_of(error: type[LakewardenError]) -> Shape | None:
    """How errors of this class are answered; None for a class without any listed ancestor."""
    return next((SHAPES[each] for each in error.__mro__ if each in SHAPES), None)


def error_response(error: LakewardenError, path: str = "") -> Response:
    """The answer to an error.

    Args:
        error: what was raised.
        path: what was asked for; standard Hadoop clients read errors of another model.
    """
    # The root itself is abstract; should it ever be raised, nothing is known of what happened.
    shape = shape_of(type(error)) or Shape(500)
    own = type(error).__name__
    fields = {
        "message": str(error),
        "type": shape.iceberg_type or own,
        "code": shape.status,
        "lakewarden": own,
    }
    known = {"rule": error.rule, "hint": error.hint, "table": error.table, "snapshot": error.snapshot}
    fields |= {name: value for name, value in known.items() if value is not None}
    return _answer(fields, _headers(shape.status, error.rule), type(error), path)


def unforeseen_response(request_id: str, path: str = "") -> Response:
    """The answer to an error that nobody foresaw."""
    message = f"The request failed inside the service. Give the request id {request_id} to an administrator."
    fields = {"message": message, "type": "InternalServerError", "code": 500, "lakewarden": "InternalError"}
    return _answer(fields, {}, None, path)


def install(app: FastAPI, metrics: Metrics) -> None:
    """Translate every error that leaves an endpoint."""

    async def on_ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, LakewardenError)
        setattr(request.state, ERROR_STATE, error)
        metrics.refused(error.rule or type(error).__name__)
        return error_response(error, request.url.path)

    async def on_frameworks(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await on_ours(request, ours(error))

    app.add_exception_handler(LakewardenError, on_ours)
    # Those of paths without a route; a route translates its own, so that they are put on record as ours.
    app.add_exception_handler(HTTPException, on_frameworks)


def ours(error: RequestValidationError | HTTPException) -> RequestInvalid:
    """The framework's refusal as one of ours."""
    return _validation(error) if isinstance(error, RequestValidationError) else _http(error.status_code)


def _answer(
    fields: Mapping[str, object], headers: Mapping[str, str], error: type[LakewardenError] | None, path: str
) -> Response:
    document: dict[str, object] = {"error": fields}
    if path.startswith(kms_errors.PREFIX):
        document["RemoteException"] = kms_errors.remote_exception(error, str(fields["message"]))
    # ASCII only: a refused text may hold what UTF-8 cannot encode.
    body = json.dumps(document, ensure_ascii=True)
    status = fields["code"]
    assert isinstance(status, int)
    return Response(body, status, dict(headers), media_type="application/json")


def _headers(status: int, rule: str | None) -> Mapping[str, str]:
    if status == 401:
        time_of_day = {TIME: str(int(time.time()))} if rule == STALE_RULE else {}
        return {"WWW-Authenticate": _CHALLENGE} | time_of_day
    return {"Retry-After": _RETRY_AFTER_S} if status == 503 else {}


def _validation(error: RequestValidationError) -> RequestInvalid:
    """The first of the framework's complaints, without the offending input."""
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])[:_PLACE_LENGTH]
    return RequestInvalid(
        f"The request is not valid at {place}: {problem['msg']}.",
        rule="request",
        hint="See /openapi.json for the interface.",
    )


def _http(status: int) -> RequestInvalid:
    if status == 404:
        return NoSuchEndpoint("No operation has this path.", rule="endpoint", hint="See /openapi.json.")
    if status == 405:
        return MethodRefused("The path has no such method.", rule="method", hint="See /openapi.json.")
    return RequestInvalid("The request cannot be understood.", rule="request")

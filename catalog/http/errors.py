"""Converts errors to answers.

- Every `LakewardenError` has a status and a `type`. If Iceberg clients choose their exception by `type`, it
  is Iceberg's name; `lakewarden` has our own class name, and the rule that refused.
- Every answer has Iceberg's error model (Iceberg REST specification, "IcebergErrorResponse"); below `/kms/v1`
  it also has Hadoop's (`kms_errors`).
- An unexpected error is a 500 that contains only the request id.

Errors of HTTP itself extend the tree of `policy.errors`:

    InvalidInput
    └── RequestInvalid
        ├── BodyTooLarge             413
        ├── ContentTypeRefused       415
        ├── NoSuchEndpoint           404
        ├── MethodRefused            405
        ├── RequestTimedOut          408
        ├── HeadTooLarge             431
        ├── PropertySetAndRemoved    422 (`catalog.tables.namespaces`)
        ├── ViewUpdateInvalid        400 (`catalog.iceberg.view_metadata`)
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
from collections.abc import Callable, Mapping
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
from catalog.iceberg.view_metadata import ViewUpdateInvalid
from catalog.state.idempotency import IdempotencyKeyReused
from catalog.storage.errors import MetadataMissing
from catalog.tables.namespaces import PropertySetAndRemoved
from policy import errors as policy_errors
from policy.errors import LakewardenError, RequestInvalid, Unavailable

#: Answers a request that ended with one of our errors.
AnswerToError = Callable[[Request, LakewardenError], Response]

#: Key of the answered error in the request's state.
ERROR_STATE: Final = "error"

_BAD_REQUEST: Final = "BadRequestException"
_CHALLENGE: Final = 'Bearer realm="lakewarden"'
_PLACE_LENGTH: Final = 200
_RETRY_AFTER_S: Final = "1"
#: Header with the catalog's time in seconds since 1970, so that an engine with a stale signature can sign
#: again.
TIME: Final = "Lakewarden-Time"


class BodyTooLarge(RequestInvalid):
    """A request body is larger than the service reads."""


class ContentTypeRefused(RequestInvalid):
    """A request body is not declared as JSON."""


class NoSuchEndpoint(RequestInvalid):
    """No operation has this path."""


class MethodRefused(RequestInvalid):
    """The path exists, but not with this method."""


class RequestTimedOut(RequestInvalid):
    """A request did not arrive in time."""


class HeadTooLarge(RequestInvalid):
    """A request line or header fields are larger than the service reads."""


class TooManyConnections(Unavailable):
    """The limit of open connections is reached, in total or for one address."""


class TooManyBodies(Unavailable):
    """The limit of request bodies in memory is reached."""


class NoSuchWarehouse(RequestInvalid):
    """The catalog serves no warehouse or prefix of this name."""


class NoSuchDocument(RequestInvalid):
    """The catalog stores no policy document of this name or revision."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The answer to a class of errors.

    Attributes:
        status: the HTTP status.
        iceberg_type: the `type` by which Iceberg clients choose their exception; None to use our class name.
    """

    status: int
    iceberg_type: str | None = None


#: By class; a class that is not listed is answered like its nearest listed ancestor.
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
        catalog_errors.NoSuchView: Shape(404, "NoSuchViewException"),
        catalog_errors.NoSuchPlan: Shape(404, "NoSuchPlanIdException"),
        catalog_errors.NoSuchPlanTask: Shape(404, "NoSuchPlanTaskException"),
        catalog_errors.NamespaceExists: Shape(409, "AlreadyExistsException"),
        catalog_errors.TableExists: Shape(409, "AlreadyExistsException"),
        catalog_errors.ViewExists: Shape(409, "AlreadyExistsException"),
        catalog_errors.NamespaceNotEmpty: Shape(409, "NamespaceNotEmptyException"),
        catalog_errors.CommitConflict: Shape(409, "CommitFailedException"),
        ViewUpdateInvalid: Shape(400, "IllegalArgumentException"),
        MetadataMissing: Shape(404, "NotFoundException"),
        BodyTooLarge: Shape(413, _BAD_REQUEST),
        ContentTypeRefused: Shape(415, _BAD_REQUEST),
        RequestTimedOut: Shape(408, _BAD_REQUEST),
        HeadTooLarge: Shape(431, _BAD_REQUEST),
        NoSuchEndpoint: Shape(404, "NotFoundException"),
        MethodRefused: Shape(405, "UnsupportedOperationException"),
        IdempotencyKeyReused: Shape(422),
        PropertySetAndRemoved: Shape(422, "UnprocessableEntityException"),
        NoSuchWarehouse: Shape(404, "NoSuchWarehouseException"),
        NoSuchDocument: Shape(404, "NotFoundException"),
    }
)


def shape_of(error: type[LakewardenError]) -> Shape | None:
    """Return the shape for a class of errors; None for a class without a listed ancestor."""
    return next((SHAPES[each] for each in error.__mro__ if each in SHAPES), None)


def error_response(error: LakewardenError, path: str = "") -> Response:
    """Build the answer to an error.

    Args:
        error: what was raised.
        path: of the request; standard Hadoop clients need another error model.
    """
    # The root class is abstract. If it is raised, the cause is unknown.
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
    """Build the answer to an unexpected error."""
    message = f"The request failed inside the service. Give the request id {request_id} to an administrator."
    fields = {"message": message, "type": "InternalServerError", "code": 500, "lakewarden": "InternalError"}
    return _answer(fields, {}, None, path)


def refusal(request: Request, error: LakewardenError) -> Response:
    """Answer a request that ended with one of our errors; it is counted, and logged with the request."""
    note_refusal(request, error)
    return error_response(error, request.url.path)


def note_refusal(request: Request, error: LakewardenError) -> None:
    """Count a request that ended with one of our errors, and have it logged with the request."""
    setattr(request.state, ERROR_STATE, error)
    metrics: Metrics = request.app.state.metrics
    metrics.refused(error.rule or type(error).__name__)


def install(app: FastAPI, answer_to: AnswerToError = refusal) -> None:
    """Install handlers for what the framework serves by itself: paths without a route, open operations.

    Args:
        app: the service.
        answer_to: answers a request that ended with one of our errors.
    """

    async def on_ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, LakewardenError)
        return answer_to(request, error)

    async def on_frameworks(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer_to(request, ours(error))

    app.add_exception_handler(LakewardenError, on_ours)
    app.add_exception_handler(HTTPException, on_frameworks)


def ours(error: RequestValidationError | HTTPException) -> RequestInvalid:
    """Convert a refusal of the framework to one of our errors."""
    return _validation(error) if isinstance(error, RequestValidationError) else _http(error.status_code)


def _answer(
    fields: Mapping[str, object], headers: Mapping[str, str], error: type[LakewardenError] | None, path: str
) -> Response:
    document: dict[str, object] = {"error": fields}
    if path.startswith(kms_errors.PREFIX):
        document["RemoteException"] = kms_errors.remote_exception(error, str(fields["message"]))
    # ASCII only: a refused text can contain characters that UTF-8 cannot encode.
    body = json.dumps(document, ensure_ascii=True)
    status = fields["code"]
    assert isinstance(status, int)
    return Response(body, status, dict(headers), media_type="application/json")


def _headers(status: int, rule: str | None) -> Mapping[str, str]:
    if status == 401:
        time_of_day = {TIME: str(int(time.time()))} if rule == STALE_RULE else {}
        return {"WWW-Authenticate": _CHALLENGE} | time_of_day
    if status == 415 and rule == "content-encoding":
        # RFC 9110, section 15.5.16.
        return {"Accept-Encoding": "gzip, zstd"}
    return {"Retry-After": _RETRY_AFTER_S} if status == 503 else {}


def _validation(error: RequestValidationError) -> RequestInvalid:
    """Convert the framework's first validation error, without the offending input."""
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"])[:_PLACE_LENGTH]
    return RequestInvalid(
        f"The request is not valid at {place}: {problem['msg']}.",
        rule="request",
        hint="See /openapi.json for the interface.",
    )


def _http(status: int) -> RequestInvalid:
    if status == 404:
        return NoSuchEndpoint(
            "No operation has this path.",
            rule="endpoint",
            hint="Give clients the service's address without a path. /openapi.json lists the operations.",
        )
    if status == 405:
        return MethodRefused("The path has no such method.", rule="method", hint="See /openapi.json.")
    return RequestInvalid("The request cannot be understood.", rule="request")

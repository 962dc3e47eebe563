"""Descriptions that all operations share."""

from __future__ import annotations

from typing import Any, Final

from catalog.http.base_models import Answer


class ErrorModel(Answer):
    """`ErrorModel`, with our extensions."""

    message: str
    type: str
    code: int
    lakewarden: str
    rule: str | None = None
    hint: str | None = None
    table: str | None = None
    snapshot: int | None = None


class ErrorAnswer(Answer):
    """`IcebergErrorResponse`."""

    error: ErrorModel


_MEANINGS: Final = {
    400: "What was sent cannot be understood.",
    401: "No valid token.",
    403: "Understood, and not allowed.",
    404: "There is no such thing.",
    409: "It exists already, or another commit came first.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    422: "The idempotency key was used for another request.",
    500: "A commit may or may not have taken effect, or the service failed.",
    503: "A part that is needed does not answer; nothing was changed.",
}

Responses = dict[int | str, dict[str, Any]]

#: A reference to the model of every error. For a model, the framework would build a validator for each status
#: of each operation, whenever the service starts.
_ERROR: Final = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}}}
#: The errors of every operation, for its description.
ERRORS: Final[Responses] = {
    status: {"description": meaning, "content": _ERROR} for status, meaning in _MEANINGS.items()
}


def modelled(status: int) -> Responses:
    """Describe an error with the model that `ERRORS` refers to; one operation has to."""
    return {status: {"model": ErrorAnswer, "description": _MEANINGS[status]}}


def answers(model: type[Answer], description: str) -> Responses:
    """Describe an answer that the framework does not build."""
    return {200: {"model": model, "description": description}}


#: Operations whose answer has no body.
NO_CONTENT: Final = 204

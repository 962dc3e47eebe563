"""Calls endpoints: reads their arguments from requests, and makes their results answers.

The framework describes an operation: parameters, body, dependencies, model of the answer. For each request it
would walk through this description. Here that is done once for each route. Values, checks and messages are
those of the framework's own fields.

- Dependencies are coroutines that never wait, since a request keeps to one thread (`catalog.http.threads`).
  Each is called once in a request.
- Security schemes are there for the description of the API; `catalog.http.auth` does the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_origin

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_body_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, serialize_response
from fastapi.security.base import SecurityBase
from pydantic_core import PydanticUndefined

#: The document of a request without a body.
NO_DOCUMENT: Final[Any] = PydanticUndefined

_SOURCES: Final[tuple[tuple[str, Callable[[Request], Any]], ...]] = (
    ("path", lambda request: request.path_params),
    ("query", lambda request: request.query_params),
    ("header", lambda request: request.headers),
)

_Problems = list[dict[str, Any]]


class EndpointCall:
    """Calls the endpoint of a route.

    Args:
        route: a route whose parameters are in the path, the query and the head.

    Raises:
        TypeError: the route has something else.
    """

    def __init__(self, route: APIRoute) -> None:
        self._route = route
        self._arguments = _Arguments(route.dependant)
        self._body_fields = route.dependant.body_params

    async def __call__(self, request: Request, document: Any) -> Response:
        """Call the endpoint.

        Args:
            request: gives the parameters.
            document: the parsed body, or `NO_DOCUMENT`.

        Raises:
            RequestValidationError: an argument is not valid.
            Exception: as the endpoint and its dependencies.
        """
        draft = Response() if self._arguments.takes_response else None
        values, problems = await self._arguments.read(request, draft, {})
        if self._body_fields:
            found, wrong = await request_body_to_args(
                self._body_fields, document, self._route._embed_body_fields
            )
            values |= found
            problems += wrong
        if problems:
            raise RequestValidationError(problems)
        result = await self._arguments.call(**values)
        return result if isinstance(result, Response) else await self._answer(result, draft)

    async def _answer(self, result: Any, draft: Response | None) -> Response:
        """Make the result of an endpoint an answer, with the headers that the endpoint set."""
        content = await serialize_response(
            field=self._route.response_field, response_content=result, dump_json=True
        )
        answer = Response(content, self._route.status_code or 200, media_type="application/json")
        if draft is not None:
            answer.raw_headers += [each for each in draft.raw_headers if each[0] != b"content-length"]
        return answer


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter: where it is, and how its text becomes a value."""

    field: Any
    place: tuple[str, str]
    is_list: bool

    def read(self, source: Any) -> tuple[Any, _Problems]:
        """Return the value, or problems."""
        alias = self.place[1]
        given = (source.getlist(alias) or None) if self.is_list else source.get(alias)
        if given is not None:
            value, problems = self.field.validate(given, {}, loc=self.place)
            return value, list(problems)
        if self.field.field_info.is_required():
            return None, [{"type": "missing", "loc": self.place, "msg": "Field required", "input": None}]
        return self.field.get_default(), []


class _Arguments:
    """Reads the arguments of one function: an endpoint, or a dependency."""

    def __init__(self, dependant: Dependant) -> None:
        if dependant.call is None or dependant.cookie_params or dependant.background_tasks_param_name:
            raise TypeError(f"{dependant.call} has parameters that are not supported")
        self.call = dependant.call
        self._request = dependant.request_param_name
        self._response = dependant.response_param_name
        self._parameters = list(_parameters(dependant))
        self._dependencies = [
            (each.name, _Arguments(each))
            for each in dependant.dependencies
            if not isinstance(each.call, SecurityBase)
        ]

    @property
    def takes_response(self) -> bool:
        """Whether the function sets headers of the answer."""
        return self._response is not None

    async def read(
        self, request: Request, draft: Response | None, known: dict[Any, Any]
    ) -> tuple[dict[str, Any], _Problems]:
        """Return the arguments that do not come from the body, and problems of parameters.

        Args:
            request: the request.
            draft: takes the headers of the answer.
            known: the results of dependencies that were called.
        """
        values: dict[str, Any] = {}
        problems: _Problems = []
        for name, dependency in self._dependencies:
            if dependency.call not in known:
                given, wrong = await dependency.read(request, draft, known)
                if wrong:
                    problems += wrong
                    continue
                known[dependency.call] = await dependency.call(**given)
            if name is not None:
                values[name] = known[dependency.call]
        for source, parameters in self._parameters:
            texts = source(request)
            for each in parameters:
                value, wrong = each.read(texts)
                problems += wrong
                values[each.field.name] = value
        if self._request is not None:
            values[self._request] = request
        if self._response is not None:
            values[self._response] = draft
        return values, problems


def _parameters(dependant: Dependant) -> Iterator[tuple[Callable[[Request], Any], Sequence[_Parameter]]]:
    for place, source in _SOURCES:
        fields = getattr(dependant, f"{place}_params")
        if fields:
            yield source, [_Parameter(each, (place, each.alias), _is_list(each)) for each in fields]


def _is_list(field: Any) -> bool:
    return get_origin(field.field_info.annotation) is list

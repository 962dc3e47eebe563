"""Finds the route of a request by the segments of its path.

The framework compares a path with every route in turn. Here routes are in a tree of segments. The route found
is the framework's: of several that match, the first one. Whatever the tree does not find goes to the
framework, which answers paths without an operation, and serves routes of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.convertors import StringConvertor
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.http.routing import GuardedRoute

_PARAMETER: Final = "{"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A route.

    Attributes:
        number: its place among all routes.
        route: the route.
        parameters: the parameters of its path, by the place of their segment.
    """

    number: int
    route: GuardedRoute
    parameters: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """The routes below some segments of a path.

    Attributes:
        named: what follows, by the next segment.
        other: what follows a segment that is a parameter; at most one.
        routes: routes that end here, by method.
    """

    named: dict[str, _Node] = field(default_factory=dict)
    other: list[_Node] = field(default_factory=list)
    routes: dict[str, _Entry] = field(default_factory=dict)

    def below(self, segment: str) -> _Node:
        """Return what follows a segment of a route, made if there is none."""
        if not segment.startswith(_PARAMETER):
            return self.named.setdefault(segment, _Node())
        if not self.other:
            self.other.append(_Node())
        return self.other[0]

    def ends(self, segments: Sequence[str], at: int = 0) -> Iterator[_Node]:
        """Return where a path can end."""
        if at == len(segments):
            yield self
            return
        segment = segments[at]
        if segment in self.named:
            yield from self.named[segment].ends(segments, at + 1)
        # A parameter has at least one character.
        for each in self.other if segment else ():
            yield from each.ends(segments, at + 1)


class RouteTable:
    """ASGI middleware that calls the route of a request; see the module.

    Args:
        app: the framework's application, for all other requests.
        routes: the routes, in the framework's order.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._root = _Node()
        for number, route in enumerate(routes):
            if isinstance(route, GuardedRoute) and _is_plain(route):
                self._add(number, route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = found
        await found[0].app(scope, receive, send)

    def find(self, method: str, path: str) -> tuple[GuardedRoute, dict[str, str]] | None:
        """Return the route of a request, and the parameters in its path; None if the tree has none.

        Args:
            method: the HTTP method.
            path: the decoded path.
        """
        segments = path.split("/")
        ends = (end.routes[method] for end in self._root.ends(segments) if method in end.routes)
        found = min(ends, key=lambda each: each.number, default=None)
        if found is None:
            return None
        return found.route, {name: segments[at] for at, name in found.parameters}

    def _add(self, number: int, route: GuardedRoute) -> None:
        node, parameters = self._root, []
        for at, segment in enumerate(route.path.split("/")):
            node = node.below(segment)
            if segment.startswith(_PARAMETER):
                parameters.append((at, segment.strip("{}")))
        entry = _Entry(number, route, tuple(parameters))
        for method in route.methods or ():
            node.routes.setdefault(method, entry)


def _is_plain(route: GuardedRoute) -> bool:
    """Return whether each parameter of a path is a segment."""
    return all(isinstance(each, StringConvertor) for each in route.param_convertors.values())

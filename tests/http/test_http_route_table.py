"""The table of routes finds the route that the framework would find."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.routing import Match

from catalog.http.app import create_app
from catalog.http.route_table import RouteTable
from catalog.http.routing import GuardedRoute
from tests.support.lake import open_lake

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW")
_ODD_PATHS = (
    "",
    "/",
    "//",
    "/v1",
    "/v1/",
    "/livez",
    "/metrics/",
    "/v1/lake/namespaces//tables/t",
    "/kms/v1/x/y",
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    with open_lake(tmp_path_factory.mktemp("lake"), KMS_ENDPOINT__ENABLED="true") as lake:
        yield create_app(lake.services)


def _paths(app: FastAPI) -> set[str]:
    """Return a path of each route, and paths whose names are words of other routes at the same place."""
    templates = [route.path.split("/") for route in app.router.routes if isinstance(route, GuardedRoute)]
    return {
        "/".join(_filled(segment, word) for segment, word in zip(template, words, strict=False))
        for template in templates
        for words in templates
        if len(words) >= len(template)
    }


def _filled(segment: str, word: str) -> str:
    if not segment.startswith("{"):
        return segment
    return "sales\x1f2024 %é" if word.startswith("{") else word


def _by_framework(app: FastAPI, path: str) -> dict[str, tuple[GuardedRoute, dict[str, str]] | None]:
    """Return the route and the names that the framework finds, by method."""
    found: dict[str, tuple[GuardedRoute, dict[str, str]] | None] = {}
    scope = {"type": "http", "method": "", "path": path, "headers": []}
    for route in app.router.routes:
        match, child = route.matches(scope)
        if match is not Match.NONE:
            for method in getattr(route, "methods", None) or ():
                found.setdefault(
                    method, (route, child["path_params"]) if isinstance(route, GuardedRoute) else None
                )
    return found


def test_the_table_finds_the_route_and_the_names_that_the_framework_finds(app: FastAPI) -> None:
    table = RouteTable(app, app.router.routes)
    paths = {*_paths(app), *_ODD_PATHS}
    assert len(paths) > 200
    for path in paths:
        expected = _by_framework(app, path)
        assert {method: table.find(method, path) for method in _METHODS} == {
            method: expected.get(method) for method in _METHODS
        }


def test_each_operation_with_a_token_is_in_the_table(app: FastAPI) -> None:
    table = RouteTable(app, app.router.routes)
    routes = [each for each in app.router.routes if isinstance(each, GuardedRoute)]
    found = [
        table.find(method, re.sub("{.*?}", "x", each.path))
        for each in routes
        for method in each.methods or ()
    ]
    assert len(found) > 100
    assert None not in found

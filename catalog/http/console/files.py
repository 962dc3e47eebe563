"""Serves the stylesheet and the icon of the console, to everybody: they say nothing of the catalog."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request, Response

from catalog.http.console.rendering import protected
from catalog.http.console.routes import OpenRoute

_DIRECTORY: Final = "/console/static"

open_router = APIRouter(route_class=OpenRoute, include_in_schema=False)


@open_router.get(f"{_DIRECTORY}/console.css")
async def stylesheet(_request: Request) -> Response:
    """Serve the stylesheet."""
    return protected(Response(_content("console.css"), media_type="text/css"))


@open_router.get(f"{_DIRECTORY}/icon.svg")
async def icon(_request: Request) -> Response:
    """Serve the icon."""
    return protected(Response(_content("icon.svg"), media_type="image/svg+xml"))


@cache
def _content(name: str) -> bytes:
    return files("catalog.http.console").joinpath("static", name).read_bytes()

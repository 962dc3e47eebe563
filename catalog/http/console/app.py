"""Lists the routes of the console."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from catalog.http.console import (
    audit,
    difference,
    explain,
    files,
    keys,
    login,
    policies,
    provider_login,
    refusals,
    tables,
)

#: In the order in which they are found.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    login.open_router,
    provider_login.open_router,
    files.open_router,
    login.router,
    tables.router,
    policies.router,
    explain.router,
    difference.router,
    keys.router,
    refusals.router,
    audit.router,
)

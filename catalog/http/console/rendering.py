"""Makes pages from templates, and sets the headers that protect them.

- Every value in a page is escaped for HTML, and before that cleaned as in the audit log: tokens are masked,
  control and format characters are shown as escapes.
- The content security policy allows the console's own stylesheet, images and forms, and nothing else: no
  script, even if a page had one. `Referrer-Policy` keeps addresses of pages from other sites; browsers still
  send `Origin` with forms of the console, which `no-referrer` would hide.
- No cache keeps a page.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from catalog.authorization.authorizer import Caller
from catalog.base.clean_text import clean
from catalog.http.auth import request_id_of
from catalog.http.console.navigation import shown_to
from catalog.service.services import Services

_LONGEST: Final = 20_000
_CSP: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _CSP,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}


def protected(response: Response) -> Response:
    """Return an answer of the console with the headers that protect it."""
    response.headers.update(_HEADERS)
    return response


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Make a page.

    Args:
        request: the request that it answers.
        template: name of its template, without the ending.
        status: the HTTP status.
        values: what it shows.
    """
    services: Services = request.app.state.services
    caller: Caller | None = getattr(request.state, "caller", None)
    text = _TEMPLATES.get_template(f"{template}.html").render(
        user=None if caller is None else caller.principal.name,
        catalog=services.settings.catalog.name,
        # The policies are asked for it, which an answer to an error must not depend on.
        navigation=shown_to(services, caller) if caller is not None and status == 200 else (),
        path=request.url.path,
        request_id=request_id_of(request),
        **values,
    )
    return protected(HTMLResponse(text, status))


def see_other(path: str) -> Response:
    """Send the browser to another page of the console, by GET."""
    return protected(RedirectResponse(path, 303))


def address(path: str, **query: object) -> str:
    """Return the address of a page; parameters that are None or empty are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def moment(value: datetime | int | None) -> str:
    """Return a time for people, in UTC to the second; a number is in milliseconds since 1970."""
    if value is None:
        return ""
    try:
        at = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        # Records are shown even if their rows were edited.
        return "not a time"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def _shown(value: object) -> object:
    """Return a value as pages show it, before it is escaped."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else clean(str(value), _LONGEST)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("catalog.http.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["address"] = address
    made.filters["moment"] = moment
    return made


_TEMPLATES: Final = _environment()

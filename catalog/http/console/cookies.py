"""Sets and reads the cookies of the console.

- Over TLS, a name begins with `__Host-`: the browser takes it from this host alone, over TLS, for all paths.
  So no other server of the domain can set a session for a user. On a loopback address without TLS, browsers
  take no such name.
- No script reads a cookie (`HttpOnly`), and none is sent with a request that another site began
  (`SameSite=Strict`), except that of a login by a provider, which sends its user back (`Lax`).
- A cookie that is sent twice is refused: two readers could use different values.

Source: RFC 6265bis, sections 4.1.3 and 5.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fastapi import Request, Response

_SEPARATOR: Final = ";"
_HOST_PREFIX: Final = "__Host-"


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie of the console.

    Attributes:
        name: its name, without the prefix.
        same_site: when the browser sends it.
        max_age_s: how long the browser keeps it; None until the browser is closed.
    """

    name: str
    same_site: Literal["strict", "lax"]
    max_age_s: int | None = None

    def set(self, request: Request, response: Response, value: str) -> None:
        """Have the browser keep a value."""
        response.set_cookie(
            self._full_name(request),
            value,
            max_age=self.max_age_s,
            path="/",
            secure=is_over_tls(request),
            httponly=True,
            samesite=self.same_site,
        )

    def clear(self, request: Request, response: Response) -> None:
        """Have the browser forget its value."""
        response.delete_cookie(
            self._full_name(request),
            path="/",
            secure=is_over_tls(request),
            httponly=True,
            samesite=self.same_site,
        )

    def value(self, request: Request) -> str | None:
        """Return the value that the browser sent; None if it sent none, or more than one."""
        name = self._full_name(request)
        parts = (
            part.strip().partition("=")
            for header in request.headers.getlist("cookie")
            for part in header.split(_SEPARATOR)
        )
        values = [value for given, _, value in parts if given == name]
        return values[0] if len(values) == 1 else None

    def _full_name(self, request: Request) -> str:
        return f"{_HOST_PREFIX if is_over_tls(request) else ''}{self.name}"


SESSION: Final = Cookie("lakewarden-console", "strict")
#: Of a login that a provider finishes: it is needed until the user comes back.
LOGIN: Final = Cookie("lakewarden-console-login", "lax", 600)


def is_over_tls(request: Request) -> bool:
    """Return whether browsers reach the console over TLS, which a proxy can end before the service."""
    return address_of_console(request).startswith("https:")


def address_of_console(request: Request) -> str:
    """Return `console.url`, the address at which browsers reach the service."""
    url = request.app.state.services.settings.console.url
    assert isinstance(url, str)
    return url

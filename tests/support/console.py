"""The console as a browser sees it over HTTP: a session's cookie, forms with their `Origin`, links."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import httpx

from tests.support.lake import ALICE
from tests.support.service import TLS, Service

#: Where browsers reach the console: behind a proxy that ends TLS.
URL = "https://lake.example"
COOKIE = "__Host-lakewarden-console"


@dataclass
class Browser:
    """A browser: it keeps the cookie of its session, and sends `Origin` with forms.

    Attributes:
        client: sends the requests.
        cookie: the cookie's value; None without a session.
    """

    client: httpx.Client
    cookie: str | None = None

    def get(self, path: str, **params: str) -> httpx.Response:
        """Open a page."""
        return self._asked("GET", path, params=params or None)

    def post(self, path: str, origin: str | None = URL, **fields: str) -> httpx.Response:
        """Send a form from a page of an origin; None for a request without `Origin`."""
        headers = {} if origin is None else {"Origin": origin}
        return self._asked("POST", path, data=fields, headers=headers)

    def log_in(self, token: str) -> httpx.Response:
        """Log in with a token."""
        answer = self.post("/console/login", token=token)
        self.cookie = session_in(answer)
        return answer

    def _asked(self, method: str, path: str, **more: object) -> httpx.Response:
        headers = dict(more.pop("headers", {}))  # type: ignore[call-overload]
        if self.cookie is not None:
            headers["Cookie"] = f"{COOKIE}={self.cookie}"
        return self.client.request(method, path, headers=headers, **more)  # type: ignore[arg-type]


def browser(service: Service, user: str | None = ALICE) -> Browser:
    """A browser in which a user is logged in; None for nobody."""
    opened = Browser(httpx.Client(base_url=service.url, timeout=60, verify=TLS))
    if user is not None:
        assert opened.log_in(service.token(user)).status_code == 303
    return opened


def session_in(answer: httpx.Response) -> str | None:
    """The value of the session's cookie that an answer sets; None if it sets none."""
    found = re.search(rf"{COOKIE}=([^;]+)", answer.headers.get("set-cookie", ""))
    return None if found is None or found[1] == '""' else found[1]


def text_of(answer: httpx.Response) -> str:
    """What a page says, without tags."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text)))

"""What the documentation says of the Iceberg REST specification is what the service does."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from catalog.http.app import create_app
from tests.support.service import Service

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "rest-api.md"
_ROW = re.compile(r"\| `(\w+)` \| `([A-Z]+ /v1/[^`]*)` \| (yes|no: )")
_OPERATIONS = 35


def _documented() -> dict[str, tuple[str, bool]]:
    """Endpoint of each operation, and whether it is served, as the page says."""
    part = _PAGE.read_text().partition("\n### Operations of the specification\n")[2].partition("\n### ")[0]
    rows = [match.groups() for match in _ROW.finditer(part)]
    assert len(rows) == len({name for name, _, _ in rows}) == len({at for _, at, _ in rows}) == _OPERATIONS
    return {name: (endpoint, served == "yes") for name, endpoint, served in rows}


def test_the_page_the_configuration_and_the_routes_agree(served: Service, alice: httpx.Client) -> None:
    documented = {endpoint for endpoint, is_served in _documented().values() if is_served}
    configured = alice.get("/v1/config").json()["endpoints"]
    assert len(configured) == len(set(configured))
    assert {*configured, "GET /v1/config"} == documented
    description = create_app(served.lake.services).openapi()
    routes = {
        f"{method.upper()} {path.replace('plan_id', 'plan-id')}"
        for path, item in description["paths"].items()
        for method in item
        if path.startswith("/v1/")
    }
    assert routes == documented


def test_what_is_not_served_is_no_endpoint(alice: httpx.Client) -> None:
    names = {"prefix": "lakewarden", "namespace": "n", "table": "t", "view": "v", "function": "f"}
    for endpoint, is_served in _documented().values():
        if not is_served:
            method, path = endpoint.split(" ")
            answer = alice.request(method, path.format(**names))
            # Of a path that has other methods, too, the method is refused.
            assert answer.status_code in (404, 405), endpoint
            if method != "HEAD":
                error = answer.json()["error"]
                assert error["lakewarden"] in ("NoSuchEndpoint", "MethodRefused"), endpoint

"""The description of the interface: complete, and true under generated requests."""

from __future__ import annotations

import itertools
import uuid

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from catalog.http.app import create_app
from tests.support.http_calls import new_table
from tests.support.service import Service

pytestmark = pytest.mark.nightly

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES = 5
OPEN = ("/livez", "/readyz", "/healthz")
#: Names that lead somewhere, so that generated requests get past the first lookup.
PLACES = {"prefix": ["lakewarden"], "namespace": ["fuzz", "fuzz", "other"], "table": ["t", "t", "u"]}


def test_every_operation_is_described(served: Service) -> None:
    description = create_app(served.lake.services).openapi()
    for path, item in description["paths"].items():
        for method, operation in item.items():
            assert operation["summary"] and operation["tags"], (path, method)
            assert path in OPEN or operation["security"], (path, method)
            assert path in OPEN or {"400", "401", "403", "503"} <= operation["responses"].keys()


def test_description_is_answered_to_callers(alice: httpx.Client) -> None:
    description = alice.get("/openapi.json").json()
    assert description["info"]["title"] == "Lakewarden"
    assert set(description["components"]["securitySchemes"]) == {
        "user token",
        "engine token",
        "engine signature",
    }


def test_generated_requests_never_fail_the_service(served: Service, alice: httpx.Client) -> None:
    schema = schemathesis.openapi.from_dict(alice.get("/openapi.json").json())
    headers = {"Authorization": alice.headers["Authorization"]}
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 40
    for operation in operations:
        # Some operations drop what others ask for.
        alice.post(f"{served.prefix}/namespaces", json={"namespace": ["fuzz"]})
        assert new_table(alice, served.prefix, "fuzz").status_code in (200, 409)
        _drive(operation, served.url, headers)


def _drive(operation: schemathesis.APIOperation, url: str, headers: dict[str, str]) -> None:
    """Send a few generated requests to one operation and hold the answers against its description."""
    turn = itertools.count()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy())
    def attempt(case: schemathesis.Case) -> None:
        _lead_somewhere(case, next(turn))
        answer = case.call(base_url=url, headers=headers)
        case.validate_response(answer, checks=CHECKS, headers=headers)

    attempt()


def _lead_somewhere(case: schemathesis.Case, turn: int) -> None:
    for name, values in PLACES.items():
        if name in case.path_parameters:
            case.path_parameters[name] = values[turn % len(values)]
    if "write_id" in case.path_parameters:
        case.path_parameters["write_id"] = str(uuid.UUID(int=turn))

"""The description of the KMS endpoint's operations: complete, and true under generated requests."""

from __future__ import annotations

import pytest
import schemathesis

from tests.http import test_http_openapi as openapi
from tests.support.kms_endpoint import make_key
from tests.support.lake import ALICE
from tests.support.service import Service

#: Names that lead somewhere, so that generated requests get past the first lookup.
PLACES = {"name": ["fuzzed", "fuzzed", "other"], "version_name": ["fuzzed@0", "fuzzed@0", "fuzzed@9", "x"]}

pytestmark = pytest.mark.nightly


def test_generated_requests_never_fail_the_kms_endpoint(
    served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_key(served.lake, "fuzzed")
    monkeypatch.setattr(openapi, "PLACES", PLACES)
    with served.client(ALICE) as alice:
        schema = schemathesis.openapi.from_dict(alice.get("/openapi.json").json())
    found = [result.ok() for result in schema.get_all_operations()]
    operations = [each for each in found if each.path.startswith("/kms/v1/")]
    assert len(operations) > 12
    for operation in operations:
        openapi._drive(operation, served.url, {"Authorization": alice.headers["Authorization"]})

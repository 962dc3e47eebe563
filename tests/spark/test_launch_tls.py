"""Spark over TLS: the authorities of the launch environment decide which catalog is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certificates import authority, certificate
from tests.support.service import open_service
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

SCRIPT = """
try:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql("CREATE TABLE lake.db.t AS SELECT 1 AS id")
    answer([list(row) for row in spark.sql("SELECT id FROM lake.db.t").collect()])
except Exception as error:
    answer(str(error))
"""


@pytest.mark.parametrize("trusted", [True, False])
def test_a_catalog_is_believed_by_its_authority_alone(tmp_path: Path, trusted: bool) -> None:
    own, other = certificate(tmp_path), certificate(tmp_path)
    own.chmod(0o600)
    tls = {"HTTP__TLS__CERTIFICATE_FILE": own, "HTTP__TLS__KEY_FILE": own}
    environ = {"LAKEWARDEN_CA_FILE": str(authority(own if trusted else other))}
    with (
        open_service(tmp_path, **tls) as service,
        spark_process(service, SCRIPT, engine=None, environ=environ) as process,
    ):
        found = process.answer()
    assert (found == [[1]]) if trusted else ("is not trusted" in found), found

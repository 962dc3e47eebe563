"""`lakewarden doctor`: each part that is broken is named, with what to do; the others are still tried."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import authority, certificate
from tests.support.host import ADMIN, Host
from tests.support.identity_provider import identity_provider
from tests.support.ranger_admin import ranger_admin


def told(host: Host, *, code: int = 0, **settings: object) -> Mapping[str, Mapping[str, Any]]:
    """The worst finding of each part, under further settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(f"LAKEWARDEN_{name.upper()}", str(value))
        found = json.loads(host.run("doctor", "--json", code=code).stdout)
    worst = sorted(found, key=lambda each: ("ok", "warning", "problem").index(each["result"]))
    return {each["part"]: each for each in worst}


def test_a_new_catalog_has_no_problem_and_is_not_for_production(host: Host) -> None:
    found = told(host)
    assert {part: each["result"] for part, each in found.items()} == {
        "connections": "ok",
        "TLS": "ok",
        "clock": "ok",
        "storage": "ok",
        "policies": "ok",
        "KMS": "warning",
        "database": "warning",
    }
    assert ADMIN in found["policies"]["finding"]
    shown = host.run("doctor").stdout
    assert "what to do" in shown and "not for production" in shown


def test_a_warehouse_that_cannot_be_written_is_a_problem_and_the_rest_is_tried(host: Host) -> None:
    (host.data / "warehouse").touch()
    found = told(host, code=1)
    assert found["storage"]["result"] == "problem" and "reading" in found["storage"]["what-to-do"]
    assert found["policies"]["result"] == "ok"


def test_a_database_of_another_schema_is_a_problem(host: Host) -> None:
    with sqlite3.connect(host.data / "lakewarden.db") as database:
        database.execute("UPDATE lw_alembic_version SET version_num = '9999'")
    database.close()
    found = told(host, code=1)
    assert found["database"]["result"] == "problem" and found["database"]["what-to-do"]


def test_a_keystore_that_is_lost_is_a_problem(host: Host) -> None:
    (host.data / "keystore.json").unlink()
    assert told(host, code=1)["KMS"]["result"] == "problem"


def test_without_an_administrator_there_is_a_warning(host: Host) -> None:
    for each in host.json("token", "list")["tokens"]:
        host.run("token", "revoke", each["id"])
    assert told(host)["policies"]["result"] == "warning"


def test_telemetry_with_which_the_service_does_not_start_is_a_problem(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(host, telemetry__traces=True)["telemetry"]["result"] == "ok"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    found = told(host, code=1, telemetry__traces=True)["telemetry"]
    assert found["result"] == "problem" and "OTEL_EXPORTER_OTLP_PROTOCOL" in found["finding"]


@pytest.mark.parametrize(("address", "result"), [("0.0.0.0", "warning"), ("127.0.0.1", "ok")])
def test_plain_http_to_other_hosts_is_a_warning(host: Host, address: str, result: str) -> None:
    assert told(host, http__host=address)["TLS"]["result"] == result


def test_a_certificate_is_tried_and_one_that_ends_soon_is_a_warning(host: Host, tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    pem.chmod(0o600)
    files = {"http__tls__certificate_file": pem, "http__tls__key_file": pem}
    assert told(host, **files)["TLS"]["result"] == "warning"
    pem.chmod(0o644)
    assert told(host, code=1, **files)["TLS"]["result"] == "problem"


@pytest.mark.parametrize(
    ("begins", "ends", "said"), [(-2, -1, "expired at"), (1, 2, "not valid before")], ids=["past", "future"]
)
def test_a_certificate_out_of_its_time_is_a_problem(
    host: Host, tmp_path: Path, begins: int, ends: int, said: str
) -> None:
    pem = certificate(tmp_path, begins=begins, ends=ends)
    pem.chmod(0o600)
    found = told(host, code=1, http__tls__certificate_file=pem, http__tls__key_file=pem)["TLS"]
    assert found["result"] == "problem" and said in found["finding"] and found["what-to-do"]


def test_a_chain_ends_with_the_first_of_its_certificates(host: Host, tmp_path: Path) -> None:
    pem, above = certificate(tmp_path, ends=60), certificate(tmp_path, begins=-2, ends=-1)
    chain = tmp_path / "chain.pem"
    chain.write_text(pem.read_text() + authority(above).read_text())
    pem.chmod(0o600)
    files = {"http__tls__certificate_file": chain, "http__tls__key_file": pem}
    assert "expired at" in told(host, code=1, **files)["TLS"]["finding"]


def test_files_and_archive_of_the_audit_log_that_cannot_be_written_are_problems(
    host: Host, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.touch()
    files = {"audit__stream_file": blocked / "stream.json", "audit__archive": f"file://{blocked}/archive"}
    found = told(host, code=1, **files)
    assert found["audit log"]["result"] == "problem" and "stream.json" in found["audit log"]["finding"]
    assert found["audit archive"]["result"] == "problem" and found["audit archive"]["what-to-do"]
    files = {"audit__stream_file": tmp_path / "stream.json", "audit__archive": f"file://{tmp_path}/archive"}
    found = told(host, **files)
    assert found["audit log"]["result"] == found["audit archive"]["result"] == "ok"
    assert {each.name for each in tmp_path.iterdir()}.isdisjoint({"stream.json", "archive"})


def test_a_ranger_is_asked_and_one_that_does_not_answer_is_a_problem(host: Host, tmp_path: Path) -> None:
    with ranger_admin() as ranger:
        ranger.put("lake", 1, [])
        source = {"ranger__prod__url": ranger.url, "ranger__prod__service": "lake"}
        found = told(host, code=1, **source)["policy source prod"]
        assert found["result"] == "ok", found
    assert told(host, code=1, **source)["policy source prod"]["result"] == "problem"
    found = told(host, code=1, **source, ranger__prod__ca_file=tmp_path / "none")["policy source prod"]
    assert "does not exist" in found["finding"]


def test_a_provider_that_does_not_answer_is_a_problem(host: Host) -> None:
    with identity_provider() as provider:
        issuer = {
            "identity__issuers__corp__issuer": provider.url,
            "identity__issuers__corp__audience": "lakewarden",
        }
        assert told(host, **issuer)["identity provider corp"]["result"] == "ok"
    found = told(host, code=1, **issuer)["identity provider corp"]
    assert "cannot be fetched" in found["finding"]

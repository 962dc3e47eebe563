"""`lakewarden tag`: tags of resources, for the operator."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.host import Host
from tests.support.lake import policy, tables
from tests.support.tags import service_tags, tagged

EMAIL = "column:sales.people/email"
QUESTION = ("policy", "check", "--as", "bob", EMAIL, "select")


def _policies(directory: Path) -> Path:
    item = {"users": ["bob"], "accesses": [{"type": "hive:select"}]}
    denied = policy("pii", {"tag": ["PII"]}, {}, denyPolicyItems=[item])
    granted = policy("readers", tables("sales"), {"bob": ["select"]})
    path = directory / "policies.json"
    path.write_text(json.dumps({"policies": [granted, denied]}))
    return path


def test_a_tag_is_set_and_removed_and_decides(host: Host, tmp_path: Path) -> None:
    host.run("policy", "put", "sales", _policies(tmp_path))
    host.run(*QUESTION)
    assert "tag 'PII'" in host.run("tag", "set", EMAIL, "PII", "--dry-run").stdout
    host.run(*QUESTION)
    host.run("tag", "set", EMAIL, "PII", "GDPR", "--attribute", "level=high")
    host.run(*QUESTION, code=3)
    (found, _) = host.json("tag", "list", "table:sales.people")["tags"]
    assert (found["resource"], found["tag"], found["attributes"]) == (EMAIL, "PII", {"level": "high"})
    assert host.json("tag", "list", "table:sales.orders")["tags"] == []
    assert "does not have the tag 'PCI'" in host.run("tag", "remove", EMAIL, "PCI", code=1).stderr
    host.run("tag", "remove", EMAIL, "PII", "GDPR")
    host.run(*QUESTION)
    assert host.json("policy", "history", "catalog", "--kind", "tags")["changes"][0]["sha256"] is None


def test_imported_tags_are_replaced_and_not_edited(host: Host, tmp_path: Path) -> None:
    host.run("policy", "put", "sales", _policies(tmp_path))
    file = tmp_path / "tags.json"
    file.write_text(json.dumps(service_tags([tagged("sales", "people", tags=["PII"])])))
    host.run("tag", "import", file)
    host.run(*QUESTION, code=3)
    assert "tags/catalog" in host.run("tag", "remove", "table:sales.people", "PII", code=1).stderr
    file.write_text(json.dumps(service_tags([tagged("sales", "orders", tags=["PII"])])))
    host.run("tag", "import", file)
    host.run(*QUESTION)
    assert [each["document"] for each in host.json("tag", "list")["tags"]] == ["imported"]
    file.write_text('{"policies": []}')
    assert "of the kind ranger, not tags" in host.run("tag", "import", file, code=1).stderr

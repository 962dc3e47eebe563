"""`lakewarden policy sync` and `policy sources`, on the catalog's host."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from catalog.audit import reading
from tests.support.host import Host
from tests.support.lake import policy, tables
from tests.support.ranger_admin import RangerAdmin, ranger_admin


@pytest.fixture
def ranger() -> Iterator[RangerAdmin]:
    with ranger_admin() as running:
        running.put("hive", 5, [policy("of ranger", tables("db"), {"bob": ["select"]})])
        yield running


@pytest.fixture
def synced(host: Host, ranger: RangerAdmin) -> Host:
    """A host whose settings name a source."""
    settings = f'\n[ranger.prod]\nurl = "{ranger.url}"\nservice = "hive"\nroles = false\n'
    host.config.write_text(host.config.read_text() + settings)
    return host


def test_policies_are_synchronized_by_hand(synced: Host, ranger: RangerAdmin) -> None:
    assert synced.json("policy", "sources")["ranger"][0]["state"] == "never"
    assert "revision 2; 1 policies in force" in synced.run("policy", "sync", "prod").stdout
    assert "nothing changed" in synced.run("policy", "sync").stdout
    assert synced.json("policy", "sources")["ranger"][0]["state"] == "current"
    assert synced.json("policy", "show")["ranger"][0]["versions"] == {"policies": 5}
    with synced.services() as services:
        found = reading.read(services.engine, limit=20)
    details = [reason.detail for each in found for reason in each.record.reasons]
    assert "Source prod, versions: policies 5; 1 policies, 0 left out." in details


def test_a_source_that_fails_ends_with_1_and_says_why(synced: Host, ranger: RangerAdmin) -> None:
    ranger.fault = 403, "application/json", b""
    assert "policy.download.auth.users" in synced.run("policy", "sync", code=1).stderr
    (found,) = synced.json("policy", "sources")["ranger"]
    assert found["state"] == "never" and "403" in found["problem"]


def test_an_older_version_needs_an_option(synced: Host, ranger: RangerAdmin) -> None:
    synced.run("policy", "sync")
    ranger.put("hive", 4, [])
    assert "--accept-older" in synced.run("policy", "sync", code=1).stderr
    assert "0 policies" in synced.run("policy", "sync", "--accept-older").stdout


def test_a_source_that_the_settings_do_not_have_is_refused(synced: Host) -> None:
    assert "Sources: prod" in synced.run("policy", "sync", "test", code=1).stderr


def test_documents_of_a_source_cannot_be_put(synced: Host) -> None:
    synced.run("policy", "sync")
    file = synced.root / "document.json"
    file.write_text(json.dumps({"policies": []}))
    refusal = synced.run("policy", "put", "ranger.prod", file, "--revision", "2", code=1)
    assert "policy source prod" in refusal.stderr

"""`lakewarden table` and `lakewarden key list`: decided by the policies, and audited."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from catalog.base.identifiers import table_name
from catalog.cli.session import open_state
from catalog.state.pointers import Move
from catalog.state.sql_pointers import SqlPointerStore
from tests.support.host import ADMIN, ROWS, Host
from tests.support.lake import ALLOWS_UNSEALED

TABLE = "sales.orders"
_AS_ADMIN = ("--as", ADMIN)


def _move_pointer(host: Host, metadata_location: str) -> None:
    """What a writer does who goes straight to the pointer store."""
    name = table_name(["sales"], "orders")
    with open_state(host.settings()) as engine:
        pointers = SqlPointerStore(engine, host.settings().catalog.name)
        before = pointers.load(name)
        assert before is not None
        pointers.swap([Move(name, before, metadata_location)])


def _stock_catalog(host: Host) -> SqlCatalog:
    """A standard pyiceberg catalog on the same pointer store."""
    settings = host.settings()
    url = settings.database.url.get_secret_value()
    return SqlCatalog(settings.catalog.name, uri=url, warehouse=settings.warehouse)


def test_show_tells_identity_seal_and_what_governs(host: Host) -> None:
    table = host.make_table()
    shown = host.json("table", "show", TABLE, *_AS_ADMIN)
    assert shown["table-uuid"] == str(table.metadata.table_uuid)
    assert shown["sealed"] is True and shown["owner"] == ADMIN
    assert shown["properties"]["read.allowed.data.paths"] == shown["location"]
    assert shown["location"] in host.run("table", "show", TABLE, *_AS_ADMIN).stdout


@pytest.mark.nightly
def test_a_table_is_set_and_unset(host: Host) -> None:
    location = host.make_table().location()
    host.run("table", "set", TABLE, "encryption.mechanism=envelope", "comment=a=b", *_AS_ADMIN)
    governed = host.json("table", "show", TABLE, *_AS_ADMIN)["properties"]
    assert governed["encryption.master-key-id"] == "lakewarden"
    with host.catalog() as catalog:
        assert catalog.load_table(TABLE).properties["comment"] == "a=b"
    wider = json.dumps([location, f"{host.settings().warehouse}/shared"])
    host.run("table", "set", TABLE, f"read.allowed.data.paths={wider}", *_AS_ADMIN)
    host.run("table", "unset", TABLE, "read.allowed.data.paths", "comment", *_AS_ADMIN)
    governed = host.json("table", "show", TABLE, *_AS_ADMIN)["properties"]
    assert governed["read.allowed.data.paths"] == location
    with host.catalog() as catalog:
        assert "comment" not in catalog.load_table(TABLE).properties


def test_a_foreign_path_needs_a_policy_of_its_own(host: Host) -> None:
    host.make_table()
    result = host.run("table", "set", TABLE, "read.allowed.data.paths=file:///etc", *_AS_ADMIN, code=1)
    assert "rwstorage" in result.stderr and "file:///etc" in result.stderr
    assert "file:///etc" not in host.run("table", "show", TABLE, *_AS_ADMIN).stdout


def test_narrowing_that_breaks_a_live_snapshot_needs_force(host: Host) -> None:
    host.make_table()
    elsewhere = f"read.allowed.data.paths={host.settings().warehouse}/elsewhere"
    assert "narrowing" in host.run("table", "set", TABLE, elsewhere, *_AS_ADMIN, code=1).stderr
    host.run("table", "set", TABLE, elsewhere, "--force", *_AS_ADMIN)


@pytest.mark.nightly
def test_the_policies_decide_for_the_principal_that_is_named(host: Host) -> None:
    host.make_table()
    for command in (
        ("table", "show", TABLE),
        ("table", "set", TABLE, "comment=x"),
        ("table", "drop", TABLE),
        ("table", "drop", TABLE, "--purge"),
        ("table", "restore", TABLE),
        ("table", "reseal", TABLE),
        ("key", "list", TABLE),
    ):
        assert "mallory is not authorized" in host.run(*command, "--as", "mallory", code=1).stderr
    refused = host.json("audit", "show", "--user", "mallory")
    assert len(refused) == 7 and not any(record["allowed"] for record in refused)
    assert host.json("table", "show", TABLE, *_AS_ADMIN)["sealed"] is True


def test_keys_are_listed_without_key_bytes(host: Host) -> None:
    host.make_table(**{"encryption.mechanism": "envelope"})
    keys = host.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    assert [(key["master-key-id"], key["version"], key["state"]) for key in keys] == [
        ("lakewarden", 1, "active")
    ]
    assert keys[0].keys() == {
        "id",
        "version",
        "master-key-id",
        "kms",
        "state",
        "in-force",
        "destroy-after-ms",
        "invocations",
        "needs-rotation",
    }
    assert keys[0]["id"] in host.run("key", "list", TABLE, *_AS_ADMIN).stdout


@pytest.mark.nightly
def test_unsealed_metadata_is_shown_resealed_and_rolled_back(host: Host) -> None:
    table = host.make_table()
    with host.catalog() as catalog:
        catalog.update_namespace_properties("sales", updates=ALLOWS_UNSEALED)
    sealed = table.metadata_location
    unsealed = table.metadata.metadata_log[-1].metadata_file
    _move_pointer(host, unsealed)
    assert host.json("table", "show", TABLE, *_AS_ADMIN)["sealed"] is False
    host.run("table", "restore", TABLE, *_AS_ADMIN)
    shown = host.json("table", "show", TABLE, *_AS_ADMIN)
    assert shown["sealed"] is True and shown["metadata-location"] == sealed
    _move_pointer(host, unsealed)
    host.run("table", "reseal", TABLE, *_AS_ADMIN)
    shown = host.json("table", "show", TABLE, *_AS_ADMIN)
    assert shown["sealed"] is True and shown["metadata-location"] == unsealed


def test_a_table_of_a_stock_catalog_is_adopted(host: Host) -> None:
    stock = _stock_catalog(host)
    stock.create_namespace("sales")
    stock.create_table(TABLE, ROWS.schema).append(ROWS)
    stock.close()
    assert "lakewarden table adopt" in host.run("table", "show", TABLE, *_AS_ADMIN, code=1).stderr
    host.run("table", "adopt", TABLE, *_AS_ADMIN)
    assert host.json("table", "show", TABLE, *_AS_ADMIN)["sealed"] is True


@pytest.mark.nightly
def test_a_dropped_table_is_registered_again(host: Host) -> None:
    table = host.make_table()
    assert "Its files stay" in host.run("table", "drop", TABLE, *_AS_ADMIN).stderr
    host.run("table", "show", TABLE, *_AS_ADMIN, code=1)
    host.run("table", "register", "sales.back", table.metadata_location, *_AS_ADMIN)
    assert host.json("table", "show", "sales.back", *_AS_ADMIN)["table-uuid"] == str(
        table.metadata.table_uuid
    )


@pytest.mark.nightly
def test_garbage_is_listed_before_it_is_removed(host: Host) -> None:
    table = host.make_table()
    left = Path(table.location().removeprefix("file://")) / "data" / "left.parquet"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"PAR1")
    assert host.json("table", "clean-up", TABLE, *_AS_ADMIN)["found"] == 0
    long_ago = time.time() - 4 * 24 * 3600
    os.utime(left, (long_ago, long_ago))
    listed = host.json("table", "clean-up", TABLE, *_AS_ADMIN)
    assert (listed["found"], listed["bytes"], listed["removed"]) == (1, 4, 0)
    assert [each["path"] for each in listed["files"]] == [f"file://{left}"]
    shown = host.run("table", "clean-up", TABLE, *_AS_ADMIN)
    assert str(left) in shown.stdout and "Removed none" in shown.stderr and left.exists()
    assert "Removed 1 of them" in host.run("table", "clean-up", TABLE, "--remove", *_AS_ADMIN).stderr
    assert not left.exists()


def test_purge_deletes_the_files(host: Host) -> None:
    directory = Path(host.make_table().location().removeprefix("file://"))
    assert any(path.is_file() for path in directory.rglob("*"))
    host.run("table", "drop", TABLE, "--purge", *_AS_ADMIN)
    assert not any(path.is_file() for path in directory.rglob("*"))


@pytest.mark.nightly
def test_what_is_left_of_an_earlier_encryption_is_shown_and_its_end_refused(host: Host) -> None:
    host.make_table()
    host.run("table", "set", TABLE, "encryption.mechanism=envelope", *_AS_ADMIN)
    report = host.json("table", "epochs", TABLE, *_AS_ADMIN)
    (plain,) = report["branches"]
    assert (plain["files"], plain["old-files"], report["old-forbidden"]) == (1, 1, False)
    assert plain["properties"]["encryption.mechanism"] == "plaintext"
    (snapshot,) = report["snapshots"]
    shown = host.run("table", "epochs", TABLE, *_AS_ADMIN)
    assert str(snapshot["snapshot-id"]) in shown.stdout and "branch main" in shown.stdout
    refusal = host.run("table", "forbid-old-epochs", TABLE, *_AS_ADMIN, code=1)
    assert str(snapshot["snapshot-id"]) in refusal.stderr


def test_an_earlier_encryption_without_files_is_forbidden(host: Host) -> None:
    host.make_table(comment="a table without rows")
    host.run("table", "set", TABLE, "encryption.mechanism=envelope", *_AS_ADMIN)
    assert host.json("table", "forbid-old-epochs", TABLE, *_AS_ADMIN)["old-forbidden"] is True
    assert "are refused" in host.run("table", "epochs", TABLE, *_AS_ADMIN).stderr

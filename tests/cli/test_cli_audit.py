"""`lakewarden audit`: copies elsewhere, checkpoints and their key, and old records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.db.engine import open_database, write
from policy.decision import Reason
from tests.support.host import ADMIN, Host


def test_the_trail_is_copied_as_lines_and_checked_against_the_copy(host: Host, tmp_path: Path) -> None:
    host.run("token", "issue", "bob")
    lines = host.run("audit", "export", "--since", "1h").stdout.splitlines()
    assert [json.loads(line)["action"] for line in lines][-1] == "token.issue"
    checkpoint = host.run("audit", "checkpoint").stdout
    assert "token.issue" not in checkpoint and len(json.loads(checkpoint)["public_key"]) == 64
    copy = tmp_path / "copy.jsonl"
    copy.write_text("\n".join([*lines, "", checkpoint]))
    verdict = host.json("audit", "verify", "--checkpoint", str(copy))
    assert (verdict["problems"], verdict["evidence"], verdict["signed_from"]) == ([], len(lines) + 1, 1)
    engine = open_database(host.settings().database.url)
    with write(engine) as connection:
        connection.execute(text("DELETE FROM lw_audit WHERE action = 'token.issue'"))
        connection.execute(text("DELETE FROM lw_audit_chain"))
        connection.execute(text("DELETE FROM lw_audit_checkpoint WHERE number > 1"))
    engine.dispose()
    verdict = host.json("audit", "verify", "--checkpoint", str(copy), code=1)
    assert {"rollback", "truncated"} <= {each["kind"] for each in verdict["problems"]}


def test_a_copy_that_cannot_be_read_is_an_error(host: Host, tmp_path: Path) -> None:
    found = host.run("audit", "verify", "--checkpoint", str(tmp_path / "none"), code=1)
    assert "cannot be read" in found.stderr


def test_checkpoints_are_signed_and_another_key_does_not_count(host: Host) -> None:
    host.run("token", "issue", "bob")
    public = json.loads(host.run("audit", "checkpoint").stdout)["public_key"]
    assert "signed from 1 on" in host.run("audit", "verify").stderr
    key_file = host.settings().audit.key_file
    assert key_file is not None and key_file.stat().st_mode & 0o777 == 0o600
    key_file.unlink()
    assert "key of the audit log" in host.run("audit", "verify", code=1).stderr
    host.run("token", "issue", "carol")
    key_file.write_text("0" * 64)
    key_file.chmod(0o600)
    assert host.json("audit", "verify", code=1)["problems"][0]["kind"] == "checkpoint"
    assert host.json("audit", "verify", "--public-key", public)["problems"] == []


def test_a_public_key_is_read_in_either_case_and_a_mistyped_one_is_no_key(host: Host) -> None:
    host.run("token", "issue", "bob")
    public = json.loads(host.run("audit", "checkpoint").stdout)["public_key"]
    key_file = host.settings().audit.key_file
    assert key_file is not None
    key_file.write_text("0" * 64)
    assert host.json("audit", "verify", "--public-key", public.upper())["problems"] == []
    for mistyped in (public[:-1], public + "0", "g" * 64, ""):
        assert "64 hexadecimal digits" in host.run("audit", "verify", "--public-key", mistyped, code=2).stderr


def test_old_records_are_pruned_by_who_may_and_young_ones_by_nobody(host: Host) -> None:
    host.run("token", "issue", "bob")
    assert "last 30 days" in host.run("audit", "prune", "--before", "1d", "--as", ADMIN, code=1).stderr
    host.run("audit", "prune", "--before", "40d", "--as", "bob", code=1)
    assert "removed: 0" in host.run("audit", "prune", "--before", "40d", "--as", ADMIN).stderr
    latest = host.json("audit", "show", "--user", ADMIN, "--limit", "1")[0]
    assert (latest["action"], latest["allowed"]) == ("audit.prune", True)
    assert host.json("audit", "verify")["problems"] == []


@pytest.mark.nightly
def test_records_are_archived_by_who_may_and_an_archive_that_is_not_named_is_not_verified(host: Host) -> None:
    host.run("token", "issue", "bob")
    assert "audit.archive" in host.run("audit", "archive", "--as", ADMIN, code=1).stderr
    before = host.config.read_text()
    host.config.write_text(before.replace("[audit]", f'[audit]\narchive = "file://{host.root}/archive"'))
    host.run("audit", "archive", "--as", "bob", code=1)
    assert "archived: 0" in host.run("audit", "archive", "--as", ADMIN).stderr
    _age_a_record(host)
    assert "archived: 1" in host.run("audit", "archive", "--as", ADMIN).stderr
    assert "Segments of the archive: 1" in host.run("audit", "verify").stderr
    moved = host.json("audit", "show", "--since", "1970-01-01T00:00:00Z")[-1]
    exported = host.run("audit", "export").stdout.splitlines()
    assert json.loads(exported[0])["sequence"] == moved["sequence"]
    assert (
        json.loads(exported[0])["writer"]
        == moved["writer"]
        not in {each["writer"] for each in host.json("audit", "show", "--since", "1h")}
    )
    host.config.write_text(before)
    assert host.json("audit", "verify", code=1)["problems"][0]["kind"] == "archive"


def _age_a_record(host: Host) -> None:
    """Append a record of long ago."""
    engine = open_database(host.settings().database.url)
    trail = AuditTrail(engine)
    trail.append([AuditRecord("ann", None, "table.load", "db.t", True, (Reason("r", "d"),), "q", 1)])
    trail.close()
    engine.dispose()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [
        ("export",),
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in (("show",), ("show", "--json"), ("checkpoint",))
        ),
    ],
)
def test_what_cannot_be_written_is_one_sentence(host: Host, words: tuple[str, ...]) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    command = [sys.executable, "-c", "from spark_ext.cli.main import main; main()"]
    with full.open("wb") as nowhere:
        arguments = ["--config", str(host.config), "audit", *words]
        ended = subprocess.run([*command, *arguments], stdout=nowhere, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 1
    assert ended.stderr.decode().splitlines() == [
        "The output cannot be written: No space left on device. Check the disk, and try again."
    ]

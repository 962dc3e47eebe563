"""The steps of the schema add up to `catalog.db.schema`, on a new database and on one that pyiceberg made."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Connection, Engine, inspect, text

from catalog.db import migrate as migrate_module
from catalog.db import migrations
from catalog.db import postgres as postgres_module
from catalog.db.engine import open_database, read, write
from catalog.db.migrate import alembic_config, check, current_revision, upgrade
from catalog.db.schema import metadata
from catalog.envelope.peks import PekRecord, PekState
from catalog.kms.clients import KmsKey
from catalog.kms_server.store import _KEYS, Denial, EndpointKey, KeySpec, _key
from catalog.state.invocations import counted
from catalog.state.master_keys import all_assigned
from catalog.state.stored_keys import KeyFilter, select_keys
from catalog.writes.sessions import WriteLog
from policy.errors import StateUnavailable
from tests.support.postgres import PostgresServer


def _differences(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        options = {"version_table": migrations.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))


def _shape(engine: Engine) -> dict[str, Any]:
    """All tables as the database itself describes them; alembic does not compare primary keys."""
    found = inspect(engine)
    return {
        name: {
            "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(name)},
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "references": sorted(
                (k["constrained_columns"], k["referred_table"], k["referred_columns"])
                for k in found.get_foreign_keys(name)
            ),
            "unique": sorted(u["column_names"] for u in found.get_unique_constraints(name)),
            "indexes": sorted((str(i["name"]), i["column_names"]) for i in found.get_indexes(name)),
        }
        for name in found.get_table_names()
        if name != migrations.VERSION_TABLE
    }


def _made_by_schema(url: str, tmp_path: Path) -> Engine:
    """An empty database of the same kind, filled from the metadata instead of by steps."""
    engine = open_database(url)
    if engine.dialect.name == "sqlite":
        engine = open_database(f"sqlite:///{tmp_path}/by-schema.db")
        (tmp_path / "by-schema.db").touch()
    metadata.create_all(engine)
    return engine


@pytest.fixture
def empty(url: str) -> Iterator[Engine]:
    """A database without a table."""
    engine = open_database(url)
    if engine.dialect.name == "sqlite":
        Path(str(engine.url.database)).touch()
    yield engine
    engine.dispose()


@contextmanager
def of_revision(empty: Engine, revision: str) -> Iterator[Connection]:
    """A transaction in a database of an older release, with a table `t`."""
    with migrate_module._ALEMBIC, write(empty) as connection:
        command.upgrade(alembic_config(connection), revision)
        connection.execute(
            text(
                "INSERT INTO lw_table (id, catalog, table_uuid, namespace, name, owner, location,"
                " default_location, state, created_ms)"
                " VALUES ('t', 'lake', 'u', 'db', 't', 'ann', 'file:///t', true, 'active', 1)"
            )
        )
        yield connection


def test_steps_and_schema_agree(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    stepped = open_database(url)
    upgrade(stepped)
    other = url
    if stepped.dialect.name == "postgresql":
        other = request.getfixturevalue("postgres").create_database()
    direct = _made_by_schema(other, tmp_path)
    assert _differences(stepped) == []
    assert _shape(stepped) == _shape(direct)
    stepped.dispose()
    direct.dispose()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("with_type", [True, False])
def test_a_pyiceberg_database_is_adopted_with_its_rows(url: str, empty: Engine, with_type: bool) -> None:
    theirs = SqlCatalog("lake", uri=url)
    theirs.create_namespace("db", {"comment": "theirs"})
    with write(empty) as connection:
        connection.execute(
            text(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
                " VALUES ('lake', 'db', 't', 'file:///m.json')"
            )
        )
        if not with_type:
            connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
    theirs.engine.dispose()
    upgrade(empty)
    assert _differences(empty) == []
    again = SqlCatalog("lake", uri=url)
    assert again.list_tables("db") == [("db", "t")]
    assert again.load_namespace_properties("db")["comment"] == "theirs"
    again.engine.dispose()


def test_a_database_of_the_release_before_keeps_its_writes(empty: Engine) -> None:
    with of_revision(empty, "0001") as connection:
        connection.execute(
            text(
                "INSERT INTO lw_write (id, table_id, principal, prefix, governed_version, state, created_ms,"
                " expires_ms) VALUES ('w', 't', 'ann', 'file:///t/data/w', 1, 'open', 1, 2)"
            )
        )
    with pytest.raises(StateUnavailable, match="older release"):
        check(empty)
    upgrade(empty)
    check(empty)
    found = WriteLog(empty, lambda: 3, 1).find("ann", "w")
    assert found is not None
    assert (found.table_id, found.staged_metadata, found.transport) == ("t", None, None)


def test_keys_of_before_are_taken_to_have_encrypted(empty: Engine) -> None:
    key = UUID(int=1)
    with of_revision(empty, "0005") as connection:
        connection.execute(
            text(
                "INSERT INTO lw_pek (id, version, table_id, master_key_id, kms, wrapped, state, created_ms)"
                " VALUES (:id, 2, 't', 'm', 'local', '', 'active', 1)"
            ),
            {"id": str(key)},
        )
    upgrade(empty)
    with read(empty) as connection:
        assert counted(connection, [key]) == {(key, 2): 2**28}


def test_keys_of_the_kms_endpoint_of_before_are_stored_with_those_of_tables(empty: Engine) -> None:
    """With their state, check value and wrapped form; and their versions stay."""
    key, pek = UUID(int=1), UUID(int=2)
    with of_revision(empty, "0013") as connection:
        for statement in (
            "INSERT INTO lw_door_key (id, catalog, name, bits, description, attributes, denial,"
            " master_key_id, kms, wrapped, key_check, state, author, created_ms) VALUES (:key, 'lake', 'pii',"
            " 128, NULL,"
            """ '{"a": "b"}', 'mask', 'm', 'local', :wrapped, :checked, 'disabled', 'ann', 7)""",
            "INSERT INTO lw_door_key_version (key_id, version, sealed, author, created_ms)"
            " VALUES (:key, 0, :wrapped, 'ann', 7)",
            "INSERT INTO lw_pek (id, version, table_id, master_key_id, kms, wrapped, state, created_ms)"
            " VALUES (:pek, 2, 't', 'm', 'local', :wrapped, 'active', 1)",
            "UPDATE lw_table SET table_uuid = :pek",
        ):
            values = {"key": str(key), "pek": str(pek), "wrapped": b"w", "checked": b"c"}
            names = [name for name in values if f":{name}" in statement]
            connection.execute(text(statement), {name: values[name] for name in names})
    upgrade(empty)
    with read(empty) as connection:
        found = select_keys(connection, "lake", KeyFilter(master_key_id="m", kms="local"), None, 9)
        assert select_keys(connection, "other", KeyFilter(master_key_id="m"), None, 9) == []
        assert all_assigned(connection, "lake") == {"m": KmsKey("local", "m")}
        (shown,) = connection.execute(_KEYS)
    assert found == [
        PekRecord(key, "", key, "m", 1, b"w", "local", PekState.DISABLED, check=b"c", kms_key_id="m"),
        PekRecord(pek, "t", pek, "m", 2, b"w", "local", kms_key_id="m"),
    ]
    spec = KeySpec("pii", 128, None, {"a": "b"}, Denial.MASK)
    assert _key(shown) == EndpointKey(spec, 1, found[0], 7)


def test_tokens_of_engines_of_before_serve_at_each_start(empty: Engine) -> None:
    with of_revision(empty, "0007") as connection:
        for kind in ("engine", "user"):
            connection.execute(
                text(
                    "INSERT INTO lw_token (id, kind, principal, groups, roles, secret_sha256, created_ms)"
                    " VALUES (:kind, :kind, 'x', '[]', '[]', '', 1)"
                ),
                {"kind": kind},
            )
    upgrade(empty)
    with read(empty) as connection:
        kinds = {row.id: row.kind for row in connection.execute(text("SELECT id, kind FROM lw_token"))}
    assert kinds == {"engine": "engine-reusable", "user": "user"}


def test_a_foreign_table_of_that_name_is_refused_and_nothing_is_made(empty: Engine) -> None:
    with write(empty) as connection:
        connection.execute(text("CREATE TABLE iceberg_tables (id INTEGER)"))
    with pytest.raises(StateUnavailable, match="iceberg_tables"):
        upgrade(empty)
    assert inspect(empty).get_table_names() == ["iceberg_tables"]


def test_tables_without_a_revision_are_refused(empty: Engine) -> None:
    metadata.create_all(empty)
    with pytest.raises(StateUnavailable, match="revision"):
        upgrade(empty)


def test_check_refuses_a_database_that_is_behind(empty: Engine) -> None:
    assert current_revision(empty) is None
    with pytest.raises(StateUnavailable, match="lakewarden db upgrade"):
        check(empty)
    upgrade(empty)
    check(empty)


def test_check_and_upgrade_refuse_a_database_of_a_newer_release(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("UPDATE lw_alembic_version SET version_num = '9999'"))
    for step in (check, upgrade):
        with pytest.raises(StateUnavailable, match="newer release"):
            step(engine)


def test_upgrade_twice_does_nothing_the_second_time(engine: Engine) -> None:
    before = current_revision(engine)
    upgrade(engine)
    assert (
        current_revision(engine) == before == ScriptDirectory.from_config(alembic_config()).get_current_head()
    )


def test_each_file_of_a_step_is_named_after_its_revision() -> None:
    """A start reads names alone, without Alembic."""
    steps = ScriptDirectory.from_config(alembic_config()).walk_revisions()
    assert migrate_module._steps() == tuple(step.revision for step in steps)[::-1]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("others", [[], ["9999"], ["9999", "9998"]])
def test_a_revision_that_is_missing_or_not_the_only_one_is_refused(engine: Engine, others: list[str]) -> None:
    with write(engine) as connection:
        connection.execute(text("DELETE FROM lw_alembic_version"))
        for each in others:
            connection.execute(text("INSERT INTO lw_alembic_version VALUES (:each)"), {"each": each})
    for step in (check, upgrade):
        with pytest.raises(StateUnavailable, match=r"revision|older|newer"):
            step(engine)


def test_processes_may_upgrade_at_once(url: str) -> None:
    program = textwrap.dedent(
        """
        import sys
        from catalog.db.engine import open_database
        from catalog.db.migrate import check, upgrade
        print("ready", flush=True)
        sys.stdin.read(1)
        engine = open_database(sys.argv[1])
        upgrade(engine)
        check(engine)
        """
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"g")
        process.stdin.flush()
    ends = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ends


def test_upgrade_waits_for_the_lock_of_another_one(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "LOCK_TIMEOUT_MS", 50)
    engine = open_database(postgres.create_database())
    with write(engine) as holder:
        holder.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": migrate_module._LOCK_KEY})
        other = open_database(engine.url.render_as_string(hide_password=False))
        with pytest.raises(StateUnavailable, match="locked"):
            upgrade(other)
    upgrade(other)
    check(engine)
    for one in (engine, other):
        one.dispose()


def test_upgrade_leaves_logging_alone(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), root.manager.disable)
    engine = open_database(f"sqlite:///{tmp_path}/x.db")
    upgrade(engine)
    assert (root.level, list(root.handlers), root.manager.disable) == before
    assert not logging.getLogger("catalog").disabled
    engine.dispose()


def test_every_directory_of_steps_is_a_package_and_so_part_of_a_wheel() -> None:
    root = Path(migrations.__file__).parent
    directories = {path.parent for path in root.rglob("*.py")}
    assert all((directory / "__init__.py").is_file() for directory in directories)
    assert (root / "script.py.mako").is_file()


def test_a_new_step_can_be_written_from_the_template(sqlite_engine: Engine, tmp_path: Path) -> None:
    with read(sqlite_engine) as connection:
        config = alembic_config(connection)
        config.set_main_option("version_locations", f"{migrations.__path__[0]}/versions:{tmp_path}")
        made = command.revision(config, message="try", version_path=str(tmp_path), autogenerate=True)
    assert not isinstance(made, list) and made is not None
    written = Path(made.path).read_text()
    compile(written, made.path, "exec")
    assert "create_table" not in written


def test_users_get_the_groups_of_their_tokens_that_are_not_revoked(empty: Engine) -> None:
    rows = [
        ("1", "ann", '["staff"]', '["reader"]', 5, None),
        ("2", "ann", '["analysts"]', "[]", 9, None),
        ("3", "ann", '["admins"]', '["owner"]', 7, 8),
        ("4", "bob", '["staff"]', "[]", 6, 7),
    ]
    with of_revision(empty, "0026") as connection:
        for each in rows:
            connection.execute(
                text(
                    "INSERT INTO lw_token (id, principal, groups, roles, created_ms, revoked_ms, kind,"
                    " secret_sha256) VALUES (:id, :who, :groups, :roles, :at, :ended, 'user', :hash)"
                ),
                dict(zip(("id", "who", "groups", "roles", "at", "ended"), each, strict=True))
                | {"hash": "0" * 64},
            )
    upgrade(empty)
    with read(empty) as connection:
        found = connection.execute(
            text("SELECT name, groups, roles, known_since_ms FROM lw_principal ORDER BY name")
        ).all()
    assert list(map(tuple, found)) == [
        ("ann", '["analysts", "staff"]', '["reader"]', 5),
        ("bob", "[]", "[]", 6),
    ]


def test_there_can_be_more_users_than_a_statement_has_room_for(empty: Engine) -> None:
    count = 20_000
    with of_revision(empty, "0026") as connection:
        connection.execute(
            text(
                "INSERT INTO lw_token (id, principal, groups, roles, created_ms, kind, secret_sha256)"
                " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
                " SELECT CAST(i AS VARCHAR(36)), 'u' || i, '[]', '[]', 5, 'user', '0' FROM n"
            ),
            {"count": count},
        )
    upgrade(empty)
    with read(empty) as connection:
        assert connection.execute(text("SELECT count(*) FROM lw_principal")).scalar_one() == count

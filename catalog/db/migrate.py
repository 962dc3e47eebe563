"""Upgrades the database to the schema of this release.

- `upgrade` is the only code that creates a database or changes its schema; everything else calls `check`
  first.
- One transaction, under a lock: of two processes that upgrade at once, the second waits and finds nothing to
  do.
- An existing pyiceberg `SqlCatalog` database is adopted: its tables stay as they are, what is missing is
  added.
- A database of a newer release is refused, never "downgraded".
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, String, column, inspect, select, table, text

from catalog.db import migrations
from catalog.db.engine import read, write
from catalog.db.faults import UPGRADE_HINT
from catalog.db.sqlite import create_file
from policy.errors import StateUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

#: The advisory lock for upgrades on PostgreSQL.
_LOCK_KEY: Final = 0x6C77_6462

#: Alembic's `op` and `context` are global to the process.
_ALEMBIC: Final = threading.Lock()


def upgrade(engine: Engine) -> None:
    """Create the database or upgrade it to this release's schema; does nothing if it is current.

    Raises:
        StateUnavailable: the database does not answer, belongs to a newer release, or holds foreign tables
            under our names. Nothing was changed.
    """
    from alembic import command

    if engine.dialect.name == "sqlite":
        create_file(engine)
    with _ALEMBIC, write(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        current = _revision(connection)
        _refuse_unknown(current)
        if current is None:
            _refuse_unversioned(connection)
        command.upgrade(alembic_config(connection), "head")


def current_revision(engine: Engine) -> str | None:
    """Return the revision of the database's schema, or None for a database that was never upgraded.

    Raises:
        StateUnavailable: the database does not answer.
    """
    with read(engine) as connection:
        return _revision(connection)


def check(engine: Engine) -> None:
    """Check that the database has exactly this release's schema.

    Raises:
        StateUnavailable: it is behind or ahead, or does not answer.
    """
    current = current_revision(engine)
    _refuse_unknown(current)
    if current != _steps()[-1]:
        raise StateUnavailable(
            "The catalog's database has the schema of an older release, or none at all.",
            rule="database-revision",
            hint=UPGRADE_HINT,
        )


def alembic_config(connection: Connection | None = None) -> Config:
    """Return alembic's configuration without a file: the migrations are beside this module.

    A developer writes a new step with ``command.revision(alembic_config(connection), message="…",
    autogenerate=True)``.
    """
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@functools.cache
def _steps() -> tuple[str, ...]:
    """The revisions of this release, oldest first: each file is named after its revision.

    Alembic, which would run each file, is for upgrades alone; every start of a service checks the revision.
    """
    files = Path(migrations.__file__).with_name("versions").glob("[0-9]*_*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(migrations.VERSION_TABLE):
        return None
    rows = select(column("version_num", String)).select_from(table(migrations.VERSION_TABLE))
    found: list[str] = sorted(connection.scalars(rows))
    if len(found) > 1:
        raise StateUnavailable(
            f"The catalog's database has {len(found)} schema revisions: {', '.join(found)}.",
            rule="database-revision",
            hint="Restore the database from a backup.",
        )
    return found[0] if found else None


def _refuse_unknown(current: str | None) -> None:
    if current is not None and current not in _steps():
        raise StateUnavailable(
            "The catalog's database has the schema of a newer release.",
            rule="database-revision",
            hint="Run the release that last ran `lakewarden db upgrade` on it, or a newer one.",
        )


def _refuse_unversioned(connection: Connection) -> None:
    found = sorted(name for name in inspect(connection).get_table_names() if name.startswith("lw_"))
    if found:
        raise StateUnavailable(
            f"The catalog's database contains the table {found[0]}, but not its schema revision.",
            rule="database-revision",
            hint="Set `database.url` to an empty database, or restore this one from a backup.",
        )

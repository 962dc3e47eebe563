"""The environment that alembic runs for each command.

- The caller hands in a connection with an open transaction that already holds the lock
  (`catalog.db.migrate`); nothing is committed here.
- Logging is left as the program has set it up.
"""

from __future__ import annotations

from alembic import context

from catalog.db.migrations import VERSION_TABLE
from catalog.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    compare_type=True,
)

with context.begin_transaction():
    context.run_migrations()

"""The migrations of the database's schema.

Each file in `versions` is one step. A step that has been released is never edited; a change is a new step,
and a test holds the sum of all steps against `catalog.db.schema`. There is no step back: the way back is a
backup.
"""

from __future__ import annotations

from typing import Final

#: The table with the database's revision; it has its own name because other programs can share the database.
VERSION_TABLE: Final = "lw_alembic_version"

"""The database's schema, step by step.

Each file in `versions` is one step. A step that has been released is never edited; a change is a new step,
and a test holds the sum of all steps against `catalog.db.schema`. There is no step back: the way back is a
backup.
"""

from __future__ import annotations

from typing import Final

#: Where the database keeps its revision: a name of our own, for the database may be shared with other
#: programs.
VERSION_TABLE: Final = "lw_alembic_version"

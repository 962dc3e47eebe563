"""The status of entries in manifests (Iceberg table specification, "Manifest Entry Fields")."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2


def alive(entries: pa.Table) -> pa.Table:
    """Return the entries of files that a manifest adds or carries over."""
    return entries.filter(pc.not_equal(entries["status"], DELETED))


def newly_added(entries: pa.Table) -> pa.Table:
    """Return the entries of files that a manifest adds."""
    return entries.filter(pc.equal(entries["status"], ADDED))

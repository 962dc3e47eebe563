"""Writes table metadata as JSON, and remembers the text of sealed metadata.

Sealed metadata never changes, so its text is made once and remembered by the digest of its bytes, which each
load still reads and verifies. The properties are written each time: the governed ones stand among them. So is
what a user gets who sees a part of a table.
"""

from __future__ import annotations

import json
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from catalog.base.recent import Recent
from catalog.reading.loading import LoadedTable

#: The maximum number of bytes that are remembered.
_MAX_BYTES: Final = 64 << 20
_PROPERTIES: Final = "properties"

_texts: Final = Recent[bytes](_MAX_BYTES, len)


def metadata_text(shown: TableMetadata, table: LoadedTable | None = None) -> tuple[bytes, bytes]:
    """Return metadata as JSON, in two parts: the remembered one is long, and is copied once, into the answer.

    Args:
        shown: the metadata as a user gets it.
        table: the table that it was made of, to remember the text; None if there is none yet.
    """
    if table is None or table.seal is None or not _has_parts_of(shown, table.metadata):
        rest = _without_properties(shown)
    else:
        rest = _texts.get(table.seal.digest, lambda: _without_properties(shown))
    properties = json.dumps(shown.properties, ensure_ascii=False)
    return rest, f',"{_PROPERTIES}":{properties}}}'.encode()


def _without_properties(metadata: TableMetadata) -> bytes:
    """Return everything but the properties and the end of the object."""
    return metadata.model_dump_json(exclude={_PROPERTIES})[:-1].encode()


def _has_parts_of(shown: TableMetadata, metadata: TableMetadata) -> bool:
    """Return whether everything but the properties is the same: the very objects that were verified."""
    ours, theirs = shown.__dict__, metadata.__dict__
    return all(value is theirs.get(name) for name, value in ours.items() if name != _PROPERTIES)

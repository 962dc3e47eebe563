"""Deletes metadata files that left the metadata log of a table whose properties say so.

Source: Apache Iceberg documentation, "Maintenance", "Remove old metadata files".
"""

from __future__ import annotations

import logging

from pyiceberg.table.metadata import TableMetadata

from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.state import seals
from policy.errors import LakewardenError
from policy.location.location import Location
from policy.write_properties import DELETE_AFTER_COMMIT

logger = logging.getLogger(__name__)


def delete_unlogged(
    context: ServiceContext, table_id: str, before: TableMetadata, after: TableMetadata
) -> None:
    """Delete what a published commit took out of the metadata log; garbage collection finds what is left.

    The log of a registered table is text of its writer, and can name any file. Only a file that was sealed
    for this table is deleted.

    Args:
        context: the parts that services share.
        table_id: the table.
        before: its metadata before the commit.
        after: its metadata after it.
    """
    if after.properties.get(DELETE_AFTER_COMMIT, "").lower() != "true":
        return
    kept = {each.metadata_file for each in after.metadata_log}
    left = [each.metadata_file for each in before.metadata_log if each.metadata_file not in kept]
    try:
        with read(context.engine) as connection:
            own = seals.superseded(connection, table_id, left)
        for each in own:
            context.storage.delete(Location.parse(each))
    except LakewardenError as problem:
        # The commit is published; an error would say that it is not.
        logger.warning("metadata files that left the log are not deleted: %s", type(problem).__name__)

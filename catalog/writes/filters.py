"""Authorizes the filters of commits, and answers whether a filter can be deleted by removing whole files.

A user for whom a policy filters the rows of a table removes none of them: files hold rows that they do not
see. One who sees a column through a mask of a policy overwrites no rows: the mask would stand in the place of
values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import (
    counting_former,
    every_name,
    refuse_altered,
    refuse_masks,
    resolve,
    view_of,
)
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.writes.scopes import RowsOfFilter
from catalog.writes.whole_files import are_whole
from policy.view import ColumnNames


class WholeFiles:
    """Answers whether rows can be deleted by removing whole files.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def can_delete(
        self,
        caller: Caller,
        name: TableName,
        row_filter: BooleanExpression,
        branch: str,
        *,
        case_sensitive: bool,
    ) -> bool:
        """Return whether in each file of a branch all rows match a filter, or none.

        Raises:
            NotAuthorized: UPDATE on the table is needed, and SELECT on the columns of the filter, unmasked;
                or a row filter of a policy applies.
            RequestInvalid: a column does not exist, or is compared with a value of another type.
            NoSuchTable, MetadataUnsealed, MetadataTampered: see `TableLoader.load_sealed`.
            DecryptionRefused, KeyNotUsable, KmsUnavailable: encrypted bounds cannot be opened.
        """
        self._context.require(caller, "table.write", name)
        with self._context.authorizer.recorded(caller, "table.write", str(name)):
            table = self._context.loader.load_sealed(name)
            require_every_row(self._context, table, caller, "table.write")
            authorize_filters(
                self._context, table, [row_filter], caller, "table.write", case_sensitive=case_sensitive
            )
            scope = RowsOfFilter(self._context.keyring, table, row_filter, case_sensitive=case_sensitive)
            return are_whole(self._context.reader, table, parent_of(table, branch), scope)


def parent_of(table: LoadedTable, branch: str) -> Snapshot | None:
    """Return the head of a branch; for a branch that does not exist, the head of main.

    Source: Apache Iceberg's `SnapshotUtil.latestSnapshot`.
    """
    metadata = table.metadata
    return metadata.snapshot_by_name(branch if branch in metadata.refs else MAIN_BRANCH)


def authorize_filters(
    context: ServiceContext,
    table: LoadedTable,
    filters: Sequence[BooleanExpression],
    caller: Caller,
    action: str,
    *,
    case_sensitive: bool,
    partitions: bool = False,
) -> None:
    """Check that the caller can select each column of some filters, unmasked.

    Which files a filter touches depends on bounds, so the answer tells of these columns. So does the answer
    to a comparison with the partitions of live files, of the columns that the table is or was partitioned by.

    Args:
        context: the parts that services share.
        table: the table.
        filters: not bound to a schema.
        caller: who sends them.
        action: for the audit log.
        case_sensitive: how names are compared.
        partitions: whether partitions are compared as well.

    Raises:
        NotAuthorized: a column is denied or masked, or a row filter applies.
        RequestInvalid: a column does not exist, or is compared with a value of another type.
    """
    names = partition_columns(table) if partitions else ColumnNames()
    schema, fields = table.metadata.schema(), frozenset[int]()
    # One by one: joined by AND, a filter that is always false would hide the columns of the others.
    for each in filters:
        columns = resolve(table, schema, (), each, case_sensitive=case_sensitive)
        names, fields = names | columns.names, fields | columns.field_ids
    if not names.columns:
        return
    authorizer = context.authorizer.settled()
    view = view_of(authorizer, caller, table)
    reading = counting_former(view, table, fields, view.reads(names))
    authorizer.require(caller, action, table.name, reading.required)
    refuse_altered(authorizer, caller, table, reading.altered, action=action)


def require_every_row(
    context: ServiceContext, table: LoadedTable, caller: Caller, action: str, *, overwrites: bool = False
) -> None:
    """Refuse callers for whom a policy filters the table's rows, before rows are removed or counted.

    Args:
        context: the parts that services share.
        table: the table.
        caller: who removes rows.
        action: for the audit log.
        overwrites: whether others come in their place; then policies that mask a column refuse, too.

    Raises:
        NotAuthorized: a row filter or a mask applies.
    """
    names = every_name(table) if overwrites else ColumnNames()
    refuse_masks(context.authorizer.settled(), caller, table, names, action=action)


def require_paths(context: ServiceContext, table: LoadedTable, caller: Caller, action: str) -> None:
    """Refuse callers who cannot read `_file`, before paths of files are listed: see `shows_paths`.

    Raises:
        NotAuthorized: a column that the table is or was partitioned by is denied or masked.
    """
    authorize_filters(context, table, (), caller, action, case_sensitive=True, partitions=True)


def shows_paths(context: ServiceContext, table: LoadedTable, caller: Caller) -> bool:
    """Return whether the caller can read `_file`: directories of files are named by partitions."""
    names = partition_columns(table)
    if not names.columns:
        return True
    reading = view_of(context.authorizer.settled(), caller, table).reads(names)
    return reading.refused is None and reading.altered is None


def partition_columns(table: LoadedTable) -> ColumnNames:
    """Return every name of the columns that the table is or was partitioned by."""
    fields = (each for spec in table.metadata.partition_specs for each in spec.fields)
    sources = frozenset(each.source_id for each in fields)
    return every_name(table, sources) if sources else ColumnNames()

"""Decides who reads a table with the permissions of a view's definer.

A definer view is a door to tables that its reader cannot read. The catalog opens it only if

- a trusted engine asks, in which the reader cannot run code: the catalog believes it that the table is read
  for the text of the view, and that it shows the reader no more than that;
- the reader has SELECT on every column of the view, without masks and row filters;
- the view is in the version that the engine has read, is a definer view, and its text names the table;
- the definer is known: with a valid token of the catalog, or named by an identity provider not long ago.

What follows is decided for the definer, with the groups and roles that they have now, by the policies in
force. Records name the reader as the user, and the definer in a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.principals import Principals
from catalog.authorization.view_access import require_selectable
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import Namespace, TableName
from catalog.state.views import ViewRecord
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized, RequestInvalid
from policy.privileges.operations import running_code
from policy.sql_lint.view_text import tables_of

CATALOG_NAME: Final = "spark.catalog-name"
"""What the summary of a view says of the catalog's name in the engine that the view was made in."""


def text_tables(
    sql: str,
    default_catalog: str | None,
    default_namespace: Namespace,
    summary: Mapping[str, str],
    view: TableName,
) -> frozenset[TableName]:
    """Return the tables that the text of a definer view names.

    Raises:
        RequestInvalid: they are not known for certain.
    """
    catalog = summary.get(CATALOG_NAME)
    if not catalog:
        raise RequestInvalid(
            f"The summary of a definer view must have {CATALOG_NAME}.",
            table=str(view),
            rule="view-text",
            hint="Send the name that the catalog has in the engine.",
        )
    elsewhere = default_catalog is not None and default_catalog != catalog
    try:
        tables = tables_of(sql, catalog, default_namespace, default_elsewhere=elsewhere)
    except RequestInvalid as refusal:
        refusal.table = str(view)
        raise
    if view in tables:
        raise RequestInvalid("The text of the view names the view itself.", table=str(view), rule="view-text")
    return tables


def acting(
    authorizer: Authorizer,
    principals: Principals,
    caller: Caller,
    record: ViewRecord,
    seen: tuple[str, int],
    table: TableName,
    action: str,
) -> Caller:
    """Return the caller as whom a table is read for a reader of a view.

    Args:
        authorizer: decides and records.
        principals: knows the groups and roles of the definer.
        caller: the reader, with the engine.
        record: the view.
        seen: UUID and version of the view that the engine has read. By now another view can have its name,
            and another definer.
        table: the table.
        action: what is done to the table.

    Raises:
        NotAuthorized: one of the rules of this module.
        CommitConflict: the view was changed.
    """
    authorizer = authorizer.settled()
    require_selectable(authorizer, caller, record, action)
    _require_engine(authorizer, caller, record, action)
    if (record.id, record.version) != seen:
        raise CommitConflict(
            f"The view {record.name} was changed while the query was planned.",
            table=str(record.name),
            hint="Run the query again.",
        )
    if not record.definer_rights or table not in named_by(record):
        raise refused(
            authorizer,
            caller,
            action,
            str(table),
            Reason("view-text", f"The view {record.name} does not read {table} for its definer."),
            "Run the query again, or query the table.",
        )
    definer = principals.current(record.definer)
    if definer is None:
        raise refused(
            authorizer,
            caller,
            action,
            str(table),
            Reason(
                "view-definer",
                f"{record.definer}, the definer of the view {record.name}, is not a current user: they are "
                "disabled, have no valid token, or their identity provider has not named them for too long.",
            ),
            "Ask another user with permissions on the tables to replace the view.",
        )
    note("view", record.name)
    return replace(caller, principal=definer, reader=caller.principal, view=record.name)


def refused(
    authorizer: Authorizer, caller: Caller, action: str, about: str, reason: Reason, hint: str
) -> NotAuthorized:
    """Record a refusal, and return its error."""
    authorizer.record(caller, action, about, Decision.deny(reason))
    return NotAuthorized(reason.detail, table=about, rule=reason.rule, hint=hint)


def _require_engine(authorizer: Authorizer, caller: Caller, record: ViewRecord, action: str) -> None:
    about = f"The view {record.name} reads its tables with the permissions of its definer"
    if caller.engine is None:
        raise refused(
            authorizer,
            caller,
            action,
            str(record.name),
            Reason(
                "view-engine",
                f"{about}. A trusted engine alone can read it, and this is a process of a user.",
            ),
            "Query the view in a shared engine.",
        )
    name = caller.engine.name
    if authorizer.decide(running_code(caller.principal, name)).allowed:
        raise refused(
            authorizer,
            caller,
            action,
            str(record.name),
            Reason(
                "view-engine",
                f"{about}. {caller.principal.name} can run code in the engine {name}, which sees them whole.",
            ),
            "Query the view in an engine where you do not have the permission code.",
        )


def named_by(record: ViewRecord) -> frozenset[TableName]:
    """Return the tables that a definer view opens; none if its text is not understood any more."""
    version = record.current
    try:
        return text_tables(
            record.spark_text or "",
            version.default_catalog,
            tuple(version.default_namespace),
            version.summary,
            record.name,
        )
    except RequestInvalid:
        # A release that reads texts more strictly than the one that stored the view.
        return frozenset()

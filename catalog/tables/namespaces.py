"""Creates, lists, alters and drops namespaces.

A list shows only what the caller has a privilege on. A namespace's location is authorized like any other
path. It is never a default location for tables: only the configured warehouse is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import any_of
from catalog.base.existence import namespace_not_empty, no_namespace
from catalog.base.identifiers import Namespace, TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.state import name_lists, views
from catalog.tables.paging import ListPage, PageRequest, visible_page
from catalog.tables.visible_names import visible_names
from policy.decision import Decision, Reason
from policy.errors import RequestInvalid
from policy.privileges.namespaces import PROTECTING, check_namespace_properties, namespace_requests
from policy.privileges.operations import On, required

_LISTED: Final = Decision.allow(
    Reason("filtered-list", "The list holds what the caller has a permission on.")
)


class PropertySetAndRemoved(RequestInvalid):
    """A request both sets and removes a property."""


class Namespaces:
    """Operations on namespaces.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def create(self, caller: Caller, namespace: Namespace, properties: dict[str, str]) -> None:
        """Create a namespace.

        Raises:
            NotAuthorized: CREATE on the database is needed, RWStorage on its location if one is given, and
                UNPROTECT where it allows unsealed metadata.
            NamespaceExists: there is one.
            PropertyInvalid: a property cannot be stored.
        """
        check_namespace_properties(properties)
        self._require(caller, "namespace.create", namespace, properties)
        self._context.pointers.create_namespace(namespace, properties)

    def load(self, caller: Caller, namespace: Namespace) -> dict[str, str]:
        """Return the properties of a namespace.

        Raises:
            NotAuthorized: the caller has no right in it.
            NoSuchNamespace: there is none.
        """
        self._require(caller, "namespace.load", namespace)
        return self._existing(namespace)

    def exists(self, caller: Caller, namespace: Namespace) -> bool:
        """Return whether a namespace exists, if the caller has a privilege in it."""
        self._require(caller, "namespace.load", namespace)
        return self._context.pointers.namespace_properties(namespace) is not None

    def children(self, caller: Caller, parent: Namespace) -> list[Namespace]:
        """List all that `children_page` lists."""
        return self.children_page(caller, parent, None).entries

    def children_page(
        self, caller: Caller, parent: Namespace, wanted: PageRequest | None
    ) -> ListPage[Namespace]:
        """List the namespaces directly below `parent` in which the caller has a privilege.

        Args:
            caller: who asks.
            parent: the namespace above; empty for the top.
            wanted: the page; None for the whole list.

        Raises:
            NoSuchNamespace: there is no such parent.
        """
        if parent:
            self._require(caller, "namespace.list", parent)
            self._existing(parent)
        authorizer = self._context.authorizer.settled()
        possible = authorizer.policies().databases_with_privileges(caller.principal)

        def is_seen(namespace: Namespace) -> bool:
            if ".".join(namespace) not in possible:
                return False
            ways = required("namespace.load", On.namespace(caller.principal, namespace))
            return any_of(authorizer, ways) is not None

        page = visible_page(
            partial(self._context.pointers.children, parent),
            lambda each: each[-1],
            lambda some: list(filter(is_seen, some)),
            wanted,
        )
        self._context.authorizer.record(caller, "namespace.list", ".".join(parent), _LISTED)
        return page

    def tables(self, caller: Caller, namespace: Namespace) -> list[TableName]:
        """List all that `tables_page` lists."""
        return self.tables_page(caller, namespace, None).entries

    def tables_page(
        self, caller: Caller, namespace: Namespace, wanted: PageRequest | None
    ) -> ListPage[TableName]:
        """List the governed tables of a namespace on which the caller has a privilege.

        Args:
            caller: who asks.
            namespace: the namespace.
            wanted: the page; None for the whole list.

        Raises:
            NotAuthorized: the caller has no right in the namespace.
            NoSuchNamespace: there is none.
        """
        self._require(caller, "table.list", namespace)
        self._existing(namespace)
        return visible_names(self._context, caller, "table.exists", namespace, name_lists.tables, wanted)

    def update(
        self, caller: Caller, namespace: Namespace, removals: Iterable[str], updates: dict[str, str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Change the named properties. Concurrent changes of other properties are kept.

        Returns:
            the names updated, removed, and asked to be removed but missing.

        Raises:
            NotAuthorized: ALTER on the database is needed, and RWStorage on a new location, and UNPROTECT
                where unsealed metadata is not forbidden any more.
            PropertySetAndRemoved: a property is in both.
            NoSuchNamespace, PropertyInvalid: as it says.
        """
        wanted = list(dict.fromkeys(removals))
        both = set(wanted) & updates.keys()
        if both:
            raise PropertySetAndRemoved(
                f"The request both sets and removes the property {min(both)!r}.", rule="namespace"
            )
        check_namespace_properties(updates)
        self._require(caller, "namespace.update", namespace, updates, wanted)
        removed = self._context.pointers.change_namespace_properties(namespace, wanted, updates)
        return (
            sorted(updates),
            [name for name in wanted if name in removed],
            [name for name in wanted if name not in removed],
        )

    def drop(self, caller: Caller, namespace: Namespace) -> None:
        """Drop an empty namespace.

        Raises:
            NotAuthorized: DROP on the database is needed, and UNPROTECT where a property of it protects its
                tables, which can come back.
            NoSuchNamespace, NamespaceNotEmpty: as it says.
            CommitConflict: such a property was set at the same time.
        """
        self._require(caller, "namespace.drop", namespace)
        properties = self._existing(namespace)
        protecting = [name for name, (_, safe) in PROTECTING.items() if properties.get(name) == safe]
        if protecting:
            self._require(caller, "namespace.drop", namespace, {}, protecting)
        nested = self._context.pointers.children(namespace, limit=1)
        with read(self._context.engine) as connection:
            viewed = views.has_views(connection, self._context.catalog, namespace)
        if nested or viewed or self._context.pointers.tables(namespace, limit=1):
            raise namespace_not_empty(namespace)
        self._context.pointers.drop_namespace(namespace, protecting)

    def _require(
        self,
        caller: Caller,
        action: str,
        namespace: Namespace,
        updates: Mapping[str, str] | None = None,
        removals: Collection[str] = (),
    ) -> None:
        on = On.namespace(caller.principal, namespace)
        requests = namespace_requests(action, on, updates or {}, removals)
        self._context.authorizer.require(caller, action, ".".join(namespace), requests)

    def _existing(self, namespace: Namespace) -> dict[str, str]:
        properties = self._context.pointers.namespace_properties(namespace)
        if properties is None:
            raise no_namespace(namespace)
        return properties

"""Required privileges of every operation: one table for the catalog, its HTTP service and `policy lint`.

An operation has the name that the audit log records as its action; a part of one has a name of its own. The
rows say what an operation requires of the table, namespace, engine, service or key that it is about. Changes
of a table require more, by what they bring:

- Each location that a table can be read from, or that its writers are sent to, is an RWStorage request
  (HIVE-27927), unless it lies in the table's own default location.
- Each master key needs `use`.
- Less protection than before needs `unprotect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

from policy.encryption.requested import Requested
from policy.identifiers import TableName
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import ANY, AccessRequest, Resource


@dataclass(frozen=True, slots=True)
class Needs:
    """Access types that an operation requires.

    Attributes:
        access: on what the operation is about.
        any_of: whether one of them is enough; else each is required.
        on_keys: on each master key that the operation uses; None if it uses none.
    """

    access: tuple[str, ...]
    any_of: bool = False
    on_keys: str | None = None


def _all(*access: str, on_keys: str | None = None) -> Needs:
    return Needs(access, on_keys=on_keys)


def _any(*access: str) -> Needs:
    return Needs(access, any_of=True)


_LOADING: Final = _any("select", "update", "alter")
_ADMIN: Final = _all("admin")

_ADMINISTRATION: Final = (
    *("admin.encryption-report", "admin.sweep"),
    *("admin.policies", "admin.policies.change", "admin.policies.check"),
    *("admin.policies.read", "admin.policies.reload"),
    *("admin.token.issue", "admin.token.list", "admin.token.revoke"),
    *("admin.user.list", "admin.user.assign", "admin.user.disable", "admin.user.enable"),
    *("admin.user.forget-claims", "admin.user.delete"),
    *("admin.master-key.list", "admin.master-key.create", "admin.master-key.disable"),
    *("admin.master-key.enable", "admin.master-key.rotate", "admin.master-key.rewrap"),
    *("admin.master-key.kms-keys", "admin.master-key.keys", "admin.master-key.needs"),
)

OPERATIONS: Final[Mapping[str, Needs]] = MappingProxyType(
    {
        # On a name that no table has yet, so that nobody owns it.
        "table.create": _all("create"),
        "table.stage": _all("create"),
        "table.register": _all("create"),
        "table.adopt": _all("create"),
        "table.rename.target": _all("create"),
        # On a table.
        "table.exists": _any(ANY),
        "table.load": _LOADING,
        "table.plan": _any(ANY),
        "table.explain": _any(ANY),
        "table.plan.cancel": _any(ANY),
        "table.sign": _any(ANY),
        "table.inspect": _any(ANY),
        "table.write": _all("update"),
        "table.alter": _all("alter"),
        "table.commit": _any("update", "alter"),
        "table.replace": _all("alter", "update"),
        "table.rewrite": _all("update"),
        "table.analyze": _all("update"),
        "table.roll-back": _all("update", "alter"),
        "table.rename": _all("alter"),
        "table.overlap": _all("alter"),
        "table.unprotect": _all("unprotect"),
        "table.drop": _all("drop"),
        "table.purge": _all("drop"),
        "table.unregister": _all("drop"),
        "table.undrop": _all("alter"),
        "table.reseal": _all("alter", "update"),
        "table.restore": _all("alter"),
        "table.epochs": _any("alter", "update"),
        "table.forbid-old-epochs": _all("alter"),
        # ALTER looks after what the table keeps, DROP deletes files.
        "table.clean-up": _all("alter", "drop"),
        "table.expire": _all("alter", "drop", "update"),
        # Of an erasure, which took these; and that there was none.
        "table.certify": _all("alter", "drop", "update"),
        "table.certify-left": _any(ANY),
        # On a view, whose name is that of a table; creating and renaming, on a name that is free.
        "view.create": _all("create"),
        "view.register": _all("create"),
        "view.exists": _any(ANY),
        "view.load": _any("select", "alter"),
        "view.replace": _all("alter"),
        "view.rename": _all("alter"),
        "view.drop": _all("drop"),
        "key.list": _LOADING,
        "key.show": _LOADING,
        "key.create": _all("alter", on_keys="use"),
        "key.disable": _all("alter", on_keys="destroy"),
        "key.enable": _all("alter", on_keys="destroy"),
        "key.destroy": _all("drop", on_keys="destroy"),
        "key.destroy.version": _all("alter", on_keys="destroy"),
        "key.rotate": _all("alter", on_keys="rotate"),
        "key.rewrap": _all("alter", on_keys="rotate"),
        # On a namespace.
        "namespace.create": _all("create"),
        "namespace.load": _any(ANY),
        "namespace.list": _any(ANY),
        "namespace.update": _all("alter"),
        "namespace.drop": _all("drop"),
        "namespace.unprotect": _all("unprotect"),
        "table.list": _any(ANY),
        "view.list": _any(ANY),
        # On an engine.
        "engine.act": _all("act"),
        "engine.register": _all("act"),
        "engine.code": _all("code"),
        # On the service.
        "client.enforce": _all("enforce"),
        "audit.read": _all("audit"),
        "audit.verify": _all("audit"),
        "audit.tables": _all("audit"),
        "audit.states": _all("audit"),
        "audit.archive": _ADMIN,
        "audit.prune": _ADMIN,
        "key.dropped": _ADMIN,
        **dict.fromkeys(_ADMINISTRATION, _ADMIN),
        "admin.master-key.assign": _all("admin", on_keys="rotate"),
        "admin.master-key.move": _all("admin", on_keys="rotate"),
        # On a key of the KMS endpoint. What shows that a key exists: the first is named if all are missing.
        "door.metadata": _any("release", "use", "rotate", "destroy"),
        "door.create": _all("rotate"),
        "door.roll": _all("rotate"),
        "door.disable": _all("destroy"),
        "door.enable": _all("destroy"),
        "door.generate": _all("use"),
        "door.decrypt": _all("release"),
        "door.reencrypt": _all("use"),
    }
)
"""What each operation requires, by its name."""


@dataclass(frozen=True, slots=True)
class On:
    """What an operation is about, and for whom.

    Attributes:
        principal: the user.
        resource: the table, namespace, engine, service or key.
        owner: name of the resource's owner; None where nobody owns it.
    """

    principal: Principal
    resource: Resource
    owner: str | None = None

    @classmethod
    def table(cls, principal: Principal, name: TableName, owner: str | None = None) -> Self:
        """A table, or a name for one."""
        return cls(principal, Resource.table(name.database, name.name), owner)

    @classmethod
    def namespace(cls, principal: Principal, levels: Iterable[str]) -> Self:
        """A namespace, by its levels."""
        return cls(principal, Resource.database(".".join(levels)))

    @classmethod
    def service(cls, principal: Principal, catalog: str) -> Self:
        """The service of a catalog, by the catalog's name."""
        return cls(principal, Resource.service(catalog))

    @classmethod
    def engine(cls, principal: Principal, name: str) -> Self:
        """An engine."""
        return cls(principal, Resource.engine(name))

    def request(self, access: str) -> AccessRequest:
        """A request for one access type."""
        return AccessRequest(self.principal, self.resource, access, self.owner)

    def select(self, columns: Iterable[str]) -> list[AccessRequest]:
        """Requests for SELECT on columns of the table."""
        database, table = self.resource.values
        resources = (Resource.column(database, table, column) for column in columns)
        return [AccessRequest(self.principal, each, "select", self.owner) for each in resources]


def required(operation: str, on: On, master_key_ids: Iterable[str] = ()) -> list[AccessRequest]:
    """The requests of an operation; of `any_of`, one is enough.

    Args:
        operation: its name in `OPERATIONS`.
        on: what it is about.
        master_key_ids: the master keys that it uses.
    """
    needs = OPERATIONS[operation]
    requests = [on.request(access) for access in needs.access]
    if needs.on_keys is not None:
        requests += key_requests(on.principal, master_key_ids, needs.on_keys)
    return requests


def running_code(principal: Principal, engine: str) -> list[AccessRequest]:
    """The requests that say whether a user can run code in an engine, with this token or another one.

    The engine shows each user rows and columns that code in it could take, in any user's session.
    """
    return required("engine.code", On.engine(principal.unscoped, engine))


def loading(on: On, columns: Iterable[str] = ()) -> list[AccessRequest]:
    """The requests of which one lets a user load a table's metadata: on the table, or SELECT on a column."""
    return required("table.load", on) + on.select(columns)


def renaming(on: On, target: TableName) -> list[AccessRequest]:
    """The requests on a table and on its next name; a rename also needs SELECT on every column."""
    return required("table.rename", on) + required("table.rename.target", On.table(on.principal, target))


def changing(
    on: On,
    wanted: Requested,
    moved: Iterable[Location] = (),
    exempt: Location | None = None,
    *,
    unprotects: bool = False,
) -> list[AccessRequest]:
    """The requests of what a creation or change brings, beside the operation itself.

    Args:
        on: the table with its owner, or who will own it.
        wanted: what is to govern the table.
        moved: where the change puts the table or its writers.
        exempt: the table's own default location; None if it has none.
        unprotects: whether the change drops protection in another way than by `wanted`.
    """
    requests = storage_requests(on, [*moved, *wanted.added], exempt)
    requests += key_requests(on.principal, wanted.new_keys)
    return requests + (required("table.unprotect", on) if unprotects or wanted.unprotects else [])


def storage_requests(
    on: On, locations: Iterable[Location], exempt: Location | None = None
) -> list[AccessRequest]:
    """An RWStorage request for each location outside of the table's own default location.

    Args:
        on: the table, with its owner, or the namespace.
        locations: the locations.
        exempt: the table's own default location; None if it has none.
    """
    outside = {location for location in locations if exempt is None or not exempt.contains(location)}
    return [
        AccessRequest(on.principal, Resource.storage(location.canonical), "rwstorage", on.owner)
        for location in sorted(outside, key=lambda each: each.canonical)
    ]


def key_requests(
    principal: Principal, master_key_ids: Iterable[str], access: str = "use"
) -> list[AccessRequest]:
    """A request for each master key."""
    return [AccessRequest(principal, Resource.key(key_id), access) for key_id in sorted(set(master_key_ids))]

"""Which rights a namespace and its properties need, and which properties it may have.

- A namespace's location is an RWStorage request; it is no table's default location.
- `lakewarden.unsealed` says whether metadata that did not come through the catalog may be read. To forbid it
  no longer needs `unprotect`.
- `encryption.standard-clients` says whether Iceberg clients without Lakewarden can load encrypted tables that
  do not say so themselves. To refuse it no longer needs `unprotect`.
- A property that a person could take for that one, or for one that governs a table, would protect nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from policy.encryption import governed as governed_names
from policy.encryption.specification import StandardClients
from policy.errors import PropertyInvalid
from policy.location.location import Location
from policy.privileges.operations import On, required, storage_requests
from policy.privileges.requests import AccessRequest

UNSEALED_PROPERTY: Final = "lakewarden.unsealed"
LOCATION: Final = "location"

_MAX_PROPERTY: Final = 1000
_MAX_NAME: Final = 255
_ALLOW: Final = "allow"
_FORBID: Final = "forbid"
#: By protecting property: the value that protects less, then the one that protects.
PROTECTING: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        UNSEALED_PROPERTY: (_ALLOW, _FORBID),
        governed_names.STANDARD_CLIENTS: (StandardClients.LOAD, StandardClients.REFUSE),
    }
)


def namespace_requests(
    operation: str, on: On, updates: Mapping[str, str], removals: Collection[str] = ()
) -> list[AccessRequest]:
    """The requests of an operation on a namespace.

    Args:
        operation: its name, such as ``namespace.update``.
        on: the namespace.
        updates: properties that are set.
        removals: names of properties that are removed.

    Raises:
        LocationInvalid: the location is none.
    """
    requests = required(operation, on)
    if any(name in removals or updates.get(name) == less for name, (less, _) in PROTECTING.items()):
        requests += required("namespace.unprotect", on)
    if LOCATION in updates:
        requests += storage_requests(on, [Location.parse(updates[LOCATION])])
    return requests


def check_namespace_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that cannot be stored, or that would protect nothing.

    Raises:
        PropertyInvalid: such a property, or too many.
    """
    governed_names.check_count(len(properties))
    for name, value in properties.items():
        if not 1 <= len(name) <= _MAX_NAME or len(value) > _MAX_PROPERTY:
            raise PropertyInvalid(
                f"The namespace property {name[:80]!r} or its value is too long to be stored.",
                rule="namespace-property",
            )
        if name in PROTECTING:
            if value not in PROTECTING[name]:
                raise PropertyInvalid(
                    f"{value[:80]!a} is not an allowed value of {name}.",
                    rule="namespace-property",
                    hint=f"Use {' or '.join(PROTECTING[name])}.",
                )
        elif governed_names.is_confusable_with(name, UNSEALED_PROPERTY) or governed_names.is_governed(name):
            raise PropertyInvalid(
                f"The namespace property {name[:80]!a} has no effect, but resembles a governed property.",
                rule="namespace-property",
                hint=f"On a namespace, set {' or '.join(PROTECTING)}. Set table properties on the table.",
            )

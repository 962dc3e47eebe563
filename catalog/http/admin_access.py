"""Checks permission to administer the catalog: `admin` or `audit` on the service of the catalog's name."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.authorization.authorizer import Caller
from catalog.service.services import Services
from policy.privileges.operations import On, required


def require_service(
    services: Services,
    caller: Caller,
    action: str,
    about: str | None = None,
    master_key_ids: Iterable[str] = (),
) -> None:
    """Authorize an operation on the service, and record the decision.

    Args:
        services: the open catalog.
        caller: who asks.
        action: the operation: ``admin.token.issue``.
        about: the object of the operation, for the audit log; the service itself by default.
        master_key_ids: the master keys that it uses.

    Raises:
        NotAuthorized: it is not granted.
    """
    service = services.settings.catalog.name
    requests = required(action, On.service(caller.principal, service), master_key_ids)
    services.authorizer.require(caller, action, about or service, requests)


def may_change_policies(services: Services, caller: Caller) -> bool:
    """Return whether the caller has `admin` on the service, and so can change every policy."""
    on = On.service(caller.principal, services.settings.catalog.name)
    return services.authorizer.decide(required("admin.policies.change", on)).allowed

"""The right to administer the catalog as such: `admin` or `audit` on the service of the catalog's name."""

from __future__ import annotations

from typing import Literal

from catalog.authorization.authorizer import Caller
from catalog.service.services import Services
from policy.privileges.requests import AccessRequest, Resource


def require_service(
    services: Services,
    caller: Caller,
    action: str,
    access: Literal["admin", "audit"],
    about: str | None = None,
) -> None:
    """Decide and record.

    Args:
        services: the open catalog.
        caller: who asks.
        action: for the audit trail: ``admin.token.issue``.
        access: the right that is needed.
        about: what is acted on, for the audit trail; the service itself by default.

    Raises:
        NotAuthorized: it is not granted.
    """
    service = services.settings.catalog.name
    request = AccessRequest(caller.principal, Resource.service(service), access)
    services.authorizer.require(caller, action, about or service, [request])

"""Lists the pages of the console in its navigation, and shows each to users who can open it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.service.services import Services
from policy.privileges.operations import On, required


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the navigation.

    Attributes:
        title: its title.
        path: its path.
        operation: the operation on the service that it needs; None for a page that every user can open.
    """

    title: str
    path: str
    operation: str | None = None

    def is_at(self, path: str) -> bool:
        """Return whether a page is this one, or below it."""
        return path == self.path or (self.path != HOME and path.startswith(f"{self.path}/"))


#: The path of the console: its first page, and what the others are below.
HOME: Final = "/console"
ENTRIES: Final = (
    Entry("Tables", HOME),
    Entry("Policies", "/console/policies", "admin.policies.read"),
    Entry("Explain", "/console/explain", "admin.policies.check"),
    Entry("Compare", "/console/difference", "admin.policies.check"),
    Entry("Keys", "/console/keys", "audit.states"),
    Entry("Refusals", "/console/refusals", "audit.read"),
    Entry("Audit log", "/console/audit", "audit.read"),
)


def shown_to(services: Services, caller: Caller) -> Sequence[Entry]:
    """Return the pages that a user can open. Nothing is recorded: each page authorizes and records itself."""
    on = On.service(caller.principal, services.settings.catalog.name)

    def can_open(entry: Entry) -> bool:
        if entry.operation is None:
            return True
        return services.authorizer.decide(required(entry.operation, on)).allowed

    return [each for each in ENTRIES if can_open(each)]

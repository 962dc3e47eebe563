"""Whether old records of the audit log could be archived, for metrics and health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What `/healthz` says if they could not. Nobody is refused for that reason, so `/readyz` does not say it.
ARCHIVE_PROBLEM: Final = "Old records of the audit log cannot be archived. The service log has the reason."


@dataclass
class ArchiveState:
    """The result of the last look of this process for records to archive (`catalog.service.audit_archive`).

    Attributes:
        is_failing: whether records could not be archived. Requests are served all the same.
    """

    is_failing: bool = False

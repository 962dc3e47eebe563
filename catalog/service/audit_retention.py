"""Authorizes and limits the pruning of the audit log.

- Pruning needs `admin` on the service, and is recorded before it happens.
- With an archive, it removes old segments of the archive; records leave the database only for the archive.
- The settings define the minimum age of removed records, for every user: settings belong to the host, and
  policies cannot change them.
- A log with problems in `audit verify` is not pruned: the evidence would be removed too, and a new checkpoint
  would confirm the rest. Force overrides this, and the record says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from catalog.audit.prune import prune
from catalog.audit.verdict import Verdict
from catalog.audit.verify import examine
from catalog.authorization.authorizer import Caller
from catalog.base.progress import Tell, silent
from catalog.service.audit_archive import archive_of, archiver_of
from catalog.service.services import Services
from policy.errors import RequestInvalid
from policy.privileges.operations import On, required

_ACTION: Final = "audit.prune"
_DAY_MS: Final = 24 * 3600 * 1000


def prune_as(services: Services, caller: Caller, before_ms: int, *, force: bool, tell: Tell = silent) -> int:
    """Remove old records on behalf of a user.

    Args:
        services: the open catalog.
        caller: the user.
        before_ms: records from this time on stay, in milliseconds since 1970 UTC.
        force: whether to prune even if the log has problems.
        tell: is told the progress.

    Returns:
        the number of removed records.

    Raises:
        NotAuthorized: `admin` on the service is needed.
        RequestInvalid: some of the records are too young, or the log has problems, or an archive that is not
            configured.
        MetadataTampered: the archive has problems, and force does not help.
        StateUnavailable, CommitStateUnknown, StorageUnavailable: database or storage do not answer.
    """
    now_ms = services.now_ms()
    before = datetime.fromtimestamp(before_ms / 1000, UTC).isoformat(timespec="seconds")
    requests = required(_ACTION, On.service(caller.principal, services.settings.catalog.name))
    services.authorizer.screen(caller, _ACTION, before, *requests)
    _require_age(services.settings.audit.keep_days, before_ms, now_ms)
    verdict = _examined(services, tell)
    if verdict.archived is not None and services.settings.audit.archive is None:
        raise _has_an_archive()
    problems = len(verdict.problems)
    if problems and not force:
        raise _has_problems(problems)
    what = f"records before {before}" + (
        f", although the audit log has {problems} problems" if problems else ""
    )
    services.authorizer.require(caller, _ACTION, what, requests)
    writer = services.audit.writer_id
    if services.settings.audit.archive is not None:
        return archiver_of(services).drop(before_ms, writer, now_ms)
    return prune(services.engine, before_ms, services.audit_signer, writer, now_ms)


def _require_age(keep_days: int, before_ms: int, now_ms: int) -> None:
    if before_ms > now_ms - keep_days * _DAY_MS:
        raise RequestInvalid(
            f"`audit.keep_days` protects records of the last {keep_days} days from pruning.",
            rule="audit-prune",
            hint="Give an earlier time, or change `audit.keep_days`.",
        )


def _examined(services: Services, tell: Tell) -> Verdict:
    signer = services.audit_signer
    keys = frozenset() if signer is None else frozenset({signer.public_key})
    archive = archive_of(services.settings, services.storage)
    return examine(services.engine, public_keys=keys, archive=archive, tell=tell)


def _has_an_archive() -> RequestInvalid:
    return RequestInvalid(
        "The audit log has an archive, and `audit.archive` is not set. Records that are pruned now would be "
        "missing between the archive and the database.",
        rule="audit-prune",
        hint="Set `audit.archive` to the location of the archive.",
    )


def _has_problems(problems: int) -> RequestInvalid:
    return RequestInvalid(
        f"`audit verify` finds {problems} problems, whose evidence pruning would remove.",
        rule="audit-prune",
        hint="Run `lakewarden audit verify`, keep a copy of the database, and prune with --force.",
    )

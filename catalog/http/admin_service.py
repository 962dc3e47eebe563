"""Administers the service: policies, audit log, master keys, clean-up.

All operations need `admin` on the service of the catalog's name; reading the audit log needs `audit`.
Operations are recorded before they run.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from catalog.audit import reading as audit_reading
from catalog.audit import verify as audit_verify
from catalog.authorization.authorizer import Caller
from catalog.base.progress import Tell, silent
from catalog.http import admin_models as models
from catalog.http.admin_access import require_service
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.key_models import MasterKeyAnswer, MasterKeyList, MasterRewrapped
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute
from catalog.kms.local import LocalKms
from catalog.service.audit_archive import archive_of
from catalog.service.services import Services
from policy.errors import NotSupportedYet

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: service"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.get("/policies")
def show_policies(caller: CallerOf, services: ServicesOf) -> models.PolicyState:
    """Show the version and source of the policies in force, and why newer ones are not in force."""
    require_service(services, caller, "admin.policies")
    return _policy_state(services)


@router.post("/policies/reload")
def reload_policies(caller: CallerOf, services: ServicesOf) -> models.PolicyState:
    """Load all policies now. If a policy is not valid, the policies before stay in force."""
    require_service(services, caller, "admin.policies.reload")
    services.policies.reload()
    return _policy_state(services)


@router.post("/policies/check")
def check_policies(
    body: models.PolicyQuestion, caller: CallerOf, services: ServicesOf
) -> models.DecisionAnswer:
    """Show the decision of the policies in force on a request, and its reasons."""
    require_service(services, caller, "admin.policies.check")
    return models.DecisionAnswer.model_validate(services.authorizer.decide([body.to_request()]))


@router.get("/audit")
def read_audit(
    caller: CallerOf,
    services: ServicesOf,
    since_ms: Annotated[int | None, Query(alias="since-ms", ge=0, le=2**62)] = None,
    principal: str | None = None,
    table: str | None = None,
    refused: bool = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    page_token: Annotated[str | None, Query(alias="page-token")] = None,
) -> models.AuditEntries:
    """Show the latest records, newest first, by time, principal, dotted table name and answer, in pages."""
    before = None if page_token is None else audit_reading.RecordPosition.parse(page_token)
    require_service(services, caller, "audit.read")
    found = audit_reading.read(
        services.engine,
        since_ms=since_ms,
        principal=principal,
        table=table,
        refusals=refused,
        before=before,
        limit=limit,
    )
    return models.AuditEntries.of(found, limit)


@router.get("/audit/verify")
def verify_audit(caller: CallerOf, services: ServicesOf) -> models.AuditVerdict:
    """Verify every chain and checkpoint of the audit log, and its archive."""
    return audit_verdict(caller, services)


def audit_verdict(caller: Caller, services: Services, tell: Tell = silent) -> models.AuditVerdict:
    """Verify the audit log as `verify_audit`; `tell` is that of `catalog.audit.verify.examine`."""
    require_service(services, caller, "audit.verify")
    signer = services.audit_signer
    keys = frozenset() if signer is None else frozenset({signer.public_key})
    archive = archive_of(services.settings, services.storage)
    found = audit_verify.examine(services.engine, public_keys=keys, archive=archive, tell=tell)
    return models.AuditVerdict.of(found)


@router.get("/master-keys")
def list_master_keys(caller: CallerOf, services: ServicesOf) -> MasterKeyList:
    """List the master keys of the local KMS."""
    require_service(services, caller, "admin.master-key.list")
    return MasterKeyList.of(_local(services).list_master_keys())


@router.post("/master-keys")
def create_master_key(body: models.MasterKeyBody, caller: CallerOf, services: ServicesOf) -> MasterKeyAnswer:
    """Create a master key in the local KMS."""
    require_service(services, caller, "admin.master-key.create", f"key {body.id}")
    return MasterKeyAnswer.model_validate(_local(services).create_master_key(body.id))


@router.post("/master-keys/disable")
def disable_master_key(body: models.MasterKeyBody, caller: CallerOf, services: ServicesOf) -> MasterKeyAnswer:
    """Disable a master key of the local KMS, and with it every key that it wraps."""
    require_service(services, caller, "admin.master-key.disable", f"key {body.id}")
    return MasterKeyAnswer.model_validate(_local(services).disable_master_key(body.id))


@router.post("/master-keys/enable")
def enable_master_key(body: models.MasterKeyBody, caller: CallerOf, services: ServicesOf) -> MasterKeyAnswer:
    """Enable a disabled master key of the local KMS."""
    require_service(services, caller, "admin.master-key.enable", f"key {body.id}")
    return MasterKeyAnswer.model_validate(_local(services).enable_master_key(body.id))


@router.post("/master-keys/rotate")
def rotate_master_key(body: models.MasterKeyBody, caller: CallerOf, services: ServicesOf) -> MasterKeyAnswer:
    """Create a new version of a local master key; wrapped keys stay under their version."""
    require_service(services, caller, "admin.master-key.rotate", f"key {body.id}")
    return MasterKeyAnswer.model_validate(_local(services).rotate_master_key(body.id))


@router.post("/master-keys/rewrap")
def rewrap_master_key(body: models.MasterKeyBody, caller: CallerOf, services: ServicesOf) -> MasterRewrapped:
    """Rewrap every key of a master key under its newest version, in any KMS."""
    require_service(services, caller, "admin.master-key.rewrap", f"key {body.id}")
    return MasterRewrapped.of(services.master_keys.rewrap(body.id))


@router.post("/sweep")
def clean_up(caller: CallerOf, services: ServicesOf) -> models.CleanUpDone:
    """Delete files of expired writes and purges, and destroy keys whose waiting time is over."""
    require_service(services, caller, "admin.sweep")
    services.lifecycle.clean_up()
    return models.CleanUpDone(
        swept=services.writes.clean_up(), keys_destroyed=services.key_life.destroy_due()
    )


def _policy_state(services: Services) -> models.PolicyState:
    policies, sources = services.policies, services.policies.sources
    ranger = [
        models.SourceAnswer.of(each, services.settings.ranger[each.name], sources.age_s(each))
        for each in sources.last
    ]
    return models.PolicyState.of(policies.in_force(), policies.problem, ranger)


def _local(services: Services) -> LocalKms:
    if not isinstance(services.kms, LocalKms):
        raise NotSupportedYet(
            "The master keys are in an external KMS, which the catalog does not manage.",
            rule="kms",
            hint="Manage them with the tools of that KMS.",
        )
    return services.kms

"""Administers users and tokens.

All operations need `admin` on the service of the catalog's name. Operations are recorded before they run.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response, Security

from catalog.authorization.tokens import new_token_text
from catalog.authorization.user_deletion import delete_user
from catalog.http import user_models as models
from catalog.http.admin_access import require_service
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.operations import ERRORS, NO_CONTENT
from catalog.http.routing import GuardedRoute

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: users"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.post("/tokens")
def issue_token(body: models.IssueToken, caller: CallerOf, services: ServicesOf) -> models.TokenIssued:
    """Issue a token; its text is shown only once."""
    principal = body.to_principal()
    require_service(services, caller, "admin.token.issue", new_token_text(principal, body.kind))
    return models.TokenIssued.of(services.tokens.issue(principal, body.kind, body.ttl))


@router.get("/tokens")
def list_tokens(
    caller: CallerOf, services: ServicesOf, principal: Annotated[str | None, Query()] = None
) -> models.TokenList:
    """List tokens without their secrets, including expired and revoked ones; of all users, or of one."""
    require_service(services, caller, "admin.token.list")
    return models.TokenList.of(services.tokens.list(principal))


@router.post("/tokens/revoke")
def revoke_tokens(body: models.TokensOf, caller: CallerOf, services: ServicesOf) -> models.TokensRevoked:
    """Revoke every token of a user at once."""
    require_service(services, caller, "admin.token.revoke", f"user {body.principal}")
    return models.TokensRevoked(revoked=services.tokens.revoke_all(body.principal))


@router.post("/tokens/{token_id}/rotate")
def rotate_token(
    token_id: UUID, body: models.RotateToken, caller: CallerOf, services: ServicesOf
) -> models.TokenIssued:
    """Issue a token in place of one, which stays valid for a while."""
    require_service(services, caller, "admin.token.issue", f"token {token_id}")
    return models.TokenIssued.of(services.tokens.rotate(token_id, body.ttl, body.overlap))


@router.delete("/tokens/{token_id}", status_code=NO_CONTENT)
def revoke_token(token_id: UUID, caller: CallerOf, services: ServicesOf) -> Response:
    """Revoke a token at once."""
    require_service(services, caller, "admin.token.revoke", f"token {token_id}")
    services.tokens.revoke(token_id)
    return Response(status_code=NO_CONTENT)


@router.get("/users")
def list_users(caller: CallerOf, services: ServicesOf) -> models.UserList:
    """List the users and engines that the catalog knows."""
    require_service(services, caller, "admin.user.list")
    return models.UserList.of(services.principals.list())


@router.post("/users/assign")
def assign_groups(body: models.AssignGroups, caller: CallerOf, services: ServicesOf) -> models.UserAnswer:
    """Assign groups and roles to a user, in place of those that were assigned; a new user is created."""
    require_service(services, caller, "admin.user.assign", f"user {body.user}")
    groups, roles = frozenset(body.groups), frozenset(body.roles)
    return models.UserAnswer.of(services.principals.assign(body.user, groups, roles))


@router.post("/users/disable")
def disable_user(body: models.UserBody, caller: CallerOf, services: ServicesOf) -> models.UserAnswer:
    """Refuse a user from the next request on, whatever token they have."""
    require_service(services, caller, "admin.user.disable", f"user {body.user}")
    return models.UserAnswer.of(services.principals.disable(body.user))


@router.post("/users/enable")
def enable_user(body: models.UserBody, caller: CallerOf, services: ServicesOf) -> models.UserAnswer:
    """Accept a user again."""
    require_service(services, caller, "admin.user.enable", f"user {body.user}")
    return models.UserAnswer.of(services.principals.disable(body.user, disabled=False))


@router.post("/users/forget-claims")
def forget_claims(body: models.UserBody, caller: CallerOf, services: ServicesOf) -> models.UserAnswer:
    """Forget the groups and roles that an identity provider named; those assigned are left."""
    require_service(services, caller, "admin.user.forget-claims", f"user {body.user}")
    return models.UserAnswer.of(services.principals.forget_claims(body.user))


@router.post("/users/delete")
def delete(body: models.UserBody, caller: CallerOf, services: ServicesOf) -> models.TokensRevoked:
    """Delete a user who defines no definer views, and revoke every token of theirs at once."""
    require_service(services, caller, "admin.user.delete", f"user {body.user}")
    revoked = delete_user(services.engine, services.settings.identity, services.now(), body.user)
    return models.TokensRevoked(revoked=revoked)

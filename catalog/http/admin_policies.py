"""Administers the policies that the catalog stores itself.

All operations need `admin` on the service of the catalog's name. In addition, users who can administer every
policy of a document, by `delegateAdmin`, can read and change that document. A change is recorded before it is
made, with each document's revision and digest, before and after.

A document is stored and returned byte for byte. Its revision is its `ETag`. A request that replaces or
removes a document sends the revision in `If-Match`; without `If-Match` the document is new.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response, Security

from catalog.authorization.authorizer import Caller
from catalog.http.admin_access import may_change_policies, require_service
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.errors import NoSuchDocument
from catalog.http.operations import ERRORS
from catalog.http.policy_models import (
    ChangeBody,
    ChangedAnswer,
    ChangeList,
    DocumentList,
)
from catalog.http.routing import GuardedRoute
from catalog.http.screening import policies, screened
from catalog.policy_store.changes import Prepared, about, reasons_of
from catalog.policy_store.delegation import Delegation
from catalog.policy_store.documents import DocumentId, Edit, Kind, StoredDocument
from catalog.service.services import Services
from policy.decision import Decision
from policy.errors import NotAuthorized, RequestInvalid

_DOCUMENT: Final = "/policies/documents/{kind}/{name}"
_READ: Final = "admin.policies.read"
_CHANGE: Final = "admin.policies.change"
_REVISION_TAG: Final = re.compile(r'"([1-9][0-9]{0,17})"', re.ASCII)

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: policies"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)

_Limit = Annotated[int, Query(ge=1, le=10_000)]
_DryRun = Annotated[bool, Query(alias="dry-run")]
_Document = Annotated[dict[str, Any] | list[Any], Body()]


async def _document_of(kind: Kind, name: Annotated[str, Path(max_length=255)]) -> DocumentId:
    return DocumentId(kind, name)


async def _sent(request: Request) -> bytes:
    sent: bytes = request.state.body
    return sent


async def _if_match(request: Request) -> int | None:
    """Return the revision that the caller has read.

    Raises:
        RequestInvalid: the header is not the `ETag` of one document.
    """
    values = request.headers.getlist("If-Match")
    if not values:
        return None
    matched = _REVISION_TAG.fullmatch(values[0].strip())
    if len(values) > 1 or matched is None:
        raise RequestInvalid(
            "The header If-Match is not the ETag of one policy document.",
            rule="if-match",
            hint='Send the revision that you have read, such as `If-Match: "7"`.',
        )
    return int(matched[1])


_DocumentOf = Annotated[DocumentId, Depends(_document_of)]
_Sent = Annotated[bytes, Depends(_sent)]
_Seen = Annotated[int | None, Depends(_if_match)]


@router.get("/policies/documents")
def list_documents(caller: CallerOf, services: ServicesOf) -> DocumentList:
    """List all documents, without their content."""
    require_service(services, caller, _READ, "policies")
    return DocumentList.of(services.policy_documents.current())


@router.get("/policies/history")
def show_all_history(caller: CallerOf, services: ServicesOf, limit: _Limit = 100) -> ChangeList:
    """List the latest changes of all documents, newest first."""
    require_service(services, caller, _READ, "policies")
    return ChangeList.of(services.policy_documents.history(limit=limit))


@router.get(f"{_DOCUMENT}/history")
def show_history(
    document: _DocumentOf, caller: CallerOf, services: ServicesOf, limit: _Limit = 100
) -> ChangeList:
    """List the latest changes of one document, newest first."""
    require_service(services, caller, _READ, _about(document))
    return ChangeList.of(services.policy_documents.history(document, limit=limit))


@router.get(
    _DOCUMENT,
    response_class=Response,
    responses={200: {"description": "The document.", "content": {"application/json": {}}}},
)
def show_document(
    document: _DocumentOf,
    caller: CallerOf,
    services: ServicesOf,
    revision: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """Show a document's content, currently or at an earlier revision."""
    found = services.policy_documents.find(document, revision)
    if may_change_policies(services, caller):
        require_service(services, caller, _READ, _about(document))
    else:
        _require(services, caller, _READ, _about(document), _delegation(services, caller).may_read(found))
    if found is None or found.content is None:
        raise NoSuchDocument(
            f"There is no policy document {document}" + (f" of revision {revision}." if revision else "."),
            rule="policy-document",
            hint="List the documents, or the history of this document.",
        )
    return Response(
        found.content, media_type="application/json", headers={"ETag": f'"{found.change.revision}"'}
    )


@router.put(_DOCUMENT)
@screened(policies)
def put_document(
    document: _DocumentOf,
    body: _Document,
    sent: _Sent,
    seen: _Seen,
    caller: CallerOf,
    services: ServicesOf,
    dry_run: _DryRun = False,
    force: bool = False,
) -> ChangedAnswer:
    """Store a document: a new one, or with `If-Match` in place of that revision.

    `dry-run` only shows the result. `force` makes a change even if afterwards the caller, or no user, can
    administer the catalog.
    """
    return _change(services, caller, [Edit(document, sent, seen)], dry_run=dry_run, force=force)


@router.delete(_DOCUMENT)
def remove_document(
    document: _DocumentOf,
    seen: _Seen,
    caller: CallerOf,
    services: ServicesOf,
    dry_run: _DryRun = False,
    force: bool = False,
) -> ChangedAnswer:
    """Remove the document of the revision in `If-Match`; `dry-run` and `force` as for `put_document`."""
    return _change(services, caller, [Edit(document, None, seen)], dry_run=dry_run, force=force)


@router.post("/policies/changes")
@screened(policies)
def change_documents(body: ChangeBody, caller: CallerOf, services: ServicesOf) -> ChangedAnswer:
    """Change several documents at once, all or nothing."""
    edits = [each.to_edit() for each in body.changes]
    return _change(services, caller, edits, dry_run=body.dry_run, force=body.force)


def _change(
    services: Services, caller: Caller, edits: Sequence[Edit], *, dry_run: bool, force: bool
) -> ChangedAnswer:
    resource = about(edits)
    is_admin = may_change_policies(services, caller)

    def allow(delegation: Delegation, there: Mapping[DocumentId, StoredDocument]) -> None:
        _require(services, caller, _CHANGE, resource, delegation.may_change(edits, there))

    def allow_again(prepared: Prepared) -> None:
        """Authorize by the policies that the change replaces: those loaded here can be older."""
        if not is_admin:
            newest = Delegation(prepared.before.policies, caller.principal, services.authorizer.now())
            allow(newest, prepared.base.documents)

    def record(prepared: Prepared) -> None:
        allow_again(prepared)
        for reasons in reasons_of(prepared, force=force):
            services.authorizer.record(caller, _CHANGE, resource, Decision.allow(*reasons))

    if is_admin:
        require_service(services, caller, _CHANGE, resource)
    else:
        found = (services.policy_documents.find(each.id) for each in edits)
        there = {each.id: each for each in found if each is not None and each.content is not None}
        allow(_delegation(services, caller), there)
    if dry_run:
        prepared = services.policy_changes.prepare(edits, caller)
        allow_again(prepared)
    else:
        prepared = services.policy_changes.make(edits, caller, record, force=force)
    return ChangedAnswer.of(prepared, dry_run=dry_run)


def _delegation(services: Services, caller: Caller) -> Delegation:
    authorizer = services.authorizer
    return Delegation(authorizer.policies(), caller.principal, authorizer.now())


def _require(services: Services, caller: Caller, action: str, about: str, decision: Decision) -> None:
    """Record a decision on a user who is not an administrator, and refuse if it denies."""
    services.authorizer.record(caller, action, about, decision)
    if not decision.allowed:
        raise NotAuthorized(
            f"{caller.principal.name} is not authorized ({action}): {decision.explanation}",
            rule=decision.reasons[0].rule,
            hint="Ask an administrator for `admin` on the service, or for policies with `delegateAdmin`.",
        )


def _about(document: DocumentId) -> str:
    return f"policy {document}"

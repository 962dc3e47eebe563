"""Signs single requests of standard clients to S3 (remote signing), after deciding each.

- Each request is parsed strictly (`s3_requests`), the caller is judged anew, and each object in it is decided
  (`decision`; `staged` and `dropped` where no table has the name). A revocation holds from the next request,
  since clients are told to keep nothing.
- What creates an object is signed with `If-None-Match: *`, so that it overwrites none.
- No signature is logged, recorded or part of an error.

Source: Iceberg REST specification, `signRequest`.
"""

from __future__ import annotations

from typing import Final

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.storage_access.decision import StorageDecisions
from catalog.storage_access.objects import ObjectAccess
from catalog.storage_access.s3_requests import Action, Asked, S3Request, Store, parse
from catalog.storage_access.signatures import BotoSigner
from policy.decision import Decision
from policy.errors import NotAuthorized
from policy.location.location import Location

ACTION: Final = "table.sign"


class RequestSigning:
    """Signs requests.

    Args:
        context: the parts that services share.
        decisions: decides what a caller's client can touch.
        signer: signs what is decided.
    """

    def __init__(self, context: ServiceContext, decisions: StorageDecisions, signer: BotoSigner) -> None:
        settings = context.settings.s3
        self._context = context
        self._decisions = decisions
        self._signer = signer
        self._store = Store(settings.endpoint, settings.region or "")

    def sign(self, caller: Caller, name: TableName, asked: Asked) -> dict[str, str]:
        """Sign a request.

        Args:
            caller: who asks.
            name: the table whose objects it is about.
            asked: the request.

        Returns:
            the headers that it has to be sent with beside its own.

        Raises:
            NotAuthorized: the caller's client cannot have the table, or not do this with this object.
            RequestInvalid: the request is not understood.
            NoSuchTable: there is no such table.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            StorageUnavailable: the catalog has no credentials.
        """
        request = parse(self._store, asked)
        access = self._decisions.access(caller, name, ACTION, request.targets[0])
        for target in request.targets:
            self._require(caller, access, _decided(access, request.action, target), request, target)
        if request.source is not None:
            self._require(caller, access, access.decide_read(request.source), request, request.source)
        note("request", request.action.value)
        note("object", request.targets[0].canonical)
        signed = self._signer.sign(request)
        sent = {each.lower() for each in asked.headers}
        return {header: value for header, value in signed.items() if header not in sent}

    def _require(
        self, caller: Caller, access: ObjectAccess, decision: Decision, request: S3Request, target: Location
    ) -> None:
        if decision.allowed:
            return
        name, reason = access.name, decision.reasons[0]
        self._context.authorizer.record(caller, ACTION, name, decision)
        raise NotAuthorized(
            f"The request ({request.action.value}) is not signed. {reason.detail}",
            table=name,
            path=target.canonical,
            rule=reason.rule,
            hint="docs/rest-api.md says which requests are signed.",
        )


def _decided(access: ObjectAccess, action: Action, target: Location) -> Decision:
    match action:
        case Action.READ:
            return access.decide_read(target)
        case Action.LOOK:
            return access.decide_look(target)
        case Action.CREATE | Action.BEGIN | Action.PART | Action.COMPLETE | Action.ABORT:
            return access.decide_create(target)
        case Action.DELETE:
            return access.decide_delete(target)
        case Action.LIST:
            return access.decide_list(target)

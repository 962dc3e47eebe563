"""Authorizes requests and records the decisions.

- A request is decided as a whole: all of its parts or nothing, and by one set of policies. What is asked in
  several steps that only count together is asked of one `settled` authorizer; otherwise a mask that a change
  takes away together with the grant would be missed between two steps.
- The decision is in the audit log before it is answered; without a record there is no grant. What takes
  long may go on meanwhile (`Records`).
- Inside of a request that is closed (`catalog.audit.outcomes`), a grant is not recorded as allowed before the
  request has succeeded.
- The records of a grant name every key and location granted, however many columns the table has.
- A refusal by a later rule (a foreign path, a broken seal) is recorded too, under the same request id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from catalog.audit import outcomes
from catalog.audit.outcomes import Outcome
from catalog.audit.records import MAX_REASONS, NOBODY
from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.authorization.logouts import Logout
from policy.decision import Decision, Reason
from policy.errors import (
    CommitStateUnknown,
    LakewardenError,
    MetadataInvalid,
    NotAuthenticated,
    NotAuthorized,
    Refused,
    StateUnavailable,
    Unavailable,
)
from policy.identifiers import TableName
from policy.principal import MAX_NAME_CHARACTERS, Principal
from policy.privileges.operations import On, key_requests
from policy.privileges.requests import AccessRequest
from policy.privileges.token_scopes import RULE
from policy.ranger import PolicySet

_log: Final = logging.getLogger("lakewarden.audit")

#: The action of a request that is refused before its action is known.
_REQUEST: Final = "request"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: principal and engine.

    Attributes:
        principal: the user.
        engine: the engine that asks for the user, or None for the user's own process.
        request_id: what ties the records of one request together.
        standard: whether answers go to a standard client, which gets everything in a table that it loads: one
            that calls `/v1`. With an engine, it can be trusted to enforce row filters and masks.
        reader: who asks, where the principal is the definer of a view that is read; else None
            (`catalog.authorization.definers`).
        view: that view.
    """

    principal: Principal
    engine: Principal | None
    request_id: str
    standard: bool = False
    reader: Principal | None = None
    view: TableName | None = None

    @property
    def user(self) -> Principal:
        """Who asks."""
        return self.principal if self.reader is None else self.reader

    @property
    def why(self) -> list[Reason]:
        """The scope of the user's token; whose permissions decide, where they are not those of the user."""
        why = []
        if self.user.scope is not None:
            why.append(Reason(RULE, f"The scope of the token is {self.user.scope}."))
        if self.reader is not None:
            decided = f"Decided for {self.principal.name}, the definer of the view {self.view}."
            why.append(Reason("definer", decided))
        return why

    def on(self, name: TableName, owner: str | None = None) -> On:
        """Return a table, or a name for one, as what this caller's operation is about."""
        return On.table(self.principal, name, owner)

    def releases(self, master_key_ids: Iterable[str]) -> list[AccessRequest]:
        """Return requests for `release` on keys: a user's own process needs it, a trusted engine does not."""
        return [] if self.engine is not None else key_requests(self.principal, master_key_ids, "release")


class Records:
    """Records of grants that are being written while their request continues.

    At the end of a `with`, all are durable or have failed. So the record of earlier grants comes before that
    of a refusal.
    """

    def __init__(self) -> None:
        self._waits: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.wait()

    def add(self, wait: Callable[[], None]) -> None:
        """Add a record, and the append to wait for."""
        self._waits.append(wait)

    def wait(self) -> None:
        """Wait until all records are durable or have failed; no answer is sent before.

        Raises:
            StateUnavailable: one could not be recorded; the first of them.
        """
        failures = []
        for each in self._waits:
            try:
                each()
            except StateUnavailable as failure:
                failures.append(failure)
        if failures:
            raise failures[0]


@dataclass(frozen=True, slots=True)
class _Settled:
    """The policies that decide one request, and its decisions."""

    policies: PolicySet
    now: datetime
    records: Records | None
    answers: dict[AccessRequest, Decision] = field(default_factory=dict)


class Authorizer:
    """Authorizes requests by the policies in force, and records the decisions.

    Args:
        policies: answers the policies in force.
        audit: where decisions are recorded.
        now: the time, with a zone.
    """

    def __init__(
        self, policies: Callable[[], PolicySet], audit: AuditTrail, now: Callable[[], datetime]
    ) -> None:
        self._policies = policies
        self._audit = audit
        self._now = now
        self._settled: _Settled | None = None

    def settled(self, records: Records | None = None) -> Authorizer:
        """Return an authorizer with fixed policies and time, for a single request.

        Args:
            records: takes the records of grants, which the request waits for before it is answered; without
                it, each grant waits for its own.
        """
        settled = Authorizer(self._policies, self._audit, self._now)
        settled._settled = _Settled(self.policies(), self.now(), records)
        return settled

    def unrecorded(self) -> Authorizer:
        """Return an authorizer by the same policies, and at the same time, that records nothing.

        It answers what would be decided. Nothing is handed out by its decisions: there is no grant without a
        record.
        """
        asked = _Unrecorded(self._policies, self._audit, self._now)
        asked._settled = self._settled or _Settled(self.policies(), self.now(), None)
        return asked

    def decide(self, requests: Sequence[AccessRequest]) -> Decision:
        """Decide requests, all or none, without a record: for explaining and for filtering lists."""
        return Decision.all_of(self._answers(requests))

    def grants(self, request: AccessRequest) -> bool:
        """Return whether a single request is granted, without a record."""
        return self._answers([request])[0].allowed

    def policies(self) -> PolicySet:
        """Return the policies in force."""
        return self._policies() if self._settled is None else self._settled.policies

    def now(self) -> datetime:
        """Return the time at which policies are evaluated."""
        return self._now() if self._settled is None else self._settled.now

    def _answers(self, requests: Sequence[AccessRequest]) -> list[Decision]:
        """Return the decision of each request, by one set of policies."""
        policies, now = self.policies(), self.now()
        known = {} if self._settled is None else self._settled.answers
        for each in requests:
            if each not in known:
                known[each] = policies.decide(each, now)
        return [known[each] for each in requests]

    def screen(self, caller: Caller, action: str, resource: str, *ways: AccessRequest) -> None:
        """Refuse callers who have none of these privileges, before anything is read or shown.

        A grant is not recorded here: everything that is needed is asked for, and recorded, later.

        Args:
            caller: who asks.
            action: what for.
            resource: on what.
            ways: any of these lets the caller on; the first one is what is named as missing.

        Raises:
            NotAuthorized: none of them is granted.
            StateUnavailable: the refusal could not be recorded.
        """
        if not any(map(self.grants, ways)):
            self.require(caller, action, resource, ways[:1])
        outcome = outcomes.current()
        if outcome is not None:
            outcome.screened = (action, resource)

    def require(
        self,
        caller: Caller,
        action: str,
        resource: str,
        requests: Sequence[AccessRequest],
        *,
        hidden: Sequence[AccessRequest] = (),
    ) -> Decision:
        """Decide and record requests, and raise if one is refused.

        Args:
            caller: who asks.
            action: what for.
            resource: on what.
            requests: what is needed.
            hidden: what is needed on other tables, of which the caller is not told.

        Raises:
            NotAuthorized: a part is not granted.
            StateUnavailable: the decision could not be recorded.
        """
        asked = [*requests, *hidden]
        answers = self._answers(asked)
        decision = Decision.all_of(answers)
        if decision.allowed:
            self._grant(caller, action, resource, *_by_kind(asked, answers))
        else:
            self._append(caller, action, resource, False, [(*decision.reasons, *caller.why)])
            told = _OVERLAP if hidden and self.decide(requests).allowed else decision
            raise NotAuthorized(
                f"{caller.principal.name} is not authorized ({action}): {told.explanation}",
                table=resource if action.startswith(_ON_TABLES) else None,
                rule=told.reasons[0].rule,
                hint=_OUT_OF_SCOPE if told.reasons[0].rule == RULE else _NOT_GRANTED,
            )
        return decision

    def turned_away(self, address: str, request_id: str, refusal: NotAuthenticated) -> None:
        """Record that a request without a valid credential was refused.

        Args:
            address: the network address of the call.
            request_id: what ties the records of one request together.
            refusal: the answer, and what was found.

        Raises:
            StateUnavailable: it could not be recorded.
        """
        reason = Reason(refusal.rule or type(refusal).__name__, refusal.why or refusal.message)
        at_ms = int(self._now().timestamp() * 1000)
        self._audit.append(
            [AuditRecord(NOBODY, None, "authenticate", address, False, (reason,), request_id, at_ms)]
        )

    def logged_out(self, address: str, request_id: str, issuer: str, logout: Logout) -> None:
        """Record that an identity provider ended logins.

        Args:
            address: the network address of the call.
            request_id: what ties the records of one request together.
            issuer: the issuer's name in the settings.
            logout: what ended.

        Raises:
            StateUnavailable: it could not be recorded.
        """
        what = "A session" if logout.session else "All sessions"
        whose = f" of {logout.subject[:MAX_NAME_CHARACTERS]!a}" if logout.subject else ""
        reason = Reason("logout", f"{what}{whose} ended at the provider. It called from {address}.")
        at_ms = int(self._now().timestamp() * 1000)
        self._audit.append(
            [AuditRecord(NOBODY, None, "identity.logout", issuer, True, (reason,), request_id, at_ms)]
        )

    def record(self, caller: Caller, action: str, resource: str, decision: Decision) -> None:
        """Add a decision to the audit log."""
        if decision.allowed:
            self._grant(caller, action, resource, [], list(decision.reasons))
        else:
            self._append(caller, action, resource, False, [(*decision.reasons, *caller.why)])

    def succeeded(self, caller: Caller, outcome: Outcome) -> None:
        """Record that a request succeeded; see `catalog.audit.outcomes`.

        Raises:
            StateUnavailable: it could not be recorded, and must not be answered. Not raised for a request
                that changed something: what was granted is on record as begun, and has taken effect.
        """
        if outcome.about is None or not outcome.grants:
            return
        try:
            if outcome.changes:
                for about, facts in outcome.closing().items():
                    why = outcome.grants[about]
                    self._append(caller, *about, True, [(*(why.others or why.columns)[:1], *facts)])
                return
            for about, facts in outcome.closing().items():
                outcome.grants[about].others += facts
            self._append_all(caller, outcome)
        except StateUnavailable as problem:
            if not outcome.changes:
                raise
            _log.error("a change that took effect is only recorded as begun: %s", problem.message)

    def failed(self, caller: Caller, outcome: Outcome, error: Exception) -> None:
        """Record that a request failed, unless its refusal is recorded already.

        Of a change whose outcome is not known, what was granted stays on record as begun.

        Raises:
            StateUnavailable: it could not be recorded. Not raised where a part did not answer, since that is
                what the caller is told.
        """
        known = isinstance(error, LakewardenError) and not isinstance(error, CommitStateUnknown)
        if outcome.changes and outcome.grants and not known:
            return
        left = [each for each in outcome.together if each not in outcome.refused]
        if not (left or outcome.refused):
            left = [outcome.about or (_REQUEST, outcome.route)]
        try:
            for action, resource in left:
                self._append(caller, action, resource, False, [(_reason(error),)])
        except StateUnavailable:
            if not isinstance(error, Unavailable):
                raise

    def _grant(
        self, caller: Caller, action: str, resource: str, columns: list[Reason], others: list[Reason]
    ) -> None:
        outcome, others = outcomes.current(), [*caller.why, *others]
        if outcome is not None:
            outcome.grant(action, resource, columns, others)
            if not outcome.changes:
                return
        self._append(caller, action, resource, True, _parts(columns, others), begun=outcome is not None)

    def _append_all(self, caller: Caller, outcome: Outcome) -> None:
        """Append the records of all grants, or none."""
        records = []
        for (action, resource), granted in outcome.grants.items():
            parts = _parts(list(dict.fromkeys(granted.columns)), list(dict.fromkeys(granted.others)))
            records += self._records(caller, action, resource, True, parts)
        self._audit.append(records)

    def _append(
        self,
        caller: Caller,
        action: str,
        resource: str,
        allowed: bool,
        parts: Sequence[tuple[Reason, ...]],
        *,
        begun: bool = False,
    ) -> None:
        """Append one record for each part of the reasons, all or none."""
        wait = self._audit.submit(self._records(caller, action, resource, allowed, parts, begun=begun))
        outcome = outcomes.current()
        if outcome is not None and not allowed:
            outcome.refused.append((action, resource))
        if allowed and self._settled is not None and self._settled.records is not None:
            self._settled.records.add(wait)
        else:
            wait()

    def _records(
        self,
        caller: Caller,
        action: str,
        resource: str,
        allowed: bool,
        parts: Sequence[tuple[Reason, ...]],
        *,
        begun: bool = False,
    ) -> list[AuditRecord]:
        engine = caller.engine.name if caller.engine else None
        at_ms = int(self._now().timestamp() * 1000)
        return [
            AuditRecord(
                principal=caller.user.name,
                engine=engine,
                action=action,
                resource=resource,
                allowed=allowed and not begun,
                reasons=reasons,
                request_id=caller.request_id,
                at_ms=at_ms,
                begun=begun,
            )
            for reasons in parts
        ]

    @contextmanager
    def recorded(
        self, caller: Caller, action: str, resource: str, *, show_path: bool = True
    ) -> Iterator[None]:
        """Record a refusal that a rule raises inside of the block; refusals by policies are recorded already.

        Args:
            caller: who asks.
            action: what for.
            resource: on what.
            show_path: whether the caller may see the path in question; the record holds it anyway.
        """
        try:
            yield
        except NotAuthorized:
            raise
        except (Refused, MetadataInvalid) as refusal:
            self.record(caller, action, resource, Decision.deny(_reason(refusal)))
            if not show_path:
                refusal.path = None
            raise


class _Unrecorded(Authorizer):
    """An authorizer for questions; see `Authorizer.unrecorded`."""

    def _grant(
        self, caller: Caller, action: str, resource: str, columns: list[Reason], others: list[Reason]
    ) -> None:
        """Record nothing."""

    def _append(
        self,
        caller: Caller,
        action: str,
        resource: str,
        allowed: bool,
        parts: Sequence[tuple[Reason, ...]],
        *,
        begun: bool = False,
    ) -> None:
        """Record nothing."""


#: Actions whose resource is a table.
_ON_TABLES: Final = ("table.", "key.")
_NOT_GRANTED: Final = "Ask an administrator for a policy that grants it."
_OUT_OF_SCOPE: Final = "Use a token with another scope, or with none."
_OVERLAP: Final = Decision.deny(
    Reason(
        "overlap", "A location overlaps the location of a table on which the caller has no alter privilege."
    )
)


def _by_kind(
    asked: Sequence[AccessRequest], answers: Sequence[Decision]
) -> tuple[list[Reason], list[Reason]]:
    """Separate the reasons of a grant: columns, and everything else."""
    columns: list[Reason] = []
    others: list[Reason] = []
    for request, answer in zip(asked, answers, strict=True):
        (columns if request.resource.levels[-1] == "column" else others).extend(answer.reasons)
    return columns, others


def _parts(columns: Sequence[Reason], others: Sequence[Reason]) -> list[tuple[Reason, ...]]:
    """Return the reasons of a grant, record by record.

    A table may have more columns than a record holds reasons, and the record then says how many it leaves
    out. What else was granted, keys and locations above all, is never left out: it goes into as many records
    as it needs.
    """
    if len(columns) + len(others) <= MAX_REASONS or not others:
        return [(*columns, *others)]
    parts = [tuple(others[at : at + MAX_REASONS]) for at in range(0, len(others), MAX_REASONS)]
    return [*parts, tuple(columns)] if columns else parts


def _reason(refusal: Exception) -> Reason:
    if not isinstance(refusal, LakewardenError):
        # The message of a foreign error can contain anything.
        return Reason("internal-error", type(refusal).__name__)
    where = f" ({refusal.path})" if refusal.path else ""
    return Reason(
        refusal.rule or type(refusal).__name__, f"{type(refusal).__name__}: {refusal.message}{where}"
    )

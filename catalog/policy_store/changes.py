"""Changes the policies in the catalog's database.

- A change is accepted if the whole set that would be in force can be evaluated; else all of it is refused,
  with document, line and field.
- Row filters and masks that are new have to fit the tables that they are about (`table_checks`).
- Documents that make no set any more (this release reads them more strictly) can be mended: what counts is
  the set after the change.
- A change of a document names the revision that its user has seen; a new document must not exist.
- A change that takes the right to administer the catalog away from the one who makes it, or from everybody
  who holds a token, is refused unless it is forced. The command line needs no policy: a way back is left.
- Documents of a source (a Ranger Admin in the settings) change by its synchronization alone: the next one
  would undo any other change.
- The record comes first: what is changed is in the audit trail before it is in the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from catalog.audit.records import MAX_REASONS
from catalog.authorization.authorizer import Caller
from catalog.authorization.principals import Principals
from catalog.base.errors import CommitConflict
from catalog.policy_store.documents import (
    Edit,
    PolicyDocuments,
    StoredDocument,
    StoredSet,
    following,
    source_of,
    title_of,
)
from catalog.policy_store.in_force import NOTHING, InForce, PolicyStore
from catalog.policy_store.kinds import OF_POLICIES
from catalog.policy_store.table_checks import TableChecks
from policy.decision import Reason
from policy.errors import PolicyInvalid, RequestInvalid
from policy.principal import Principal
from policy.privileges.operations import On, required
from policy.ranger import PolicySet
from policy.ranger.model import PolicyType
from policy.ranger.parse import parse_documents
from policy.ranger.users import NO_USERS

_ATTEMPTS: Final = 3
_TITLE: Final = re.compile(r"catalog:[a-z]+/[A-Za-z0-9._-]+")
#: Of a record; one more says that it is an operator's.
_REASONS: Final = MAX_REASONS - 1
_TYPES: Final = {
    PolicyType.ACCESS: "policy",
    PolicyType.MASK: "masking policy",
    PolicyType.ROW_FILTER: "row filter",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a change on the set in force, by the titles of policies, roles, security zones,
    tags and encryption rules.

    Attributes:
        added: those that are new; one that was disabled and no longer is counts as new.
        removed: those that are gone, or disabled.
        changed: those that say something else.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that passed all checks.

    Attributes:
        base: the documents that it was checked against; if there are others by then, it is not made.
        before: the set that these make; one without policies, if they make none.
        changed: the documents that become different.
        after: the set that would be in force.
        effect: the difference.
        lockout: why nobody, or not the caller, could administer the catalog afterwards; None if they could.
    """

    base: StoredSet
    before: InForce
    changed: tuple[StoredDocument, ...]
    after: InForce
    effect: Effect
    lockout: str | None


class PolicyChanges:
    """Makes changes; see the module docstring.

    Args:
        documents: the documents in the database.
        policies: the policies that this process decides by, if it does.
        principals: who could ask for administration.
        catalog: the catalog's name, which is that of the service in policies.
        now: the time, with a zone.
        tables: checks row filters and masks against the tables that they are about, if it is known.
        sources: the names of the sources of policies in the settings.
    """

    def __init__(
        self,
        documents: PolicyDocuments,
        policies: PolicyStore | None,
        principals: Principals,
        catalog: str,
        now: Callable[[], datetime],
        tables: TableChecks | None = None,
        sources: Iterable[str] = (),
    ) -> None:
        self._sources = frozenset(sources)
        self._tables = tables
        self._documents = documents
        self._policies = policies
        self._principals = principals
        self._catalog = catalog
        self._now = now

    def prepare(
        self, edits: Sequence[Edit], caller: Caller, *, by_policy: bool = True, source: str | None = None
    ) -> Prepared:
        """Check a change, without making it.

        Args:
            edits: what is to become of which documents.
            caller: who wants it.
            by_policy: whether the caller's right comes from the policies, and could be lost with them.
            source: the source whose synchronization this is.

        Raises:
            PolicyInvalid: the set that would be in force has a mistake.
            CommitConflict: a document has another revision than the caller has seen.
            RequestInvalid: no document is named, one twice, or one of a source.
            StateUnavailable: the database does not answer.
        """
        _check_edits(edits)
        self._check_sources(edits, source)
        base = self._documents.current()
        changed = self._changed(base, edits, caller)
        before = self._before(base)
        after = _after(following(base, changed) if changed else base, edits, before)
        if self._tables is not None:
            self._tables.require(before.policies, after.policies)
        lockout = self._lockout(before.policies, after.policies, caller.principal if by_policy else None)
        return Prepared(base, before, changed, after, _effect(before, after), lockout)

    def make(
        self,
        edits: Sequence[Edit],
        caller: Caller,
        record: Callable[[Prepared], None],
        *,
        by_policy: bool = True,
        force: bool = False,
        source: str | None = None,
        beside: Callable[[Connection], None] = lambda _: None,
    ) -> Prepared:
        """Make a change; does nothing if every document already has the requested content.

        Args:
            edits: what is to become of which documents.
            caller: who wants it.
            record: decides on what was prepared, and puts it into the audit trail.
            by_policy, source: as for `prepare`.
            beside: writes in the same transaction; its errors undo the change.
            force: although nobody, or not the caller, could administer the catalog afterwards.

        Raises:
            as `prepare`.
            RequestInvalid: nobody could administer the catalog afterwards, and it is not forced.
            CommitStateUnknown: it may or may not have been made.
        """
        for attempt in range(_ATTEMPTS):
            prepared = self.prepare(edits, caller, by_policy=by_policy, source=source)
            if not prepared.changed:
                return prepared
            if prepared.lockout is not None and not force:
                raise _locked_out(prepared.lockout)
            record(prepared)
            try:
                self._documents.replace(prepared.base, prepared.changed, beside)
            except CommitConflict:
                # This document or another one changed; the next read tells.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                if self._policies is not None:
                    self._policies.changed(prepared.after)
                return prepared
        raise AssertionError("the last attempt returns or raises")

    def _check_sources(self, edits: Sequence[Edit], source: str | None) -> None:
        for edit in edits:
            owner = source_of(edit.id, self._sources)
            if owner != source:
                raise RequestInvalid(
                    f"The document {edit.id} belongs to the policy source {owner}.",
                    rule="policy-source",
                    hint="Change it in Ranger, or first remove the source from all settings.",
                )

    def _changed(self, base: StoredSet, edits: Sequence[Edit], caller: Caller) -> tuple[StoredDocument, ...]:
        """Return the changed documents, without those that already have the requested content."""
        number, now = base.version.revision + 1, self._now()
        changed = []
        for edit in edits:
            if base.says(edit):
                continue
            _check_revision(edit, base.documents.get(edit.id))
            changed.append(
                StoredDocument.of(
                    edit, number, author=caller.principal.name, request_id=caller.request_id, changed_at=now
                )
            )
        return tuple(changed)

    def _before(self, base: StoredSet) -> InForce:
        """Return the current set; one without policies, if the documents are not valid."""
        # However old: it is compared with what the database has now.
        known = self._policies.last if self._policies else None
        if known is not None and known.stored.version == base.version:
            return known
        try:
            return InForce.of(base)
        except PolicyInvalid:
            return NOTHING

    def _lockout(self, before: PolicySet, after: PolicySet, caller: Principal | None) -> str | None:
        if caller is not None and self._administers(before, caller) and not self._administers(after, caller):
            return f"{caller.name} would lose the permission to administer the catalog"
        if self.administrators(before) and not self.administrators(after):
            return "no current user could administer the catalog any more"
        return None

    def administrators(self, policies: PolicySet) -> Sequence[Principal]:
        """Return the current users who can administer the catalog under some policies.

        Raises:
            StateUnavailable: the database does not answer.
        """
        return [each for each in self._principals.everybody() if self._administers(policies, each)]

    def _administers(self, policies: PolicySet, principal: Principal) -> bool:
        (request,) = required("admin.policies.change", On.service(principal, self._catalog))
        return policies.decide(request, self._now()).allowed


def about(edits: Sequence[Edit]) -> str:
    """Return the resource of a change in the audit log."""
    return ", ".join(f"policy {each.id}" for each in edits)


def reasons_of(prepared: Prepared, *, force: bool = False) -> Sequence[Sequence[Reason]]:
    """Return the reasons for the audit log: effect, and each document with its revisions and digests.

    Returns:
        The reasons of each record, since a record has room for some.
    """
    effect = prepared.effect
    parts = {"added": effect.added, "removed": effect.removed, "changed": effect.changed}
    said = "; ".join(f"{name}: {', '.join(titles)}" for name, titles in parts.items() if titles)
    reasons = [Reason("policy-effect", f"{said or 'no decision changes'}.")]
    reasons += [_document_reason(prepared.base, each) for each in prepared.changed]
    if force and prepared.lockout is not None:
        reasons.append(Reason("policy-lockout", f"Forced, although {prepared.lockout}."))
    return [reasons[at : at + _REASONS] for at in range(0, len(reasons), _REASONS)]


def _document_reason(base: StoredSet, document: StoredDocument) -> Reason:
    there, change = base.documents.get(document.id), document.change
    old = "absent" if there is None else f"revision {there.change.revision}, SHA-256 {there.change.sha256}"
    new = "removed" if change.sha256 is None else f"SHA-256 {change.sha256}"
    return Reason("policy-change", f"{change.id}, {old}: {new} by revision {change.revision}.")


def _after(stored: StoredSet, edits: Sequence[Edit], before: InForce) -> InForce:
    """Return the set after a change; a mistake is named by where the content is from."""
    try:
        return InForce.of(stored, before)
    except PolicyInvalid as error:
        origins = {title_of(each.id): each.origin for each in edits if each.origin is not None}
        message = _TITLE.sub(lambda title: origins.get(title[0], title[0]), error.message)
        raise PolicyInvalid(message, rule=error.rule, hint=error.hint) from error


def _check_edits(edits: Sequence[Edit]) -> None:
    if not edits:
        raise RequestInvalid("The change contains no document.", rule="policy-change")
    if len({edit.id for edit in edits}) != len(edits):
        raise RequestInvalid("The change contains a document twice.", rule="policy-change")


def _check_revision(edit: Edit, there: StoredDocument | None) -> None:
    found = None if there is None else there.change.revision
    if edit.expected == found:
        return
    if found is None:
        problem, hint = "does not exist", "Leave out the revision to create a document."
    elif edit.expected is None:
        problem, hint = (
            f"exists, at revision {found}",
            f"Read the document, then give revision {found} to replace it.",
        )
    else:
        problem = f"is at revision {found}, not {edit.expected}"
        hint = "Another change was made: read the document again, then repeat your change."
    raise CommitConflict(f"The document {edit.id} {problem}.", rule="policy-revision", hint=hint)


def _locked_out(why: str) -> RequestInvalid:
    return RequestInvalid(
        f"After this change, {why}.",
        rule="policy-lockout",
        hint="Keep `admin` on the service with the catalog's name, or force the change.",
    )


def _effect(before: InForce, after: InForce) -> Effect:
    old, new = _titled(before), _titled(after)
    return Effect(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(sorted(title for title in old.keys() & new.keys() if old[title] != new[title])),
    )


def _titled(found: InForce) -> Mapping[str, Sequence[object]]:
    """Return everything that decides, by its title."""
    contents = parse_documents(found.stored.contents(*OF_POLICIES))
    titled: dict[str, list[object]] = {}
    for policy in contents.policies:
        titled.setdefault(f"{_TYPES[policy.type]} {policy.name!r}", []).append(policy)
    for role in contents.roles.values():
        titled.setdefault(f"role {role.name!r}", []).append(role)
    if contents.users != NO_USERS:
        titled["attributes of users and groups"] = [contents.users]
    for zone in contents.zones.values():
        titled.setdefault(f"security zone {zone.name!r}", []).append(zone)
    for tag, resources in contents.tags.all().items():
        titled.setdefault(f"tag {tag.type!r}", []).append((tag, resources))
    for rule in found.encryption.rules:
        titled.setdefault(f"encryption rule {rule.name!r}", []).append(replace(rule, document=""))
    return titled

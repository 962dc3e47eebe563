"""Decides which documents a delegated administrator can read and change.

- A user who can administer every policy in a document, as one to whom its resources are delegated
  (`policy.ranger.administer`), may read it; and may change it if that also holds of what it is to say.
- Documents with roles, security zones or policies on tags, rules for encryption, and tags are for
  administrators of the catalog alone.
- Of a document of others, a user learns only that its name is taken, by trying to use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from catalog.policy_store.documents import DocumentId, Edit, Kind, StoredDocument
from policy.decision import Decision, Reason
from policy.errors import PolicyInvalid
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.ranger.parse import parse_documents

#: The maximum size in bytes of the documents that are read for a delegated administrator.
MAX_DELEGATED_SIZE: Final = 1024 * 1024

_NOT_HIS: Final = Reason("policy-no-delegation", "The document contains policies of other administrators.")


class Delegation:
    """The privileges of a delegated administrator on documents.

    Args:
        policies: the policies in force.
        principal: who asks.
        now: the time, with a zone.
    """

    def __init__(self, policies: PolicySet, principal: Principal, now: datetime) -> None:
        self._policies = policies
        self._principal = principal
        self._now = now

    def may_read(self, document: StoredDocument | None) -> Decision:
        """Return whether the user can read a document; None if it does not exist."""
        return self._hidden([document] if document is not None else [])

    def may_change(self, edits: Sequence[Edit], there: Mapping[DocumentId, StoredDocument]) -> Decision:
        """Return whether the user can make a change.

        Args:
            edits: what is to become of which documents.
            there: the documents that there are.

        Raises:
            PolicyInvalid: what a document is to say has a mistake.
        """
        wanted = [(edit.id.kind, edit.content) for edit in edits if edit.content is not None]
        touched = [there[edit.id] for edit in edits if edit.id in there]
        own = self._decide(wanted) if wanted else None
        if own is not None and not own.allowed:
            return own
        others = self._hidden(touched) if touched or own is None else None
        return Decision.all_of(each for each in (own, others) if each is not None)

    def _hidden(self, documents: Sequence[StoredDocument]) -> Decision:
        """Return a decision about existing documents that does not reveal them if it is a refusal."""
        contents = [(each.id.kind, each.content) for each in documents if each.content is not None]
        try:
            decision = self._decide(contents)
        except PolicyInvalid:
            return Decision.deny(_NOT_HIS)
        return decision if decision.allowed else Decision.deny(_NOT_HIS)

    def _decide(self, contents: Sequence[tuple[Kind, bytes]]) -> Decision:
        if any(kind is not Kind.RANGER for kind, _ in contents):
            return _denied(
                "Only administrators of the catalog can change documents that are not of policies."
            )
        if sum(len(content) for _, content in contents) > MAX_DELEGATED_SIZE:
            return _denied(f"The delegated documents are larger than {MAX_DELEGATED_SIZE} bytes in total.")
        parsed = [parse_documents({"The document": content}) for _, content in contents]
        if any(each.roles or each.zones for each in parsed):
            return _denied("Only administrators of the catalog can change roles and security zones.")
        policies_of = [(*each.policies, *each.disabled) for each in parsed]
        if not all(policies_of):
            return _denied("Only administrators of the catalog can change a document without policies.")
        policies = [policy for each in policies_of for policy in each]
        return self._policies.may_administer(self._principal, policies, self._now)


def _denied(why: str) -> Decision:
    return Decision.deny(Reason("policy-no-delegation", why))

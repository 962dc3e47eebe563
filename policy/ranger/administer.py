"""Decides who can add, change or remove a policy without being an administrator of the service.

Rules:
- A user named by an allow item with ``delegateAdmin`` can administer policies on what its policy is about,
  for the access types that the item names. They need that for every access type that the policy in question
  names, on each of its sets of resources; a policy that names none, or that says ``isDenyAllElse``, counts as
  naming every one. A masking or row filter policy is about ``select``.
- The policies that speak are those on access, in force now, in the order of every decision: higher priority
  first, and one denial beats every grant. A denial of the access itself, to them, anywhere on what the policy
  in question can be about, is a denial; whom a policy denies something may not change who else gets it. In
  the same way, whose values are masked may not change masks on them, nor row filters whose rows are filtered.
- A policy in a security zone is administered by the policies of that zone, one without a zone by those
  without one. A denial of a policy in any zone counts.
- A policy on tags is for administrators of the catalog, since it can lift what others' policies say of
  resources: no policy delegates tags. What one denies, masks or filters counts on the resources that have its
  tags; it delegates nothing there.
- A user cannot write a policy of higher priority than the one that delegates to them: it would speak first.
- What cannot be evaluated delegates nothing.

A change is allowed if both the policy before and the one after may be administered.

Source: RangerPolicyAdminImpl.isDelegatedAdminAccessAllowedForModify. Stricter than Ranger: the item
that grants must itself delegate; denials of other policies count, and so does the priority; all of the old
and the new policy is asked for, not what differs; resources are compared as `policy.ranger.covering` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from policy.decision import Decision, Reason
from policy.privileges.requests import ALL
from policy.ranger.circumstances import Subject
from policy.ranger.covering import covers, overlaps
from policy.ranger.evaluate import Verdict, check, doubt_about, restriction
from policy.ranger.matching import ResourcePattern
from policy.ranger.model import Policy, PolicyType
from policy.ranger.servicedef import access_types_of


def may_administer(in_force: Sequence[Policy], subject: Subject, changed: Policy) -> Decision:
    """Decide whether a user can administer one policy.

    Args:
        in_force: the policies in force now, of every type, highest priority first.
        subject: who wants to change it.
        changed: the policy, as it is or as it is to be.
    """
    return Decision.all_of(
        _decide(in_force, subject, access, resource, changed)
        for resource in changed.resources
        for access in sorted(_accesses(changed))
    )


def _accesses(policy: Policy) -> frozenset[str]:
    """The access types that a policy gives or takes."""
    every = access_types_of(policy.resources[0].hierarchy)
    if policy.type is not PolicyType.ACCESS:
        return frozenset({"select"})
    named = frozenset(access for item in policy.items for access in item.accesses)
    return every if not named or policy.deny_all_else or ALL in named else named


def _decide(
    in_force: Iterable[Policy], subject: Subject, access: str, resource: ResourcePattern, changed: Policy
) -> Decision:
    question = f"{access} by {changed.title}"
    for _, equals in groupby(in_force, key=lambda policy: policy.priority):
        grant: Reason | None = None
        for policy in equals:
            verdict = _verdict(policy, subject, access, changed)
            if verdict is None:
                continue
            if not verdict.allowed:
                if any(overlaps(ours, resource, subject.name) for ours in policy.resources):
                    detail = f"{policy.title} denies {subject.name!r} the right to administer {question}."
                    return Decision.deny(Reason("policy-deny", detail, policy.name, verdict.item))
            elif grant is None and _can_delegate(policy, changed):
                grant = _delegation(policy, subject, access, resource, question)
        if grant is not None:
            return Decision.allow(grant)
    detail = f"No policy lets {subject.name!r} administer {question}."
    return Decision.deny(Reason("policy-no-delegation", detail))


def _verdict(policy: Policy, subject: Subject, access: str, changed: Policy) -> Verdict | None:
    """What a policy in force says of the access, or of the masks or row filters that are to be changed."""
    if policy.type is PolicyType.ACCESS:
        return check(policy, subject, access)
    return restriction(policy, subject) if policy.type is changed.type else None


def _can_delegate(policy: Policy, changed: Policy) -> bool:
    return policy.priority >= changed.priority and policy.zone == changed.zone and policy.tag is None


def _delegation(
    policy: Policy, subject: Subject, access: str, resource: ResourcePattern, question: str
) -> Reason | None:
    """The grant, if `policy` certainly delegates an access type on all of `resource`."""
    delegating = replace(policy, allow=tuple(item for item in policy.allow if item.delegates))
    verdict = check(delegating, subject, access)
    if verdict is None or not verdict.allowed or verdict.doubt is not None:
        return None
    if not policy.is_certain or doubt_about(policy, subject.name) is not None:
        return None
    if not any(covers(ours, resource, subject.name) for ours in policy.resources):
        return None
    detail = f"{policy.title} lets {subject.name!r} administer {question}, by {verdict.item}."
    return Reason("policy-delegation", detail, policy.name, verdict.item)

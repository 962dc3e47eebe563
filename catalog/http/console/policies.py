"""Shows the policy documents of the catalog: a list of them, and each policy of one in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from catalog.http import admin_policies, admin_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.policy_store.documents import DocumentId, Kind
from policy import strict_json
from policy.ranger.items import ITEM_LISTS

_LONGEST: Final = 255
#: How many policies of a document a page shows.
_PAGE: Final = 50
#: How many characters of its text.
_SHOWN_TEXT: Final = 200_000
_TITLES: Final = {
    "policyItems": "Allow",
    "allowExceptions": "Except from allow",
    "denyPolicyItems": "Deny",
    "denyExceptions": "Except from deny",
    "dataMaskPolicyItems": "Mask",
    "rowFilterPolicyItems": "Filter rows",
}

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item of a policy in words.

    Attributes:
        title: what it does.
        whom: users, groups and roles.
        accesses: access types.
        detail: mask, row filter or conditions.
    """

    title: str
    whom: str
    accesses: str
    detail: str


@dataclass(frozen=True, slots=True)
class ShownPolicy:
    """A policy in words.

    Attributes:
        name: its name.
        description: its description.
        notes: what it has beside resources and items.
        resources: what it is about, a line for each set of resources.
        items: its items.
    """

    name: str
    description: str
    notes: tuple[str, ...]
    resources: tuple[str, ...]
    items: tuple[ShownItem, ...]


@router.get("/console/policies")
def list_documents(request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """List the documents, and the version of the policies in force."""
    found = admin_policies.list_documents(caller, services)
    state = admin_service.show_policies(caller, services)
    return page(request, "policies", documents=found.documents, state=state)


@router.get("/console/policies/document")
def show_document(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    kind: Kind,
    name: Annotated[str, Query(max_length=_LONGEST)],
    revision: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    part: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """Show a document: its policies in words, and its text."""
    document = DocumentId(kind, name)
    answer = admin_policies.show_document(document, caller, services, revision)
    content = strict_json.parse(bytes(answer.body), what=f"The policy document {document}")
    policies = _policies_in(content)
    first = (part - 1) * _PAGE
    return page(
        request,
        "policy_document",
        document=document,
        revision=revision,
        tag=answer.headers["ETag"].strip('"'),
        policies=[shown_policy(each) for each in policies[first : first + _PAGE]],
        total=len(policies),
        part=part,
        more=len(policies) > first + _PAGE,
        text=bytes(answer.body).decode("utf-8")[:_SHOWN_TEXT].splitlines(),
    )


def _policies_in(content: object) -> list[dict[str, Any]]:
    """Return the policies of a document, which the catalog has parsed before it stored it."""
    found = content.get("policies", []) if isinstance(content, dict) else content
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def shown_policy(policy: dict[str, Any]) -> ShownPolicy:
    """Return a policy of a document in words."""
    sets = [policy.get("resources") or {}, *(policy.get("additionalResources") or ())]
    items = (
        _item(_TITLES[name], each)
        for name in ITEM_LISTS
        for each in policy.get(name) or ()
        if isinstance(each, dict)
    )
    return ShownPolicy(
        str(policy.get("name", "")),
        str(policy.get("description") or ""),
        tuple(_notes(policy)),
        tuple(_resources(each) for each in sets if each),
        tuple(items),
    )


def _notes(policy: dict[str, Any]) -> Iterator[str]:
    if policy.get("isEnabled") is False:
        yield "It is disabled."
    if policy.get("policyPriority"):
        yield "It overrides policies of normal priority."
    if policy.get("isDenyAllElse"):
        yield "It denies all access that it does not allow."
    if policy.get("zoneName"):
        yield f"It belongs to the security zone {policy['zoneName']}."
    for each in policy.get("validitySchedules") or ():
        begins, ends = (each.get(name) or "any time" for name in ("startTime", "endTime"))
        yield f"It is valid from {begins} to {ends} ({each.get('timeZone') or 'UTC'})."
    if policy.get("conditions"):
        yield f"It has conditions: {_conditions(policy)}."


def _resources(given: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {_values(each)}" for name, each in given.items() if isinstance(each, dict))


def _values(given: dict[str, Any]) -> str:
    listed = _joined(given.get("values") or ())
    return f"all but {listed}" if given.get("isExcludes") else listed


def _item(title: str, item: dict[str, Any]) -> ShownItem:
    whom = [f"{what} {_joined(item[what])}" for what in ("users", "groups", "roles") if item.get(what)]
    accesses = [
        str(each.get("type")) for each in item.get("accesses") or () if each.get("isAllowed") is not False
    ]
    return ShownItem(title, "; ".join(whom), _joined(accesses), "; ".join(_details(item)))


def _details(item: dict[str, Any]) -> Iterator[str]:
    mask, rows = item.get("dataMaskInfo") or {}, item.get("rowFilterInfo") or {}
    if mask:
        yield f"mask {mask.get('dataMaskType')}"
    if rows:
        yield f"rows where {rows.get('filterExpr') or 'true'}"
    if item.get("delegateAdmin"):
        yield "can administer policies on these resources"
    if item.get("conditions"):
        yield f"if {_conditions(item)}"


def _conditions(given: dict[str, Any]) -> str:
    return " and ".join(
        f"{each.get('type')}: {_joined(each.get('values') or ())}" for each in given["conditions"]
    )


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))

"""Scopes of tokens: what they mean as text, and that they only take away."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from policy.identifiers import TableName
from policy.principal import Principal
from policy.privileges.operations import running_code
from policy.privileges.requests import ACCESS_TYPES, ALL, ANY, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.parse import NO_MEMORY, parse_documents
from policy.token_scope import MAX_SCOPE_NAMES, TokenScope

NOW = datetime(2026, 11, 29, tzinfo=UTC)
#: Few names, so that scopes and requests meet; one is the beginning of another one.
_NAME = st.sampled_from(["a", "ab", "b%20", "c d", "A"])
_NAMESPACE = st.lists(_NAME, min_size=1, max_size=3).map(tuple)
_TABLE = st.builds(TableName, _NAMESPACE, _NAME)


@st.composite
def _scopes(draw: st.DrawFn) -> TokenScope:
    namespaces = draw(st.frozensets(_NAMESPACE, max_size=2))
    tables = draw(st.frozensets(_TABLE, max_size=2))
    return TokenScope(not (namespaces or tables) or draw(st.booleans()), namespaces, tables)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[Resource, str]:
    table = draw(_TABLE)
    resource = draw(
        st.sampled_from(
            [
                Resource.database(table.database),
                Resource.table(table.database, table.name),
                Resource.column(table.database, table.name, "c"),
                Resource.url("s3://lake/x"),
                Resource.storage("s3://lake/x"),
                Resource.key("pii"),
                Resource.engine("spark"),
                Resource.service("lakewarden"),
            ]
        )
    )
    every = {ANY, *resource.access_types} | ({ALL} if resource.levels[0] == "database" else set())
    return resource, draw(st.sampled_from(sorted(every)))


def _everything() -> PolicySet:
    """Policies that grant everything to everybody."""
    items = [{"users": ["{USER}"], "delegateAdmin": True}]
    policies = [
        {
            "name": "-".join(levels),
            "resources": {level: {"values": ["*"]} for level in levels},
            "policyItems": [{**items[0], "accesses": [{"type": each} for each in sorted(access)]}],
        }
        for levels, access in ACCESS_TYPES.items()
    ]
    return PolicySet.parse({"all.json": json.dumps(policies)})


EVERYTHING = _everything()


@given(_scopes())
def test_a_scope_is_read_as_it_was_written(scope: TokenScope) -> None:
    assert TokenScope.parse(str(scope)) == scope


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "read-only ", "READ-ONLY", "read_only", "read-only read-only", "read-only,table:a.b"),
        *("table:a", "table:", "namespace:", "namespace:a.", "namespace:*a/b", "table:a.b/c", "admin"),
        *("namespace:a%41", "namespace:a%", "read-only\ttable:a.b", "database:a", "namespace:a\u200bb"),
        " ".join(f"namespace:n{number}" for number in range(MAX_SCOPE_NAMES + 1)),
    ],
)
def test_a_text_that_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        TokenScope.parse(text)
    assert refused.value.rule == "token-scope"
    assert refused.value.hint is not None


def test_a_scope_that_limits_nothing_is_none() -> None:
    with pytest.raises(RequestInvalid, match="limits nothing"):
        TokenScope()


@given(_scopes(), _requests())
def test_a_scope_grants_nothing(scope: TokenScope, request: tuple[Resource, str]) -> None:
    assert not PolicySet.empty().decide(AccessRequest(Principal("ann", scope=scope), *request), NOW)


@given(_scopes(), _requests())
def test_what_a_token_can_do_is_in_its_scope(scope: TokenScope, request: tuple[Resource, str]) -> None:
    """Everything is granted, so that the scope alone decides; this says what it must have decided."""
    resource, access = request
    allowed = EVERYTHING.decide(AccessRequest(Principal("ann", scope=scope), *request), NOW).allowed
    kind, database = resource.levels[0], resource.values[0] + "."
    inside = any(database.startswith(".".join(each) + ".") for each in scope.namespaces) or (
        resource.values[:2] in {(each.database, each.name) for each in scope.tables}
    )
    named = {".".join(each) for each in scope.namespaces} | {each.database for each in scope.tables}
    above = len(resource.values) == 1 and any(f"{each}.".startswith(database) for each in named)
    if kind in ("engine", "service"):
        assert not allowed
    elif kind == "key":
        assert allowed == (access == "release" or (access == "use" and not scope.read_only))
    elif scope.read_only and access not in ("select", ANY, "read"):
        assert not allowed
    elif not named:
        assert allowed
    else:
        assert allowed == (kind == "database" and (inside or (above and access == ANY)))


@given(_scopes())
def test_no_token_with_a_scope_administers_policies(scope: TokenScope) -> None:
    document = {"resources": {"database": {"values": ["a"]}, "table": {"values": ["*"]}}, "name": "p"}
    document |= {"policyItems": [{"users": ["bob"], "accesses": [{"type": "select"}]}]}
    changed = parse_documents({"p.json": json.dumps([document])}, NO_MEMORY).policies
    assert EVERYTHING.may_administer(Principal("ann"), changed, NOW)
    assert not EVERYTHING.may_administer(Principal("ann", scope=scope), changed, NOW)


@given(_scopes())
def test_code_that_a_user_can_run_by_another_token_is_a_danger_for_every_token(scope: TokenScope) -> None:
    (request,) = running_code(Principal("ann", scope=scope), "spark")
    assert EVERYTHING.decide(request, NOW)


@given(_scopes())
def test_masks_and_row_filters_are_those_of_the_user(scope: TokenScope) -> None:
    resources = {"database": {"values": ["*"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}
    mask = {"users": ["ann"], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    document = {"name": "m", "policyType": 1, "resources": resources, "dataMaskPolicyItems": [mask]}
    policies = PolicySet.parse({"m.json": json.dumps([document])})
    seen = policies.mask_for(Principal("ann", scope=scope), "a", "b", "c", NOW)
    assert seen is not None
    assert seen == policies.mask_for(Principal("ann"), "a", "b", "c", NOW)

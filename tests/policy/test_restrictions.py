"""What a user sees of rows and values: the decision out of policies, and policies that do not fit a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.errors import PolicyInvalid
from policy.misfits import misfits
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.restrictions.actions import ICEBERG_ACTIONS, MaskAction, action_of, takes
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.model import UNRESTRICTED, ColumnMask, Restriction
from policy.restrictions.predicate import FALSE, TRUE, Compare, Comparison, IsNull, Literal
from policy.restrictions.wire import restrictions_json
from policy.view import View

NOW = datetime(2026, 3, 31, 23, 30, tzinfo=UTC)
TABLE = ("db", "t")
EVERYONE = {"groups": ["public"], "accesses": [{"type": "select"}]}
COLUMNS = TableColumns(
    [
        SchemaField(1, ("id",), "long", required=True),
        SchemaField(2, ("ssn",), "string", names=frozenset({"ssn", "tax_id"})),
        SchemaField(3, ("home",), "struct"),
        SchemaField(4, ("home", "town"), "string", above=(3,)),
        SchemaField(5, ("props",), "map"),
        SchemaField(6, ("props", "key"), "string", above=(5,), repeated=True, in_key=True),
    ]
)


def masking(name: str, column: str, *masks: str, **more: Any) -> dict[str, Any]:
    items = [{**EVERYONE, "dataMaskInfo": {"dataMaskType": each}} for each in masks]
    levels = {"database": ["db"], "table": ["t"], "column": [column]}
    return _policy(name, 1, levels, dataMaskPolicyItems=items, **more)


def filtering(name: str, *texts: str, table: str = "t", **more: Any) -> dict[str, Any]:
    items = [{**EVERYONE, "rowFilterInfo": {"filterExpr": each}} for each in texts]
    return _policy(name, 2, {"database": ["db"], "table": [table]}, rowFilterPolicyItems=items, **more)


def _policy(name: str, kind: int, levels: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    resources = {level: {"values": values} for level, values in levels.items()}
    return {"name": name, "policyType": kind, "resources": resources, **more}


def policies(*documents: dict[str, Any]) -> PolicySet:
    return PolicySet.parse({"p.json": json.dumps({"policies": documents})})


def seen(*documents: dict[str, Any], user: str = "ann", groups: frozenset[str] = frozenset()) -> Restriction:
    view = View.of(policies(*documents), NOW, Principal(user, groups), TABLE, None)
    return view.restriction(COLUMNS)


def test_without_a_policy_nothing_is_restricted() -> None:
    assert seen() == UNRESTRICTED and not UNRESTRICTED and restrictions_json(UNRESTRICTED) is None
    assert seen(masking("m", "ssn", "MASK_NONE", "MASK"), filtering("f", "", "id = 1")) == UNRESTRICTED


def test_masks_filters_and_reasons_are_one_value() -> None:
    found = seen(masking("m", "ssn", "MASK_HASH"), filtering("f", "ssn = current_user()"))
    assert found.masks == {2: ColumnMask(MaskAction.SHA_256_GLOBAL, "m", "dataMaskPolicyItems[0]")}
    assert found.filters_by == {2} and found.nulled == frozenset()
    assert [(each.rule, each.policy, each.item) for each in found.reasons] == [
        ("row-filter", "f", "rowFilterPolicyItems[0]"),
        ("mask", "m", "dataMaskPolicyItems[0]"),
    ]
    assert found.reasons[0].detail.endswith("filters the rows of db.t: ssn = current_user()")


def test_a_null_that_the_filter_reads_is_not_closed() -> None:
    assert seen(masking("m", "ssn", "MASK_NULL")).nulled == {2}
    assert seen(masking("m", "ssn", "MASK_NULL"), filtering("f", "ssn is null")).nulled == frozenset()


def test_a_column_with_other_masks_under_other_names_is_null() -> None:
    same = seen(masking("a", "ssn", "MASK_HASH"), masking("b", "tax_id", "MASK_HASH"))
    assert same.masks[2].action is MaskAction.SHA_256_GLOBAL
    other = seen(masking("a", "ssn", "MASK_HASH"), masking("b", "tax_id", "show-last-4"))
    assert other.masks[2] == ColumnMask(MaskAction.REPLACE_WITH_NULL, "a", "dataMaskPolicyItems[0]")


def test_the_date_is_that_of_utc_and_groups_are_those_of_the_user() -> None:
    dated = filtering("f", "current_date = date '2026-03-31' and is_member('eu') or ssn is null")
    assert seen(dated, groups=frozenset({"eu"})).row_filter == TRUE
    assert seen(dated).row_filter == IsNull(2)


def test_the_users_name_in_a_filter_is_a_constant_whatever_it_is_called() -> None:
    """Ranger writes it into the text, where such a name would be SQL."""
    for name in ("ann", "x' OR 'a' = 'a", "{USER}", "\\"):
        for text in ("ssn = '${{USER._name}}'", "ssn = current_user()"):
            assert seen(filtering("f", text), user=name).row_filter == Compare(
                Comparison.EQ, 2, Literal("string", name)
            )


def test_a_user_macro_in_items_and_resources_stands_for_the_user() -> None:
    for_all = {"users": ["{USER}"], "accesses": [{"type": "select"}]}
    hashed = masking("m", "ssn") | {
        "dataMaskPolicyItems": [{**for_all, "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}]
    }
    few = filtering("f", table="t") | {
        "rowFilterPolicyItems": [{**for_all, "rowFilterInfo": {"filterExpr": "id = 1"}}]
    }
    found = seen(hashed, few)
    assert found.masks.keys() == {2} and found.row_filter == Compare(Comparison.EQ, 1, Literal("long", 1))
    own = (filtering("f", "id = 1", table="{USER}"), masking("m", "{USER}", "MASK_HASH"))
    assert seen(*own) == UNRESTRICTED
    assert seen(*own, user="t").filters_by == {1} and seen(*own, user="ssn").masks.keys() == {2}
    # Names of tables and columns are compared without letter case, those of users are not.
    assert seen(*own, user="T").row_filter == FALSE
    assert seen(*own, user="SSN").masks[2].action is MaskAction.REPLACE_WITH_NULL


def test_what_may_be_in_force_shows_no_row_and_no_value() -> None:
    conditions = [{"type": "ip-range", "values": ["1.2.3.4"]}]
    found = seen(filtering("f", "id = 1", conditions=conditions), masking("m", "ssn", "MASK", zoneName="z"))
    assert found.row_filter == FALSE and found.masks[2].action is MaskAction.REPLACE_WITH_NULL
    assert "shows no row of db.t: its condition of the type" in found.reasons[0].detail


def test_a_refusal_names_the_policy() -> None:
    for document, problem in (
        (filtering("f", "gone = 1"), "Policy 'f': the row filter cannot be used: the column gone"),
        (masking("m", "id", "MASK_NULL"), "Policy 'm': the mask MASK_NULL cannot be on the column 'id'"),
        (masking("m", "props.key", "MASK"), "Policy 'm': the mask MASK cannot be on the column 'props.key'"),
        (masking("m", "home", "show-first-4"), "Policy 'm': the mask show-first-4 cannot be"),
    ):
        with pytest.raises(PolicyInvalid) as refused:
            seen(document)
        assert problem in refused.value.message and refused.value.hint


def test_misfits_are_told_apart_by_policy_item_and_table() -> None:
    found = policies(
        filtering("f", "", "gone = 1", "id = 1"),
        filtering("other", "gone = 1", table="t?"),
        masking("m", "*s*", "MASK_NONE", "mask-to-fixed-value", "MASK_DATE_SHOW_YEAR"),
    )
    told = {(each.policy, each.item, each.rule) for each in misfits(found, TABLE, COLUMNS)}
    assert told == {("f", "rowFilterPolicyItems[1]", "row-filter")}
    nulls = policies(masking("m", "id", "MASK_NULL"), masking("n", "ssn", "MASK_NULL"))
    (one,) = misfits(nulls, TABLE, COLUMNS)
    assert one.policy == "m" and "required" in one.problem and "mask-to-fixed-value" in (one.hint or "")
    (struct,) = misfits(policies(masking("m", "home", "mask-to-fixed-value")), TABLE, COLUMNS)
    assert "each field in it" in (struct.hint or "")
    assert not list(misfits(nulls, TABLE, COLUMNS, only=[]))


def test_rangers_masks_are_null_where_hive_takes_the_type_no_more() -> None:
    kinds = ("boolean", "double", "decimal(9,2)", "timestamptz", "binary", "uuid", "struct", "list", "map")
    for mask in ("MASK", "MASK_SHOW_FIRST_4", "MASK_SHOW_LAST_4", "MASK_HASH", "MASK_DATE_SHOW_YEAR"):
        assert {action_of(mask, each) for each in kinds} == {MaskAction.REPLACE_WITH_NULL}
        for kind in ("string", "int", "long", "date", *kinds):
            assert takes(action_of(mask, kind), kind)
    assert action_of("MASK_DATE_SHOW_YEAR", "date") is MaskAction.TRUNCATE_TO_YEAR
    assert all(action_of(each.value, "string") is each for each in ICEBERG_ACTIONS)


def test_a_mask_has_no_expression() -> None:
    document = masking("m", "ssn", "MASK_HASH")
    document["dataMaskPolicyItems"][0]["dataMaskInfo"]["valueExpr"] = "f({col})"
    with pytest.raises(PolicyInvalid, match=r"valueExpr: a mask of the type MASK_HASH has no expression"):
        policies(document)
    document["dataMaskPolicyItems"][0]["dataMaskInfo"] = {"dataMaskType": "CUSTOM", "valueExpr": "f({col})"}
    with pytest.raises(PolicyInvalid, match=r"'CUSTOM' is not supported") as refused:
        policies(document)
    assert "sha-256-global" in (refused.value.hint or "")

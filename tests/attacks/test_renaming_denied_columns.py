"""Another name for a column or a table is no way around a denial: ALTER is no right to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.tables.alter import Change
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.column_keys import alter, commit, loaded
from tests.support.lake import CAROL, Lake, open_lake, policy, standard_policies, tables
from tests.support.tables import make
from tests.support.tags import service_tags, tagged

MALLORY = "mallory"
PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(
        3, "who", StructType(NestedField(4, "name", StringType()), NestedField(5, "ssn", StringType()))
    ),
)
ANYWHERE = policy("mallory-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {MALLORY: ["rwstorage"]})
ITEM = {"users": [MALLORY], "accesses": [{"type": "select", "isAllowed": True}]}


def about(column: str, **items: Any) -> dict[str, Any]:
    return policy(column, tables("*") | {"column": [column]}, {}, **items)


def denied(column: str) -> dict[str, Any]:
    return about(column, denyPolicyItems=[ITEM])


def masked(column: str) -> dict[str, Any]:
    items = [ITEM | {"dataMaskInfo": {"dataMaskType": "MASK_HASH"}}]
    return about(column, policyType=1, dataMaskPolicyItems=items)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog in which Mallory may read and alter tables, but for what a test withholds from her."""
    with open_lake(tmp_path_factory.mktemp("lake")) as opened:
        opened.catalog().create_namespace("db")
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    withhold(lake)
    return make(lake, schema=PERSON)


def withhold(lake: Lake, *policies: dict[str, Any]) -> None:
    rights = policy("mallory", tables("*"), {MALLORY: ["select", "alter", "update", "create"]})
    lake.set_policies([*standard_policies(), rights, *policies])


def refused(lake: Lake, table: Table, *changes: Change) -> None:
    before = loaded(lake, table).metadata
    with pytest.raises(NotAuthorized):
        alter(lake, table, *changes, user=MALLORY)
    assert loaded(lake, table).metadata == before


@pytest.mark.parametrize("withheld", [denied, masked])
def test_a_column_that_is_withheld_gets_no_other_name(lake: Lake, table: Table, withheld: Any) -> None:
    withhold(lake, withheld("ssn"))
    refused(lake, table, RenameColumn(("ssn",), "x"))
    refused(
        lake, table, RenameColumn(("id",), "t"), RenameColumn(("ssn",), "id"), RenameColumn(("t",), "ssn")
    )
    alter(lake, table, RenameColumn(("id",), "key"), AddColumn(("more",), LongType()), user=MALLORY)


def test_neither_does_a_field_of_a_struct_nor_the_struct_around_it(lake: Lake, table: Table) -> None:
    withhold(lake, denied("who.ssn"))
    for change in (RenameColumn(("who", "ssn"), "x"), RenameColumn(("who",), "x")):
        refused(lake, table, change)
    alter(lake, table, RenameColumn(("who", "name"), "called"), user=MALLORY)


def test_a_schema_of_ones_own_gives_none_either_be_it_current_or_not(lake: Lake, table: Table) -> None:
    withhold(lake, denied("ssn"))
    renamed = AddSchemaUpdate(
        schema_=Schema(NestedField(1, "id", LongType()), NestedField(2, "x", StringType()), schema_id=7)
    )
    for updates in ((renamed,), (renamed, SetCurrentSchemaUpdate(schema_id=-1))):
        with pytest.raises(NotAuthorized):
            commit(lake, table, *updates, user=MALLORY)


def test_a_dropped_column_does_not_come_back_by_another_name(lake: Lake, table: Table) -> None:
    withhold(lake, denied("ssn"))
    alter(lake, table, DropColumn(("ssn",)), user=MALLORY)
    back = AddSchemaUpdate(
        schema_=Schema(NestedField(1, "id", LongType()), NestedField(2, "x", StringType()), schema_id=7)
    )
    with pytest.raises(NotAuthorized):
        commit(lake, table, back, SetCurrentSchemaUpdate(schema_id=-1), user=MALLORY)


def test_every_name_that_it_had_counts(lake: Lake, table: Table) -> None:
    alter(lake, table, RenameColumn(("ssn",), "number"))
    withhold(lake, denied("ssn"))
    refused(lake, table, RenameColumn(("number",), "x"))
    withhold(lake)
    alter(lake, table, RenameColumn(("number",), "x"), user=MALLORY)


WITHHELD = [denied("ssn"), masked("ssn"), denied("who.ssn")]


@pytest.mark.parametrize("withheld", WITHHELD, ids=["denied", "masked", "nested"])
def test_a_table_with_a_withheld_column_gets_no_other_name(
    lake: Lake, table: Table, withheld: dict[str, Any]
) -> None:
    withhold(lake, withheld)
    source, catalog = table.name(), lake.catalog(MALLORY)
    with pytest.raises(NotAuthorized):
        catalog.rename_table(source, (*source[:-1], "another"))
    withhold(lake)
    catalog.rename_table(source, (*source[:-1], f"{source[-1]}_renamed"))


@pytest.mark.parametrize("withheld", WITHHELD, ids=["denied", "masked", "nested"])
def test_nor_does_it_come_back_by_another_name(lake: Lake, table: Table, withheld: dict[str, Any]) -> None:
    name, location, catalog = table.name(), table.metadata_location, lake.catalog(MALLORY)
    lake.catalog().drop_table(name)
    withhold(lake, ANYWHERE, withheld)
    with pytest.raises(NotAuthorized):
        catalog.register_table((*name[:-1], f"{name[-1]}_back"), location)
    catalog.register_table(name, location)


def restricting(table: str, database: str = "db", **more: Any) -> dict[str, Any]:
    """Carol's mask on `ssn`, or her row filter, in tables of this name."""
    item = {"users": [CAROL], "accesses": ITEM["accesses"]}
    resources = {"database": [database], "table": [table]}
    if "filter" in more:
        items = [item | {"rowFilterInfo": {"filterExpr": more["filter"]}}]
        return policy("rows", resources, {}, policyType=2, rowFilterPolicyItems=items)
    items = [item | {"dataMaskInfo": {"dataMaskType": more.get("mask", "MASK_HASH")}}]
    columns = resources | {"column": ["ssn"]}
    return policy(f"masks {table}", columns, {}, policyType=1, dataMaskPolicyItems=items)


@pytest.mark.parametrize(
    ("policies", "target"),
    [
        ([restricting("NAME")], ("db", "TARGET")),
        ([restricting("NAME", filter="id < 3")], ("db", "TARGET")),
        ([restricting("NAM*")], ("db", "TARGET")),
        ([restricting("*")], ("elsewhere", "NAME")),
        ([restricting("*", filter="id < 3")], ("elsewhere", "NAME")),
        ([restricting("*"), restricting("TARGET", mask="MASK_NONE")], ("db", "TARGET")),
        ([restricting("TARGET", filter="other < 3")], ("db", "TARGET")),
    ],
    ids=["mask", "filter", "wildcard", "namespace", "filter-of-namespace", "lifted", "misfit"],
)
def test_a_new_name_takes_no_table_from_the_row_filters_and_masks_of_others(
    lake: Lake, table: Table, policies: list[dict[str, Any]], target: tuple[str, str]
) -> None:
    """Mallory sees every value, and Carol does not: after the rename she would."""
    _refused_a_name(lake, table, policies, target)


def _refused_a_name(
    lake: Lake, table: Table, policies: list[dict[str, Any]], target: tuple[str, str]
) -> None:
    names = {"NAME": table.name()[-1], "NAM*": f"{table.name()[-1][:-1]}*", "TARGET": f"x{uuid4().hex}"}
    given = json.loads(_named(json.dumps(policies), names))
    to = (target[0], _named(target[1], names))
    lake.catalog().create_namespace_if_not_exists("elsewhere")
    withhold(lake, *given)
    mallory, location = lake.catalog(MALLORY), table.metadata_location
    with pytest.raises(RequestInvalid, match="policy"):
        mallory.rename_table(table.name(), to)
    withhold(lake, ANYWHERE, *given)
    lake.catalog().drop_table(table.name())
    with pytest.raises(RequestInvalid, match="policy"):
        mallory.register_table(to, location)
    mallory.register_table(table.name(), location)


def _named(text: str, names: dict[str, str]) -> str:
    for short, name in names.items():
        text = text.replace(short, name)
    return text


def denying(table: str, column: str = "ssn", database: str = "db", **more: Any) -> dict[str, Any]:
    """Carol's denial of a column in tables of this name."""
    item = {"users": [CAROL], "accesses": [{"type": more.pop("access", "select"), "isAllowed": True}]}
    resources = {"database": [database], "table": [table], "column": [column]}
    return policy(f"denies {table}", resources, {}, **{"denyPolicyItems": [item], **more})


OVERRIDE = {"policyPriority": 1}
GRANTED = {"denyPolicyItems": [], "policyItems": [{"users": [CAROL], "accesses": ITEM["accesses"]}]}


@pytest.mark.parametrize(
    ("policies", "target"),
    [
        ([denying("NAME")], ("db", "TARGET")),
        ([denying("NAME", access="all")], ("db", "TARGET")),
        ([denying("NAME", "who.ssn")], ("db", "TARGET")),
        ([denying("NAM*", "*")], ("db", "TARGET")),
        ([denying("*")], ("elsewhere", "NAME")),
        ([denying("NAME", denyPolicyItems=[], isDenyAllElse=True, policyItems=[ITEM])], ("db", "TARGET")),
        ([denying("*"), denying("TARGET", **GRANTED, **OVERRIDE)], ("db", "TARGET")),
    ],
    ids=["denied", "all", "nested", "wildcard", "namespace", "all-else", "overridden"],
)
def test_a_new_name_takes_no_table_from_the_denials_of_others(
    lake: Lake, table: Table, policies: list[dict[str, Any]], target: tuple[str, str]
) -> None:
    """Mallory sees every value, and Carol does not: after the rename she would."""
    _refused_a_name(lake, table, policies, target)


def test_a_new_name_takes_no_column_from_the_denials_of_others(lake: Lake, table: Table) -> None:
    withhold(lake, denying("*"), denying("*", "who.ssn") | {"name": "nested"})
    for change in (
        RenameColumn(("ssn",), "x"),
        RenameColumn(("who", "ssn"), "x"),
        RenameColumn(("who",), "x"),
    ):
        with pytest.raises(RequestInvalid, match=r"policy '(denies|nested)"):
            alter(lake, table, change, user=MALLORY)
    alter(lake, table, RenameColumn(("who", "name"), "called"), RenameColumn(("id",), "key"), user=MALLORY)


@pytest.mark.parametrize(
    "policies",
    [
        [denying("*")],
        [denying("NAME", access="update")],
        [denying("NAME", **GRANTED)],
        [denying("*"), denying("TARGET", **GRANTED)],
        [denying("*", **OVERRIDE), denying("TARGET", **GRANTED, **OVERRIDE)],
    ],
    ids=["still-denied", "update", "granted", "granted-but-denied", "of-one-priority"],
)
def test_a_table_that_stays_under_its_denials_is_renamed(
    lake: Lake, table: Table, policies: list[dict[str, Any]]
) -> None:
    target = f"x{uuid4().hex}"
    withhold(lake, *json.loads(_named(json.dumps(policies), {"NAME": table.name()[-1], "TARGET": target})))
    lake.catalog(MALLORY).rename_table(table.name(), ("db", target))


@pytest.mark.parametrize("more", [{}, {"filter": "id < 3"}], ids=["mask", "filter"])
def test_a_table_is_renamed_once_its_policies_have_both_names(
    lake: Lake, table: Table, more: dict[str, Any]
) -> None:
    target = f"x{uuid4().hex}"
    both = restricting(table.name()[-1], **more)
    both["resources"]["table"]["values"].append(target)
    withhold(lake, both)
    lake.catalog(MALLORY).rename_table(table.name(), ("db", target))


def on_tag(**more: Any) -> dict[str, Any]:
    return policy("tagged", {"tag": ["PII"]}, {}, **more)


TAGGED = [
    on_tag(denyPolicyItems=[{"users": ["carol"], "accesses": [{"type": "hive:select"}]}]),
    on_tag(
        policyType=1,
        dataMaskPolicyItems=[
            {
                "users": ["carol"],
                "accesses": [{"type": "hive:select"}],
                "dataMaskInfo": {"dataMaskType": "hive:MASK_NULL"},
            }
        ],
    ),
]


ZONED = {"zoneName": "z"}


@pytest.mark.parametrize("into", [False, True], ids=["out-of-a-zone", "into-a-zone"])
@pytest.mark.parametrize("items", ["denial", "mask"])
def test_a_new_name_takes_no_table_out_of_its_security_zone(
    lake: Lake, table: Table, items: str, into: bool
) -> None:
    """The policy is on every name, but counts in one zone."""
    name, target = table.name()[-1], f"x{uuid4().hex}"
    carols = [{**ITEM, "users": ["carol"], "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}]
    mask = about("ssn", policyType=1, dataMaskPolicyItems=carols)
    restricting = (denying("*") if items == "denial" else mask) | ({} if into else ZONED)
    zone = {"z": {"resources": [{"database": ["db"], "table": [target if into else name]}]}}
    rights = policy("mallory", tables("*"), {MALLORY: ["select", "alter", "update", "create"]})
    document = {"policies": [rights | ZONED | {"name": "zoned"}], "securityZones": zone}
    path = lake.root / "policies" / "zones.json"
    path.write_text(json.dumps(document))
    try:
        withhold(lake, restricting)
        with pytest.raises(RequestInvalid, match="policy"):
            lake.catalog(MALLORY).rename_table(table.name(), ("db", target))
    finally:
        path.unlink()
        withhold(lake)


def tag(lake: Lake, *names: tuple[str, ...]) -> None:
    document = service_tags([tagged(*each, tags=["PII"]) for each in names])
    (lake.root / "policies" / "tags.json").write_text(json.dumps(document))


@pytest.mark.parametrize("more", TAGGED, ids=["denial", "mask"])
def test_a_new_name_takes_no_table_out_of_what_its_tags_do(
    lake: Lake, table: Table, more: dict[str, Any]
) -> None:
    """Mallory is not the one whom the tag restricts: Carol would see the column under the new name."""
    name, target = table.name()[-1], f"x{uuid4().hex}"
    tag(lake, ("db", name, "ssn"))
    withhold(lake, more)
    with pytest.raises(RequestInvalid, match="policy 'tagged'"):
        lake.catalog(MALLORY).rename_table(table.name(), ("db", target))
    tag(lake, ("db", name, "ssn"), ("db", target, "ssn"))
    withhold(lake, more)
    lake.catalog(MALLORY).rename_table(table.name(), ("db", target))
    tag(lake)


@pytest.mark.parametrize("more", TAGGED, ids=["denial", "mask"])
def test_a_new_name_takes_no_column_out_of_what_its_tags_do(
    lake: Lake, table: Table, more: dict[str, Any]
) -> None:
    tag(lake, ("db", table.name()[-1], "ssn"), ("db", table.name()[-1], "who"))
    withhold(lake, more)
    for path in (("ssn",), ("who",)):
        with pytest.raises(RequestInvalid, match="policy 'tagged'"):
            alter(lake, table, RenameColumn(path, "x"), user=MALLORY)
    alter(lake, table, RenameColumn(("id",), "key"), user=MALLORY)
    tag(lake)

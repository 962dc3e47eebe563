"""Delete files in plans: attached as the specification says, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import GreaterThan
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, PrimitiveType, StringType, StructType

from catalog.writes.new_files import FileCommit
from policy.errors import MetadataInvalid, NotSupportedYet
from tests.support import plans
from tests.support.delete_commits import EQUALITY, POSITIONS, DeleteCommit
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, CAROL, Lake, policy
from tests.support.plans import plan
from tests.support.tables import Engine, append_files, make, name_of

DATA = DataFileContent.DATA
ID, NAME, SCORE, STREET = 1, 2, 3, 5
SCHEMA = Schema(
    NestedField(ID, "id", LongType()),
    NestedField(NAME, "name", StringType()),
    NestedField(SCORE, "score", DoubleType()),
    NestedField(4, "home", StructType(NestedField(STREET, "street", StringType()))),
)
BY_ID = PartitionSpec(PartitionField(ID, 1000, IdentityTransform(), "id"))


def delete(lake: Lake, table: Table, *fields: int, content: DataFileContent = EQUALITY, **given: Any) -> str:
    """Commit a delete file; its path."""
    engine = Engine.begin(lake, name_of(table))
    commit = DeleteCommit(lake.services, lake.caller(ALICE), engine.session)
    file = engine.file(**given)
    commit.add(file, content, fields)
    commit.commit()
    return file.path


def attached(lake: Lake, table: Table, **request: Any) -> dict[str, set[str]]:
    """By data file the delete files that a plan attaches; it has no others."""
    made = plan(lake, table, **request).files.to_pylist()
    found = {
        row["file_path"]: {made[number]["file_path"] for number in row["deletes"] or []}
        for row in made
        if row["content"] == 0
    }
    assert {row["file_path"] for row in made if row["content"] != 0} == set().union(*found.values())
    return found


def bounds(lower: Any, upper: Any, nulls: int = 0, field: int = ID) -> dict[str, Any]:
    """Statistics of a column with ten values."""
    kind = SCHEMA.find_type(field)
    assert isinstance(kind, PrimitiveType)
    return {
        "value_counts": {field: 10},
        "null_value_counts": {field: nulls},
        "lower_bounds": {field: to_bytes(kind, lower)},
        "upper_bounds": {field: to_bytes(kind, upper)},
    }


def evolve(lake: Lake, table: Table, **changes: str) -> None:
    """Add or remove a partition field."""
    with lake.catalog().load_table(table.name()).update_spec() as update:
        for what, name in changes.items():
            getattr(update, what)(name)


def change(lake: Lake, table: Table, what: str, *names: str) -> None:
    """Change the schema."""
    with lake.catalog().load_table(table.name()).update_schema() as update:
        getattr(update, what)(*names)


@pytest.mark.nightly
def test_position_deletes_are_attached_as_pyiceberg_does(lake: Lake) -> None:
    table = make(lake)
    (first,) = append_files(lake, name_of(table))
    (second,) = append_files(lake, name_of(table))
    for_all = add_deletes(lake, table, DataFileContent.POSITION_DELETES)
    for_first = add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[first])
    (third,) = append_files(lake, name_of(table))
    found = attached(lake, table)
    assert found == {first: {for_all, for_first}, second: {for_all}, third: set()}
    theirs = {
        task.file.file_path: {each.file_path for each in task.delete_files}
        for task in lake.catalog().load_table(table.name()).scan().plan_files()
    }
    assert found == theirs


@pytest.mark.nightly
def test_equality_deletes_apply_to_older_files_and_positions_to_those_of_their_commit_too(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    (old,) = append_files(lake, name_of(table))
    engine = Engine.begin(lake, name_of(table))
    commit = DeleteCommit(lake.services, lake.caller(ALICE), engine.session)
    same, positions, equal = engine.file(), engine.file(), engine.file()
    commit.add(same, DATA)
    commit.add(positions, POSITIONS)
    commit.add(equal, EQUALITY, [NAME])
    commit.commit()
    (new,) = append_files(lake, name_of(table))
    assert attached(lake, table) == {
        old: {positions.path, equal.path},
        same.path: {positions.path},
        new: set(),
    }
    (row,) = [each for each in plan(lake, table).files.to_pylist() if each["content"] == 2]
    assert row["equality_ids"] == [NAME]


@pytest.mark.parametrize("content", [POSITIONS, EQUALITY])
def test_deletes_apply_to_partitions_of_nan_and_of_either_zero(lake: Lake, content: DataFileContent) -> None:
    spec = PartitionSpec(PartitionField(SCORE, 1000, IdentityTransform(), "score"))
    table = make(lake, schema=SCHEMA, partition_spec=spec)
    values = (math.nan, 0.0, -0.0)
    files = [append_files(lake, name_of(table), partition={"score": each})[0] for each in values]
    fields = (NAME,) if content is EQUALITY else ()
    deletes = [delete(lake, table, *fields, content=content, partition={"score": each}) for each in values]
    assert attached(lake, table) == {file: {each} for file, each in zip(files, deletes, strict=True)}


@pytest.mark.nightly
def test_equality_deletes_apply_to_their_partition_and_unpartitioned_ones_to_all(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    (unpartitioned,) = append_files(lake, name_of(table))
    evolve(lake, table, add_identity="id")
    (one,) = append_files(lake, name_of(table), spec_id=1, partition={"id": 1})
    (two,) = append_files(lake, name_of(table), spec_id=1, partition={"id": 2})
    (none,) = append_files(lake, name_of(table), spec_id=1, partition={"id": None})
    of_one = delete(lake, table, NAME, spec_id=1, partition={"id": 1})
    of_none = delete(lake, table, NAME, spec_id=1, partition={"id": None})
    assert attached(lake, table) == {unpartitioned: set(), one: {of_one}, two: set(), none: {of_none}}
    evolve(lake, table, remove_field="id")
    spec_id = lake.catalog().load_table(table.name()).spec().spec_id
    everywhere = delete(lake, table, NAME, spec_id=spec_id)
    assert attached(lake, table) == {
        unpartitioned: {everywhere},
        one: {of_one, everywhere},
        two: {everywhere},
        none: {of_none, everywhere},
    }


@pytest.mark.nightly
def test_equality_deletes_are_left_out_where_statistics_show_that_they_delete_nothing(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    engine = Engine.begin(lake, name_of(table))
    files = {
        "low": engine.file(**bounds(1, 9)),
        "high": engine.file(**bounds(20, 29)),
        "null": engine.file(**bounds(20, 29, nulls=1)),
        "unknown": engine.file(),
        "texts": engine.file(**bounds("a", "f", field=NAME)),
        "zero": engine.file(**bounds(0.0, 0.0, field=SCORE)),
    }
    engine.append(*files.values())

    def left(*fields: int, **given: Any) -> set[str]:
        path = delete(lake, table, *fields, **given)
        found = attached(lake, table)
        return {name for name, file in files.items() if path in found.get(file.path, ())}

    blind = {"unknown", "texts", "zero"}
    assert left(ID) == {*files}
    assert left(ID, **bounds(9, 20)) == {"low", "high", "null"} | blind
    assert left(ID, **bounds(9, 19)) == {"low"} | blind
    assert left(ID, **bounds(10, 19, nulls=1)) == {"null"} | blind
    assert left(NAME, **bounds("g", "z", field=NAME)) == {*files} - {"texts"}
    assert left(ID, NAME, **bounds(1, 9)) == {"low"} | blind
    # Bounds say nothing of NaN, and take both zeros for one.
    assert left(SCORE, **bounds(1.0, 2.0, field=SCORE)) == {*files}


@pytest.mark.nightly
def test_a_plan_has_the_deletes_of_its_files_alone(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=BY_ID)
    kept = {}
    for number in (1, 2):
        append_files(lake, name_of(table), partition={"id": number})
        kept[number] = {
            delete(lake, table, NAME, partition={"id": number}),
            delete(lake, table, partition={"id": number}, content=POSITIONS),
        }
    (found,) = attached(lake, table, filter=GreaterThan("id", 1)).values()
    assert found == kept[2]


def test_compared_columns_are_told_in_their_structs_and_also_when_they_were_dropped(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    append_files(lake, name_of(table))
    delete(lake, table, STREET, NAME)
    change(lake, table, "delete_column", "name")
    change(lake, table, "rename_column", "home.street", "road")
    said = plan(lake, table, "id").header.to_json()
    assert said["columns"] == ["id"]
    fields = {each["id"]: each for each in said["equality-columns"]["fields"]}
    assert fields.keys() == {NAME, 4} and not any(each["required"] for each in fields.values())
    assert [each["name"] for each in fields[4]["type"]["fields"]] == ["road"]


@pytest.mark.nightly
@pytest.mark.parametrize("fields", [[99], [4]], ids=["unknown", "a struct"])
def test_what_cannot_be_compared_refuses_the_plan(lake: Lake, fields: list[int]) -> None:
    table = make(lake, schema=SCHEMA)
    append_files(lake, name_of(table))
    with pytest.raises(MetadataInvalid, match="equality"):
        delete(lake, table, *fields)
        plan(lake, table)


def test_deletion_vectors_are_refused(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    with pytest.raises(NotSupportedYet) as refused:
        add_deletes(lake, table, DataFileContent.POSITION_DELETES, file_format=FileFormat.PUFFIN)
        plan(lake, table)
    assert refused.value.rule == "deletes"


Policies = Callable[..., None]
mine = partial(plans.plan, user=CAROL)


def without(*columns: str) -> dict[str, Any]:
    """Carol cannot select these."""
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    resources = {"database": ["db"], "table": ["*"], "column": list(columns)}
    return policy("denied", resources, {}, denyPolicyItems=items)


def test_a_snapshot_with_equality_deletes_needs_the_columns_that_they_compare(
    lake: Lake, policies: Policies
) -> None:
    """Whether they apply to a file does not matter: otherwise the refusal would tell of values."""
    table = make(lake, schema=SCHEMA)
    append_files(lake, name_of(table), **bounds("y", "z", field=NAME))
    delete(lake, table, NAME, **bounds("a", "b", field=NAME))
    policies(without("name"))
    refusal = plans.refused(lake, table, "id", user=CAROL)
    assert "deleted by the values of the column 'name'" in refusal.message
    policies(without("score"))
    assert mine(lake, table, "id").files.num_rows == 1
    change(lake, table, "rename_column", "name", "title")
    policies(without("name"))
    plans.refused(lake, table, "id", user=CAROL)


def test_keys_of_compared_columns_come_with_the_deletes_and_masked_ones_refuse(
    lake: Lake, policies: Policies
) -> None:
    keyed = {"encryption.columns": "pii:name;hr:score", "encryption.masks": "nullify:name"}
    table = make(lake, schema=SCHEMA, properties=keyed)
    append_files(lake, name_of(table))

    def keys() -> list[set[str]]:
        files = mine(lake, table, "id").files.to_pylist()
        return [{key["key_name"] for key in row["keys"]} & {"pii", "hr"} for row in files]

    assert keys() == [set()]
    delete(lake, table, NAME)
    assert keys() == [{"pii"}, {"pii"}]
    policies(without("name"))
    plans.refused(lake, table, "id", user=CAROL)


def test_metadata_columns_are_read_with_the_columns_that_they_show(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=BY_ID)
    append_files(lake, name_of(table), partition={"id": 7})
    policies(without("id"))
    for shown in ("_file", "_partition", "_partition.id"):
        assert "id" in plans.refused(lake, table, "name", shown, user=CAROL).message
    made = mine(lake, table, "name", "_pos", "_spec_id", "_partition.other")
    assert made.header.columns == ("name",) and made.files["partition"].to_pylist() == ["{}"]
    evolve(lake, table, remove_field="id")
    change(lake, table, "delete_column", "id")
    # Directories still show its values.
    plans.refused(lake, table, "name", "_file", user=CAROL)
    policies()
    assert mine(lake, table, "name", "_file").header.columns == ("name",)


def test_a_column_of_the_table_is_meant_before_a_metadata_column(lake: Lake) -> None:
    table = make(lake, schema=Schema(NestedField(1, "_file", LongType()), NestedField(2, "b", LongType())))
    assert plan(lake, table, "_file").header.columns == ("_file",)


def test_the_key_of_position_deletes_opens_no_column(lake: Lake, policies: Policies) -> None:
    """A user's own process gets it without a permission on the columns that it does not read."""
    table = make(lake, schema=SCHEMA, properties={"encryption.columns": "pii:name"})
    (data,) = append_files(lake, name_of(table))
    engine = Engine.begin(lake, name_of(table))
    path = engine.path()
    file = engine.file(path, content=1, referenced_data_files=(data,), keys=(engine.key(path),))
    engine.commit(FileCommit("delete", (file,), base_snapshot_id=head_of(lake, table)))
    release = policy("release", {"key": ["*"]}, {CAROL: ["release"]})
    policies(without("name"), release)
    made = mine(lake, table, "id", engine=None).files.to_pylist()
    assert [len(row["keys"]) for row in made] == [1, 1] and made[0]["deletes"] == [1]


def head_of(lake: Lake, table: Table) -> int | None:
    """The current snapshot of a table."""
    found = lake.catalog().load_table(table.name()).current_snapshot()
    return None if found is None else found.snapshot_id

"""Commits that remove files or rows: what they leave, and what they are refused for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    NotEqualTo,
    NotNull,
    Or,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate

from catalog.planning.request import ScanRequest
from catalog.tables.alter import SetProperty
from catalog.writes.delete_files import settings_of
from catalog.writes.new_files import FileCommit, NewFile
from policy.errors import MetadataTampered, NotAuthorized, RequestInvalid, UnsupportedFormatVersion
from tests.support.lake import ALICE, CAROL, Lake, policy, standard_policies
from tests.support.rewrites import make_keys
from tests.support.row_changes import SCHEMA, Ledger
from tests.support.snapshot_files import local
from tests.support.table_keys import load, rewrap
from tests.support.tables import ENCRYPTED, Engine, make, name_of


@pytest.fixture(params=["plaintext", "encrypted", pytest.param("partly", marks=pytest.mark.nightly)])
def protection(request: pytest.FixtureRequest, lake: Lake) -> dict[str, Any]:
    """Options of a table: every encrypted one keeps its bounds sealed."""
    if request.param == "partly":
        make_keys(lake, "ids")
        return {"properties": {"encryption.columns": "ids:id"}}
    return (
        {} if request.param == "plaintext" else {"properties": ENCRYPTED, "partition_spec": PartitionSpec()}
    )


FILTERS: list[tuple[BooleanExpression, set[int] | None]] = [
    (AlwaysTrue(), {1, 2, 3}),
    (LessThan("id", 10), {1}),
    (GreaterThanOrEqual("id", 10), {2, 3}),
    (GreaterThan("id", 10), None),
    (EqualTo("id", 100), {3}),
    (In("id", {100, 5}), None),
    (NotEqualTo("id", 100), {1, 2}),
    (And(GreaterThan("id", 5), LessThan("id", 8)), None),
    (Or(LessThan("id", 10), EqualTo("id", 100)), {1, 3}),
    (NotNull("id"), {1, 2, 3}),
    (IsNull("id"), set()),
    (GreaterThan("id", 1000), set()),
]


def test_a_filter_removes_the_files_whose_rows_all_match(lake: Lake, protection: dict[str, Any]) -> None:
    """By the bounds, also where these are encrypted; nothing is removed if a file matches partly."""
    ledger = Ledger.of(lake, **protection)
    engine = ledger.engine()
    files = {each: ledger.file(engine, *ids) for each, ids in {1: (0, 9), 2: (10, 19), 3: (100, 100)}.items()}
    engine.append(*files.values())
    for number, (row_filter, gone) in enumerate(FILTERS):
        can = lake.services.whole_files.can_delete(
            lake.caller(ALICE), name_of(ledger.table), row_filter, "main", case_sensitive=True
        )
        assert can is (gone is not None), row_filter
        branch = f"b{number}"
        if gone is None:
            with pytest.raises(RequestInvalid) as refused:
                ledger.commit("delete", delete_filter=row_filter, branch=branch)
            assert refused.value.rule == "partial-file"
            assert branch not in load(lake, name_of(ledger.table)).metadata.refs
            continue
        ledger.commit("delete", delete_filter=row_filter, branch=branch)
        assert ledger.paths(branch) == {files[each].path for each in files.keys() - gone}
        rows = sum(files[each].record_count for each in gone)
        said = {"operation": "delete", "deleted-records": str(rows) if gone else None}
        assert ledger.summary("deleted-records", branch=branch) == said


@pytest.mark.nightly
def test_partitions_decide_a_filter_without_bounds(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    engine = ledger.engine()
    files = {part: engine.file(partition={"part": part}) for part in ("a", "b", None)}
    engine.append(*files.values())
    ledger.commit("delete", delete_filter=And(NotNull("part"), NotEqualTo("part", "a")))
    assert ledger.paths() == {files["a"].path, files[None].path}
    with pytest.raises(RequestInvalid, match="not all rows"):
        ledger.commit("delete", delete_filter=And(EqualTo("part", "a"), EqualTo("id", 1)))
    ledger.commit("delete", delete_filter=Or(IsNull("part"), EqualTo("part", "zzz")))
    assert ledger.paths() == {files["a"].path}


@pytest.mark.nightly
def test_a_static_overwrite_replaces_what_matches(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    kept, _ = ledger.append(0, 9, "b"), ledger.append(0, 9, "a")
    engine = ledger.engine()
    new = ledger.file(engine, 20, 29)
    ledger.commit("overwrite", [new], engine, delete_filter=EqualTo("part", "a"))
    assert ledger.paths() == {kept, new.path}
    counts = ("added-data-files", "deleted-data-files", "added-records", "deleted-records", "total-records")
    assert list(ledger.summary(*counts).values()) == ["overwrite", "1", "1", "10", "10", "20"]


def test_a_dynamic_overwrite_replaces_the_partitions_of_its_files(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    kept, _ = ledger.append(0, 9, "b"), ledger.append(0, 9, None)
    engine = ledger.engine()
    new = [ledger.file(engine, 20, 29, part) for part in (None, "c")]
    ledger.commit("overwrite", new, engine, replace_partitions=True)
    assert ledger.paths() == {kept, *(each.path for each in new)}
    assert ledger.summary("replace-partitions") == {"operation": "overwrite", "replace-partitions": "true"}


def test_a_dynamic_overwrite_of_an_unpartitioned_table_replaces_everything(lake: Lake) -> None:
    ledger = Ledger.of(lake, partition_spec=PartitionSpec())
    ledger.append(0, 9)
    engine = ledger.engine()
    new = ledger.file(engine, 20, 29)
    ledger.commit("overwrite", [new], engine, replace_partitions=True)
    assert ledger.paths() == {new.path}


@pytest.mark.nightly
def test_position_deletes_are_committed_and_removed_with_their_partition(
    lake: Lake, protection: dict[str, Any]
) -> None:
    """They are encrypted under the epoch's footer key alone, and rewrapped as data files are."""
    ledger = Ledger.of(lake, **protection)
    partitioned = "partition_spec" not in protection
    first, second = ledger.append(0, 9), ledger.append(10, 19)
    base = ledger.head().snapshot_id
    engine = ledger.engine()
    given = {} if partitioned else {"partition": {}}
    deletes = ledger.deletes(engine, first, second, **given)
    ledger.commit("delete", [deletes], engine, base_snapshot_id=base, command="delete")
    assert ledger.paths(content=1) == {deletes.path} and ledger.paths() == {first, second}
    counts = ("added-delete-files", "added-position-deletes", "total-delete-files")
    assert list(ledger.summary(*counts).values()) == ["delete", "1", "2", "1"]
    if protection:
        lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(ledger.table))
        assert rewrap(lake, name_of(ledger.table))["main"] == 3
        assert ledger.paths(content=1) == {deletes.path}
    ledger.commit("delete", delete_filter=AlwaysTrue())
    assert ledger.paths(content=1) == ledger.paths() == set()


@pytest.mark.nightly
def test_a_row_delta_has_iceberg_s_operations(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path = ledger.append(0, 9)
    for adds, operation in (
        ((True, True), "overwrite"),
        ((False, True), "delete"),
        ((True, False), "append"),
    ):
        engine = ledger.engine()
        added = [ledger.file(engine, 20, 29)] if adds[0] else []
        added += [ledger.deletes(engine, path)] if adds[1] else []
        base = ledger.head().snapshot_id
        ledger.commit("overwrite", added, engine, base_snapshot_id=base, command="merge")
        assert ledger.summary()["operation"] == operation


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, {"encryption.columns": "ids:id"}], ids=str)
def test_rows_are_deleted_from_files_of_an_earlier_partition_spec(
    lake: Lake, properties: dict[str, str]
) -> None:
    """The delete file has the spec and partition of its data files."""
    make_keys(lake, "ids")
    ledger = Ledger.of(lake, properties=properties)
    path = ledger.append(0, 9)
    with lake.catalog().load_table(ledger.table.name()).update_spec() as update:
        update.remove_field("part")
    base = ledger.head().snapshot_id
    for spec_id, partition, rule in ((1, {}, "delete-partition"), (0, {"part": "a"}, None)):
        engine = ledger.engine()
        deletes = ledger.deletes(engine, path, spec_id=spec_id, partition=partition)
        if rule is None:
            ledger.commit("delete", [deletes], engine, base_snapshot_id=base)
        else:
            with pytest.raises(RequestInvalid) as refused:
                ledger.commit("delete", [deletes], engine, base_snapshot_id=base)
            assert refused.value.rule == rule
    assert ledger.paths(content=1) == {deletes.path}


def test_a_delete_file_of_an_earlier_spec_shows_no_column_that_is_encrypted_now(lake: Lake) -> None:
    make_keys(lake, "parts")
    ledger = Ledger.of(lake)
    path = ledger.append(0, 9)
    with lake.catalog().load_table(ledger.table.name()).update_spec() as update:
        update.remove_field("part")
    with lake.catalog().load_table(ledger.table.name()).transaction() as transaction:
        transaction.set_properties({"encryption.columns": "parts:part"})
    engine = ledger.engine()
    deletes = ledger.deletes(engine, path, spec_id=0, partition={"part": "a"})
    with pytest.raises(MetadataTampered) as refused:
        ledger.commit("delete", [deletes], engine, base_snapshot_id=ledger.head().snapshot_id)
    assert refused.value.rule == "new-manifest"


def test_pyiceberg_applies_the_committed_delete_files(lake: Lake) -> None:
    """With real bytes: two of three rows are deleted, by one delete file for two data files."""
    table = make(lake, schema=SCHEMA)
    engine = Engine.begin(lake, name_of(table))
    files = [stored(engine, rows_of(first)) for first in (0, 10)]
    engine.append(*files)
    engine = Engine.begin(lake, name_of(table))
    places = [(files[0].path, 0), (files[0].path, 2), (files[1].path, 1)]
    fields = [("file_path", pa.string(), "2147483546"), ("pos", pa.int64(), "2147483545")]
    schema = pa.schema(
        [pa.field(name, kind, False, {"PARQUET:field_id": number}) for name, kind, number in fields]
    )
    named = {file.path for file in files}
    deletes = stored(
        engine,
        pa.table([pa.array(list(each)) for each in zip(*places, strict=True)], schema=schema),
        content=1,
        referenced_data_files=tuple(sorted(named)),
    )
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    engine.commit(FileCommit("delete", (deletes,), base_snapshot_id=base, command="delete"))
    left = lake.catalog().load_table(table.name()).scan().to_arrow()["id"].to_pylist()
    assert sorted(left) == [1, 10, 12]
    plan = lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()).files.to_pylist()
    applied = {row["file_path"]: [plan[each]["file_path"] for each in row["deletes"] or ()] for row in plan}
    assert applied == {path: [deletes.path] for path in named} | {deletes.path: []}


def rows_of(first: int) -> pa.Table:
    ids = pa.array([first, first + 1, first + 2], pa.int64())
    return pa.table({"id": ids, "part": ["x"] * 3}, schema=SCHEMA.as_arrow())


def stored(engine: Engine, written: pa.Table, **given: Any) -> NewFile:
    """A new Parquet file with these rows."""
    path = engine.path()
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(written, local(path))
    return engine.file(
        path, record_count=written.num_rows, file_size_in_bytes=local(path).stat().st_size, **given
    )


def test_a_wap_id_stages_the_snapshot(lake: Lake) -> None:
    """Write-audit-publish: no branch moves, and what is staged is there to be picked."""
    ledger = Ledger.of(lake, properties={"write.wap.enabled": "true"})
    ledger.append(0, 9)
    head = ledger.head()
    engine = ledger.engine()
    new = ledger.file(engine, 10, 19)
    loaded = engine.commit(FileCommit("append", (new,), wap_id="audit-1"))
    assert ledger.head() == head
    (staged,) = (each for each in loaded.metadata.snapshots if each != head)
    assert staged.parent_snapshot_id == head.snapshot_id
    assert staged.summary is not None and staged.summary.additional_properties["wap.id"] == "audit-1"
    again = engine.commit(FileCommit("append", (new,), wap_id="audit-1"))
    assert len(again.metadata.snapshots) == 2
    move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=staged.snapshot_id)
    lake.services.committer.commit(lake.caller(ALICE), name_of(ledger.table), [], [move])
    assert new.path in ledger.paths()


@pytest.mark.parametrize("version", ["3", "x", ""])
def test_a_format_version_among_properties_is_refused_by_name(lake: Lake, version: str) -> None:
    table = make(lake)
    for change in (
        lambda: lake.services.alterer.alter(
            lake.caller(ALICE), name_of(table), [SetProperty("format-version", version)]
        ),
        lambda: lake.services.committer.commit(
            lake.caller(ALICE), name_of(table), [], [SetPropertiesUpdate(updates={"format-version": version})]
        ),
    ):
        with pytest.raises(UnsupportedFormatVersion) as refused:
            change()
        assert refused.value.rule == "format-version"
    assert "format-version" not in load(lake, name_of(table)).metadata.properties


def test_the_present_format_version_is_not_stored_as_a_property(lake: Lake) -> None:
    table = make(lake)
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), [SetProperty("format-version", "2")])
    metadata = load(lake, name_of(table)).metadata
    assert metadata.format_version == 2 and "format-version" not in metadata.properties


@pytest.mark.nightly
@pytest.mark.parametrize(
    "properties",
    [
        {"encryption.mechanism": "envelope", "write.format.default": "orc"},
        {"encryption.columns": "ids:id", "write.format.default": "orc"},
        {"encryption.columns": "ids:id", "encryption.stock-readers": "true"},
        {
            "encryption.columns": "ids:id",
            "encryption.verify-digest": "always",
            "encryption.footer": "plaintext",
        },
    ],
    ids=str,
)
def test_delete_files_fit_every_kind_of_encryption(lake: Lake, properties: dict[str, str]) -> None:
    """They have the format of the algorithm, and a digest where data files have one."""
    make_keys(lake, "ids")
    ledger = Ledger.of(lake, properties=properties, partition_spec=PartitionSpec())
    given: dict[str, Any] = {
        "file_format": properties.get("write.format.default", "parquet"),
        "sha256": bytes(32),
    }
    engine = ledger.engine()
    data = replace(ledger.file(engine, 0, 9), **given)
    if given["file_format"] == "orc":
        data = replace(data, footer_bytes=None, footer_sha256=None)
    engine.append(data)
    assert settings_of(engine.session.table)["format"] == given["file_format"]
    engine = ledger.engine()
    deletes = ledger.deletes(engine, data.path, partition={}, **given)
    base = ledger.head().snapshot_id
    ledger.commit("delete", [deletes], engine, base_snapshot_id=base, command="delete")
    assert ledger.paths(content=1) == {deletes.path}
    plan = lake.services.planner.plan(
        lake.caller(ALICE), name_of(ledger.table), ScanRequest(columns=("part",))
    )
    (row,) = (each for each in plan.files.to_pylist() if each["content"] == 1)
    assert row["column_keys"] is False and [key["field_ids"] for key in row["keys"]] == [[]]


def _filtered(lake: Lake) -> None:
    """Let Carol write, and filter her rows."""
    resources = {"database": ["db"], "table": ["*"]}
    rows = {
        "users": [CAROL],
        "accesses": [{"type": "select"}],
        "rowFilterInfo": {"filterExpr": "id < 5"},
    }
    filters = policy("rows", resources, {}, policyType=2, rowFilterPolicyItems=[rows])
    lake.set_policies([*standard_policies(), policy("writes", resources, {CAROL: ["update"]}), filters])


def test_a_user_under_a_row_filter_removes_no_rows(lake: Lake, request: pytest.FixtureRequest) -> None:
    """Whole files have rows that they do not see, whatever the condition is."""
    request.addfinalizer(lambda: lake.set_policies(standard_policies()))
    ledger = Ledger.of(lake, partition_spec=PartitionSpec())
    path = ledger.append(0, 9)
    _filtered(lake)
    name, caller = name_of(ledger.table), lake.caller(CAROL, "spark")
    before = load(lake, name).metadata_location
    removals: list[dict[str, Any]] = [
        {"operation": "delete", "delete_filter": AlwaysTrue()},
        {"operation": "overwrite", "delete_filter": AlwaysTrue(), "new": True},
        {"operation": "overwrite", "replace_partitions": True, "new": True},
        {"operation": "overwrite", "deleted_paths": (path,), "new": True, "command": "update"},
        {"operation": "delete", "deletes": True, "command": "delete"},
    ]
    for given in removals:
        engine = Engine.begin(lake, name, CAROL)
        added = [ledger.file(engine, 20, 29)] if given.pop("new", False) else []
        added += [ledger.deletes(engine, path)] if given.pop("deletes", False) else []
        base = load(lake, name).metadata.current_snapshot_id
        with pytest.raises(NotAuthorized) as refusal:
            engine.commit(FileCommit(added=tuple(added), base_snapshot_id=base, schema_id=0, **given), CAROL)
        assert refusal.value.rule == "row-filter", given
    with pytest.raises(NotAuthorized):
        lake.services.whole_files.can_delete(caller, name, AlwaysTrue(), "main", case_sensitive=True)
    assert load(lake, name).metadata_location == before
    engine = Engine.begin(lake, name, CAROL)
    engine.commit(FileCommit("append", (ledger.file(engine, 30, 39),)), CAROL)
    assert path in ledger.paths() and len(ledger.paths()) == 2


@pytest.mark.parametrize("hidden", ["denied", "masked"])
def test_partitions_are_not_replaced_by_values_that_the_user_does_not_see(
    lake: Lake, request: pytest.FixtureRequest, hidden: str
) -> None:
    """Rows that go tell that the table had a row with the value."""
    request.addfinalizer(lambda: lake.set_policies(standard_policies()))
    ledger = Ledger.of(lake)
    ledger.append(0, 9, "a")
    resources = {"database": ["db"], "table": ["*"]}
    writes = policy("writes", resources, {CAROL: ["update"]})
    item: dict[str, Any] = {"users": [CAROL], "accesses": [{"type": "select"}]}
    columns = {**resources, "column": ["part"]}
    mask = {**item, "dataMaskInfo": {"dataMaskType": "MASK"}}
    hides = (
        policy("hides", columns, {}, denyPolicyItems=[item])
        if hidden == "denied"
        else policy("hides", columns, {}, policyType=1, dataMaskPolicyItems=[mask])
    )
    lake.set_policies([*standard_policies(), writes, hides])
    engine = Engine.begin(lake, name_of(ledger.table), CAROL)
    overwrite = FileCommit("overwrite", (ledger.file(engine, 20, 29, "a"),), replace_partitions=True)
    with pytest.raises(NotAuthorized):
        engine.commit(overwrite, CAROL)
    lake.set_policies([*standard_policies(), writes])
    engine.commit(overwrite, CAROL)


def test_a_user_under_a_mask_rewrites_no_files(lake: Lake, request: pytest.FixtureRequest) -> None:
    """The catalog counts the rows of a rewrite, and does not read their values."""
    request.addfinalizer(lambda: lake.set_policies(standard_policies()))
    ledger = Ledger.of(lake)
    path = ledger.append(0, 9, "a")
    resources = {"database": ["db"], "table": ["*"]}
    item = {"users": [CAROL], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": "MASK"}}
    mask = policy("masks", {**resources, "column": ["id"]}, {}, policyType=1, dataMaskPolicyItems=[item])
    unmasked = [*standard_policies(), policy("writes", resources, {CAROL: ["update"]})]
    lake.set_policies([*unmasked, mask])
    engine = Engine.begin(lake, name_of(ledger.table), CAROL)
    base = load(lake, name_of(ledger.table)).metadata.current_snapshot_id
    rewrite = FileCommit("replace", (ledger.file(engine, 0, 9),), (path,), base_snapshot_id=base)
    with pytest.raises(NotAuthorized) as refusal:
        engine.commit(rewrite, CAROL)
    assert refusal.value.rule == "mask" and ledger.paths() == {path}
    lake.set_policies(unmasked)
    engine.commit(rewrite, CAROL)
    assert path not in ledger.paths()

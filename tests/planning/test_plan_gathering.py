"""Small manifests are planned together, and all the same each by its own spec, and each named in errors."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, TimeType

from catalog.planning import gathering
from policy.errors import LocationNotAllowed, MetadataInvalid
from tests.support.attacker import ADDED, EXISTING, Attacker, data_file, entry
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, Lake
from tests.support.plans import calls_to_plan, plan
from tests.support.tables import append_files, make, name_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", DateType()))
BY_DAY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
BY_TIME = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", TimeType()))
NO_TIME = 2**62


def appended(lake: Lake, table: Table, days: list[str], **more: Any) -> list[str]:
    """Files in as many manifests, a day each; their paths."""
    return [path for day in days for path in append_files(lake, name_of(table), partition={"p": day}, **more)]


def planted(
    lake: Lake, table: Table, path: str, day: int, status: ManifestEntryStatus = ADDED, **numbers: int
) -> str:
    """Commit a file behind the catalog's back; its manifest."""
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    file = data_file(f"{attacker.location}/data/{path}", partition=Record(day))
    attacker.commit_behind(*attacker.appending(entry(file, status, **numbers)))
    return attacker.manifests()[-1].manifest_path


@pytest.mark.nightly
@pytest.mark.parametrize("after", [[], ["2026-01-03"]], ids=["last", "between"])
def test_the_manifest_is_named_that_has_the_value_which_cannot_be(lake: Lake, after: list[str]) -> None:
    table = make(lake, schema=BY_TIME, partition_spec=BY_DAY)
    appended(lake, table, ["10:00:00", "11:00:00"])
    manifest = planted(lake, table, "planted.parquet", NO_TIME)
    for number, _ in enumerate(after):
        planted(lake, table, f"{number}.parquet", 7)
    with pytest.raises(MetadataInvalid) as refused:
        plan(lake, table)
    assert (refused.value.path, refused.value.rule) == (manifest, "partition-spec")


def test_the_manifest_is_named_that_has_a_file_without_a_number(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ManifestWriterV2, "prepare_entry", lambda _, entry: entry)
    table = make(lake, schema=SCHEMA, partition_spec=BY_DAY)
    appended(lake, table, ["2026-01-01", "2026-01-02"])
    manifest = planted(lake, table, "planted.parquet", 7, EXISTING)
    planted(lake, table, "other.parquet", 7)
    with pytest.raises(MetadataInvalid) as refused:
        plan(lake, table)
    assert (refused.value.path, refused.value.rule) == (manifest, "sequence-number")


@pytest.mark.nightly
def test_each_file_inherits_from_its_own_manifest(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=BY_DAY)
    appended(lake, table, ["2026-01-01", "2026-01-02", "2026-01-03"])
    planted(lake, table, "old.parquet", 7, EXISTING, sequence_number=2, file_sequence_number=1)
    found = plan(lake, table).files
    numbers = zip(
        found["sequence_number"].to_pylist(), found["file_sequence_number"].to_pylist(), strict=True
    )
    assert sorted(numbers) == [(1, 1), (2, 1), (2, 2), (3, 3)]


def test_a_foreign_path_is_found_in_any_of_them(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=BY_DAY)
    appended(lake, table, ["2026-01-01", "2026-01-02"])
    planted(lake, table, "../../../elsewhere/f.parquet", 7)
    with pytest.raises(LocationNotAllowed):
        plan(lake, table)


@pytest.fixture(params=[3, 1024], ids=["three together", "all together"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many entries go together."""
    monkeypatch.setattr(gathering, "_SMALL", request.param)


@pytest.mark.nightly
@pytest.mark.usefixtures("together")
def test_files_of_several_specs_keep_their_own_partitions(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=BY_DAY)
    first, second = appended(lake, table, ["2026-01-01", "2026-01-02"])
    with lake.catalog().load_table(table.name()).update_spec() as spec:
        spec.remove_field("p").add_field("id", BucketTransform(4), "b")
    (third,) = append_files(lake, name_of(table), partition={"b": 2}, spec_id=1)
    with lake.catalog().load_table(table.name()).update_spec() as spec:
        spec.remove_field("b").add_identity("p")
    shown = {
        row["file_path"]: (row["spec_id"], row["partition"]) for row in plan(lake, table).files.to_pylist()
    }
    assert shown == {
        first: (0, '{"p": "2026-01-01"}'),
        second: (0, '{"p": "2026-01-02"}'),
        third: (1, '{"b": 2}'),
    }
    kept = plan(lake, table, filter=EqualTo("p", "2026-01-02")).files["file_path"].to_pylist()
    assert sorted(kept) == sorted([second, third])


@pytest.mark.nightly
@pytest.mark.usefixtures("together")
def test_deletes_stay_with_their_files(lake: Lake) -> None:
    table = make(lake)
    paths = [path for _ in range(4) for path in append_files(lake, name_of(table))]
    deletes = add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[paths[2]])
    made = plan(lake, table).files.to_pylist()
    found = {row["file_path"]: [made[each]["file_path"] for each in row["deletes"] or []] for row in made}
    assert found == {path: [] for path in paths} | {paths[2]: [deletes], deletes: []}


@pytest.mark.nightly
def test_many_appends_cost_little_more_to_plan_than_few(lake: Lake) -> None:
    calls = []
    for manifests in (2, 12):
        table = make(lake, schema=SCHEMA, partition_spec=BY_DAY)
        appended(lake, table, ["2026-01-01"] * manifests)
        calls.append(calls_to_plan(lake, table, filter=GreaterThan("id", -1)))
    few, many = calls
    assert many < 2 * few

"""Every operation of PyIceberg answers on the service as on a catalog of PyIceberg, with either side's plans.

Each operation works on a new table and answers with what it read. More of what
PyIceberg commits is in `test_http_pyiceberg_commits.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, ViewAlreadyExistsError
from pyiceberg.expressions import EqualTo, GreaterThan, In
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from tests.support.guarded_store import guarded_store
from tests.support.lake import ALICE
from tests.support.service import Service, open_service

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "part", StringType()),
    NestedField(3, "point", StructType(NestedField(4, "x", LongType()))),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
#: The catalogs whose answers are compared: PyIceberg's own, and the service with the plans of either side.
THEIRS = "theirs"
MODES = ("client", "server")


@dataclass
class Place:
    """A namespace of a catalog, and a directory that no table has."""

    catalog: Catalog
    namespace: str
    outside: Path

    def create(self, name: str = "t", **options: Any) -> Table:
        """A new table, partitioned by `part` if nothing else is said."""
        given = {"schema": SCHEMA, "partition_spec": BY_PART, **options}
        return self.catalog.create_table((self.namespace, name), **given)

    def load(self, name: str = "t") -> Table:
        """The table as it is now."""
        return self.catalog.load_table((self.namespace, name))

    def ids(self, **scan: Any) -> list[int]:
        """The ids that a scan reads."""
        return sorted(self.load().scan(**scan).to_arrow()["id"].to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of their ids."""
        return sorted(self.load().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


Operation = Callable[[Place], Any]
OPERATIONS: dict[str, Operation] = {}


def operation(done: Operation) -> Operation:
    """An operation to compare."""
    OPERATIONS[done.__name__] = done
    return done


def rows(*ids: int, part: str = "a") -> pa.Table:
    """Rows of the table."""
    made = [{"id": number, "part": part, "point": {"x": number * 10}} for number in ids]
    return pa.Table.from_pylist(made, schema=SCHEMA.as_arrow())


def _shown(found: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    values = zip(*(found[column].to_pylist() for column in columns), strict=True)
    return sorted(values, key=str)


@operation
def append_overwrite_and_delete(place: Place) -> Any:
    table = place.create()
    table.append(rows(1, 2), snapshot_properties={"by": "me"})
    table.append(rows(3, part="b"))
    table.overwrite(rows(4), overwrite_filter=EqualTo("id", 1))
    table.delete(In("id", [2, 3]))
    return place.rows(), [each.summary.operation for each in place.load().snapshots() if each.summary]


@operation
def upsert_and_dynamic_overwrite(place: Place) -> Any:
    table = place.create()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    done = table.upsert(rows(2, 9, part="c"))
    table.dynamic_partition_overwrite(rows(7, part="b"))
    return place.rows(), done.rows_updated, done.rows_inserted


@operation
def scans(place: Place) -> Any:
    table = place.create()
    for first, part in ((0, "a"), (10, "b"), (20, "a")):
        table.append(rows(*range(first, first + 5), part=part))
    conditions = (
        "part = 'a'",
        "id > 3 and id < 21",
        "part != 'b' or id = 11",
        "point.x in (100, 240)",
        "part is null",
    )
    first, *_, last = (each.snapshot_id for each in place.load().snapshots())
    return (
        [place.ids(row_filter=condition) for condition in conditions],
        place.ids(snapshot_id=first),
        place.load().scan(selected_fields=("point.x",), row_filter="id = 12").to_arrow().to_pylist(),
        place.load().scan(row_filter=GreaterThan("id", 21)).count(),
        place.load().scan(limit=1).to_arrow().num_rows,
        _shown(table.incremental_append_scan(from_snapshot_id_exclusive=first).to_arrow(), "id"),
        _shown(next(iter([place.load().scan(snapshot_id=last).to_arrow()])), "id"),
    )


@operation
def schema_evolution(place: Place) -> Any:
    table = place.create()
    table.append(rows(1))
    with table.update_schema() as change:
        change.add_column("note", StringType(), doc="a note").add_column(("point", "y"), DoubleType())
        change.update_column("id", LongType()).rename_column("part", "region").move_first("note")
    with table.update_schema() as change:
        change.union_by_name(Schema(NestedField(1, "score", DoubleType())))
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("note").make_column_optional("id").set_identifier_fields()
    with table.update_schema() as change:
        change.add_column("note", IntegerType())
    return place.rows(), str(place.load().schema()), len(place.load().schemas())


@operation
def partition_evolution(place: Place) -> Any:
    table = place.create()
    table.append(rows(1, 2))
    with table.update_spec() as change:
        change.add_identity("id").remove_field("part")
    table.refresh()
    table.append(rows(3, 4, part="b"))
    with table.update_spec() as change:
        change.rename_field("id", "number")
    table.refresh()
    table.delete(EqualTo("id", 3))
    found = place.ids(row_filter="id > 1 and part = 'a'"), place.ids(row_filter="id = 4")
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(4), "shard").add_field("part", TruncateTransform(1), "start")
    return found, place.ids(), str(place.load().specs())


@operation
def sort_order_evolution(place: Place) -> Any:
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    table = place.create(sort_order=order)
    table.append(rows(1, 2))
    with table.update_sort_order() as change:
        change.asc("part", IdentityTransform(), NullOrder.NULLS_FIRST)
    table.refresh()
    table.append(rows(3))
    return place.ids(), str(place.load().sort_order()), len(place.load().sort_orders())


@operation
def branches_and_tags(place: Place) -> Any:
    table = place.create()
    table.append(rows(1))
    first = table.metadata.current_snapshot_id
    assert first is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(first, "audit", max_ref_age_ms=10**9, min_snapshots_to_keep=2)
        manage.create_tag(first, "first", max_ref_age_ms=10**9)
    table.append(rows(2), branch="audit")
    table.overwrite(rows(5), branch="audit", overwrite_filter=EqualTo("id", 1))
    table.append(rows(3))
    read = [
        sorted(place.load().scan().use_ref(name).to_arrow()["id"].to_pylist()) for name in ("audit", "first")
    ]
    names = _shown(place.load().inspect.refs(), "name", "type", "max_reference_age_in_ms")
    with table.manage_snapshots() as manage:
        manage.remove_branch("audit").remove_tag("first")
    return read, names, place.ids(), sorted(place.load().refs())


@operation
def rollback_and_expiry(place: Place) -> Any:
    table = place.create()
    for number in (1, 2, 3, 4):
        table.append(rows(number))
    second, third = (place.load().snapshots()[at] for at in (1, 2))
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(third.snapshot_id)
    back = place.ids()
    table.refresh()
    with table.manage_snapshots() as manage:
        manage.rollback_to_timestamp(third.timestamp_ms)
    later = place.ids()
    with table.manage_snapshots() as manage:
        manage.create_tag(second.snapshot_id, "kept")
    table.refresh()
    table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
    return back, later, place.ids(), len(place.load().snapshots()), place.ids(snapshot_id=second.snapshot_id)


@operation
def one_transaction(place: Place) -> Any:
    table = place.create(properties={"old": "x"})
    with table.transaction() as transaction:
        with transaction.update_schema() as change:
            change.add_column("note", StringType())
        transaction.set_properties({"owner": "me"}).remove_properties("old")
        transaction.append(rows(1, 2))
        transaction.delete(EqualTo("id", 2))
    found = place.load()
    return place.rows(), found.properties.get("owner"), found.properties.get("old"), len(found.snapshots())


@operation
def a_table_made_with_its_rows(place: Place) -> Any:
    name = (place.namespace, "t")
    with place.catalog.create_table_transaction(name, SCHEMA, partition_spec=BY_PART) as transaction:
        transaction.append(rows(1, 2))
        with transaction.update_schema() as change:
            change.add_column("note", StringType())
    return place.rows()


@operation
def names(place: Place) -> Any:
    catalog, namespace = place.catalog, place.namespace
    place.create().append(rows(1))
    place.create("u")
    catalog.rename_table((namespace, "u"), (namespace, "v"))
    known = sorted(name for *_, name in catalog.list_tables(namespace))
    catalog.drop_table((namespace, "v"))
    made = catalog.create_table_if_not_exists((namespace, "t"), SCHEMA)
    catalog.update_namespace_properties(namespace, updates={"owner": "me", "team": "us"})
    catalog.update_namespace_properties(namespace, removals={"team"})
    said = catalog.load_namespace_properties(namespace)
    return (
        known,
        catalog.table_exists((namespace, "v")),
        made.scan().count(),
        {name: said.get(name) for name in ("owner", "team")},
        catalog.namespace_exists(namespace),
    )


@operation
def registered_again(place: Place) -> Any:
    table = place.create()
    table.append(rows(1, 2))
    location = place.load().metadata_location
    place.catalog.drop_table((place.namespace, "t"))
    place.catalog.register_table((place.namespace, "t"), location)
    place.load().append(rows(3))
    return place.ids()


@operation
def added_files(place: Place) -> Any:
    table = place.create()
    path = f"{table.location()}/staged/added.parquet"
    with table.io.new_output(path).create(overwrite=True) as file:
        pq.write_table(rows(1, 2).select(["id", "part"]), file)
    table.add_files([path])
    return place.rows(), [name for name in place.load().properties if "mapping" in name]


@operation
def statistics(place: Place) -> Any:
    table = place.create()
    table.append(rows(1))
    snapshot = table.metadata.current_snapshot_id
    assert snapshot is not None
    path = f"{table.location()}/metadata/{snapshot}.stats"
    with table.io.new_output(path).create(overwrite=True) as stored:
        stored.write(b"PFA1")
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1",
        snapshot_id=snapshot,
        sequence_number=1,
        fields=[1],
        properties={"ndv": "1"},
    )
    file = StatisticsFile(
        snapshot_id=snapshot,
        statistics_path=path,
        file_size_in_bytes=4,
        file_footer_size_in_bytes=4,
        blob_metadata=[blob],
    )
    with table.update_statistics() as update:
        update.set_statistics(file)
    known = len(place.load().metadata.statistics)
    with table.update_statistics() as update:
        update.remove_statistics(snapshot)
    return known, len(place.load().metadata.statistics)


@operation
def metadata_tables(place: Place) -> Any:
    table = place.create()
    table.append(rows(1, 2))
    table.append(rows(3, part="b"))
    table.delete(EqualTo("id", 1))
    found = place.load().inspect
    files = ("content", "file_format", "spec_id", "record_count")
    return (
        _shown(found.snapshots(), "operation"),
        _shown(found.history(), "is_current_ancestor"),
        _shown(found.entries(), "status", "sequence_number"),
        _shown(found.refs(), "name", "type"),
        _shown(found.partitions(), "partition", "record_count", "file_count"),
        _shown(found.manifests(), "content", "added_data_files_count", "existing_data_files_count"),
        found.all_manifests().num_rows,
        found.metadata_log_entries().num_rows,
        *(_shown(getattr(found, name)(), *files) for name in ("files", "data_files", "delete_files")),
        *(
            _shown(getattr(found, f"all_{name}")(), *files)
            for name in ("files", "data_files", "delete_files")
        ),
    )


@pytest.fixture(scope="module", params=["disk", pytest.param("s3", marks=pytest.mark.nightly)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose plans of more than two files have plan tasks.

    In S3, clients have the catalog's storage credentials alone.
    """
    root = tmp_path_factory.mktemp("lake")
    if request.param == "disk":
        with open_service(root, PLANNING__ANSWER_FILES="2") as running:
            yield running
        return
    with guarded_store(request.getfixturevalue("moto")) as store:
        settings = {**store.settings(), "PLANNING__ANSWER_FILES": "2"}
        with open_service(root, s3=store.s3, **settings) as running:
            running.client_properties = {}
            yield running


@pytest.fixture(scope="module")
def catalogs(served: Service) -> Iterator[dict[str, Catalog]]:
    """The catalogs whose answers are compared."""
    root = served.lake.root
    theirs = SqlCatalog(THEIRS, uri=f"sqlite:///{root}/theirs.db", warehouse=f"file://{root}/theirs")
    yield {THEIRS: theirs, **{mode: served.iceberg(ALICE, **{"scan-planning-mode": mode}) for mode in MODES}}
    theirs.close()


def _place(catalog: Catalog, tmp_path: Path) -> Place:
    namespace = f"n{uuid4().hex[:12]}"
    catalog.create_namespace(namespace)
    return Place(catalog, namespace, tmp_path)


def _cases() -> Iterator[Any]:
    """The operations; those that other tests carry out as well are left to the night."""
    for done in OPERATIONS.values():
        by_day = done in (schema_evolution, sort_order_evolution, added_files, statistics)
        yield pytest.param(done, marks=() if by_day else pytest.mark.nightly, id=done.__name__)


@pytest.mark.parametrize("done", _cases())
def test_an_operation_answers_as_on_a_catalog_of_pyiceberg(
    catalogs: dict[str, Catalog], tmp_path: Path, done: Operation
) -> None:
    answers = {name: done(_place(catalog, tmp_path)) for name, catalog in catalogs.items()}
    for mode in MODES:
        assert answers[mode] == answers[THEIRS]


def test_files_outside_of_the_allowed_locations_are_not_added(
    catalogs: dict[str, Catalog], tmp_path: Path
) -> None:
    place = _place(catalogs["client"], tmp_path)
    table = place.create()
    pq.write_table(rows(1).select(["id", "part"]), tmp_path / "outside.parquet")
    with pytest.raises(ForbiddenError, match=r"LocationNotAllowed: .*outside\.parquet.*rule=allowed-paths"):
        table.add_files([f"file://{tmp_path}/outside.parquet"])
    assert place.ids() == []


def test_views_are_created_loaded_listed_and_dropped(served: Service, tmp_path: Path) -> None:
    place = _place(served.iceberg(), tmp_path)
    place.create()
    name = (place.namespace, "v")
    query = f"SELECT id FROM {place.namespace}.t"
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=int(time.time() * 1000),
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql=query, dialect="spark")],
        default_namespace=[place.namespace],
    )
    schema = Schema(NestedField(1, "id", IntegerType()))
    place.catalog.create_view(name, schema, version, properties={"team": "us"})
    view = place.catalog.load_view(name)
    assert view.schema().column_names == ["id"] and view.properties["team"] == "us"
    assert [each.sql for each in (one.root for one in view.current_version().representations)] == [query]
    assert place.catalog.list_views(place.namespace) == [name] and place.catalog.view_exists(name)
    with pytest.raises(ViewAlreadyExistsError):
        place.catalog.create_view(name, schema, version)
    place.catalog.drop_view(name)
    assert not place.catalog.view_exists(name) and place.catalog.list_views(place.namespace) == []

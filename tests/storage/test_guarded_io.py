"""pyiceberg through the guarded FileIO: whole tables work, and nothing outside the lists is touched."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputStream, OutputStream
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, clear_manifest_cache
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from catalog.storage.base import Storage
from catalog.storage.errors import ObjectExists, ObjectTooLarge
from catalog.storage.guarded_io import GuardedFileIO, is_metadata_name
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Storage
from policy.errors import LocationNotAllowed, MetadataTampered
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.moto_server import MotoS3, moto_s3

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "team", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "team"))
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "team": ["a", "b/c d%", "b/c d%"]})


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoS3]:
    with moto_s3() as server:
        yield server


class Seals:
    """Digests of whole objects that were stored, and every whole read, compared with them."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.verified: list[str] = []

    def verify(self, path: str, data: bytes) -> None:
        self.verified.append(path)
        if self.digests.get(path) != hashlib.sha256(data).hexdigest():
            raise MetadataTampered("The bytes are not those that were sealed.", path=path, rule="digest")


class RecordingStorage:
    """Passes everything on; keeps the locations it was asked about, and digests of whole objects."""

    def __init__(self, inner: Storage, digests: dict[str, str]) -> None:
        self._inner = inner
        self._digests = digests
        self.touched: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._inner, name)

        def recorded(location: Location, *args: object, **kwargs: object) -> object:
            self.touched.append(location.canonical)
            done = method(location, *args, **kwargs)
            if name == "create" and isinstance(args[0], bytes):
                self._digests[location.canonical] = hashlib.sha256(args[0]).hexdigest()
            return done

        return recorded


class GuardedSqlCatalog(SqlCatalog):
    """pyiceberg's own catalog, made to load and write tables through one guarded FileIO."""

    io: FileIO

    def _load_file_io(self, properties: object = None, location: str | None = None) -> FileIO:
        return self.io


class World:
    """A table's own directory, the guarded FileIO over it, and a catalog that uses it."""

    def __init__(self, storage: Storage, root: str, database: Path) -> None:
        self.root = root
        self.table_root = f"{root}/db/t"
        self.seals = Seals()
        self.storage = RecordingStorage(storage, self.seals.digests)
        self.io = self.io_for()
        self.catalog = GuardedSqlCatalog("test", uri=f"sqlite:///{database}/catalog.db", warehouse=root)
        self.catalog.io = self.io
        self.catalog.create_namespace("db")

    def io_for(self, allowed: list[str] | None = None, **options: int) -> GuardedFileIO:
        return GuardedFileIO(
            self.storage,  # type: ignore[arg-type]
            table="db.t",
            allowed=AllowList.of([self.table_root] if allowed is None else allowed),
            writable=AllowList.of([self.table_root]),
            verify=self.seals.verify,
            **options,
        )

    def table(self) -> Table:
        table = self.catalog.create_table("db.t", SCHEMA, self.table_root, SPEC)
        # pyiceberg loads through `load_file_io` after creating, so the io is put in place by hand
        return Table(table.name(), table.metadata, table.metadata_location, self.io, self.catalog)


@pytest.fixture(params=["file", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    clear_manifest_cache()
    if request.param == "file":
        storage: Storage = LocalStorage()
        root = f"file://{tmp_path}/warehouse"
    else:
        moto: MotoS3 = request.getfixturevalue("moto")
        storage = S3Storage(moto.options)
        root = f"s3://{moto.new_bucket()}/warehouse"
    world = World(storage, root, tmp_path)
    for module in ("pyiceberg.catalog", "pyiceberg.catalog.sql"):
        monkeypatch.setattr(f"{module}.load_file_io", lambda *_, **__: world.io)
    return world


def fresh(table: Table, io: FileIO) -> Table:
    """The table as another process would load it through `io`."""
    clear_manifest_cache()
    metadata = FromInputFile.table_metadata(io.new_input(table.metadata_location))
    return Table(table.name(), metadata, table.metadata_location, io, table.catalog)


def rows_of(table: Table) -> list[tuple[int, str]]:
    found = table.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["team"].to_pylist(), strict=True))


@pytest.mark.nightly
def test_append_overwrite_and_scan(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    table.append(ROWS)
    table.delete("id = 1")
    table = fresh(table, world.io)
    assert rows_of(table) == [(2, "b/c d%"), (2, "b/c d%"), (3, "b/c d%"), (3, "b/c d%")]
    assert table.scan("id = 3", selected_fields=("id",)).to_arrow()["id"].to_pylist() == [3, 3]
    assert table.inspect.files().num_rows == 2


@pytest.mark.nightly
def test_every_metadata_file_is_stored_whole_and_passes_the_hook(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    wanted = {table.metadata_location, snapshot.manifest_list}
    wanted |= {manifest.manifest_path for manifest in snapshot.manifests(world.io)}
    canonical = {Location.parse(path).canonical for path in wanted}
    assert canonical <= set(world.seals.digests)
    world.seals.verified.clear()
    rows_of(fresh(table, world.io))
    assert canonical <= set(world.seals.verified)
    assert not any(path.endswith(".parquet") for path in world.seals.digests)


@pytest.mark.nightly
def test_positional_deletes_are_read_through_the_list(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    path = next(task.file.file_path for task in table.scan("team = 'b/c d%'").plan_files())
    deletes = f"{world.table_root}/data/deletes.parquet"
    with world.io.new_output(deletes).create() as out:
        pq.write_table(pa.table({"file_path": [path], "pos": pa.array([0], pa.int64())}), out)
    _plant(table, world.io, deletes, DataFileContent.POSITION_DELETES)
    assert rows_of(fresh(table, world.io)) == [(1, "a"), (3, "b/c d%")]
    tasks = list(fresh(table, world.io).scan().plan_files())
    assert {d.file_path for task in tasks for d in task.delete_files} == {deletes}


@pytest.mark.nightly
def test_parquet_metadata_through_the_guard(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    path = next(task.file.file_path for task in table.scan().plan_files())
    data_file = parquet_file_to_data_file(world.io, table.metadata, path)
    assert data_file.file_size_in_bytes == len(world.io.new_input(path))


def _plant(table: Table, io: FileIO, path: str, content: DataFileContent) -> None:
    """What a hostile or foreign writer does: a manifest entry for any path it likes."""
    planted = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record("b/c d%"),
        record_count=1,
        file_size_in_bytes=1,
    )
    planted.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(planted)


def test_a_planted_path_is_refused_and_never_touched(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    for foreign in (
        f"{world.root}/db/t10/data/secret.parquet",
        f"{world.root}/db/other/secret.parquet",
        f"{world.table_root}/data/%2e%2e/%2e%2e/other/secret.parquet",
        f"{world.table_root}/../other/secret.parquet",
        "/etc/passwd",
    ):
        table = fresh(table, world.io)
        _plant(table, world.io, foreign, DataFileContent.DATA)
        world.storage.touched.clear()
        with pytest.raises(LocationNotAllowed) as refusal:
            rows_of(fresh(table, world.io))
        assert refusal.value.table == "db.t"
        assert refusal.value.path is not None and refusal.value.path[:8] == foreign[:8]
        assert refusal.value.rule in ("allowed-paths", "location-invalid")
        assert refusal.value.hint
        assert all(path.startswith(f"{world.table_root}/") for path in world.storage.touched)
        table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()


def test_every_way_in_asks_the_list_first(world: World) -> None:
    outside = f"{world.root}/db/other/f.parquet"
    file = world.io.new_output(f"{world.table_root}/x.avro")
    file._location = outside
    uses: list[Callable[[], object]] = [
        lambda: world.io.new_input(outside),
        lambda: world.io.new_output(outside),
        lambda: world.io.delete(outside),
        lambda: world.io.delete(file),
        lambda: file.to_input_file(),
    ]
    for use in uses:
        with pytest.raises(LocationNotAllowed) as refusal:
            use()
        assert (refusal.value.table, refusal.value.path) == ("db.t", outside)
    assert world.storage.touched == []


def test_what_may_be_read_may_not_therefore_be_written(world: World) -> None:
    shared = f"{world.root}/shared"
    world.storage._inner.create(Location.parse(f"{shared}/f.parquet"), b"x")
    io = world.io_for([world.table_root, shared])
    with io.new_input(f"{shared}/f.parquet").open() as stream:
        assert stream.read(9) == b"x"
    for use in (io.new_output, io.delete):
        with pytest.raises(LocationNotAllowed):
            use(f"{shared}/f.parquet")


def test_an_empty_list_reads_nothing(world: World) -> None:
    with pytest.raises(LocationNotAllowed):
        world.io_for([]).new_input(f"{world.table_root}/metadata/x.metadata.json")


def test_tampered_metadata_is_not_handed_out(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    for path in (table.metadata_location, snapshot.manifest_list):
        where = Location.parse(path)
        kept = world.storage._inner.read(where, limit=1 << 20)
        world.storage._inner.delete(where)
        world.storage._inner.create(where, kept + b" ")
        with pytest.raises(MetadataTampered):
            rows_of(fresh(table, world.io))
        world.storage._inner.delete(where)
        world.storage._inner.create(where, kept)
    assert len(rows_of(fresh(table, world.io))) == 3


def test_a_manifest_named_like_a_data_file_does_not_escape_the_hook(world: World) -> None:
    table = world.table()
    table.append(ROWS)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    forged = world.storage._inner.read(Location.parse(snapshot.manifest_list), limit=1 << 20)
    for name in ("list.parquet", "list.orc", "list.puffin", "list"):
        where = Location.parse(f"{world.table_root}/data/{name}")
        world.storage._inner.create(where, forged)
        hostile = snapshot.model_copy(update={"manifest_list": where.canonical})
        clear_manifest_cache()
        with pytest.raises(MetadataTampered):
            hostile.manifests(world.io)


def test_a_data_file_read_as_a_whole_is_bounded(world: World) -> None:
    world.storage._inner.create(Location.parse(f"{world.table_root}/big.parquet"), b"x" * 101)
    with (
        world.io_for(limit=100).new_input(f"{world.table_root}/big.parquet").open() as stream,
        pytest.raises(ObjectTooLarge),
    ):
        stream.read()


def test_metadata_over_the_limit_is_neither_read_nor_written(world: World) -> None:
    io = world.io_for(limit=100)
    path = f"{world.table_root}/metadata/m.avro"
    out = io.new_output(path).create()
    out.write(b"x" * 100)
    with pytest.raises(ObjectTooLarge):
        out.write(b"x")
    out.close()
    assert not io.new_output(path).exists()
    world.storage._inner.create(Location.parse(path), b"x" * 101)
    with pytest.raises(ObjectTooLarge):
        io.new_input(path).open()


def test_overwrite_is_not_honoured(world: World) -> None:
    for name in ("m.avro", "f.parquet"):
        file = world.io.new_output(f"{world.table_root}/{name}")
        with file.create() as out:
            out.write(b"first")
        with pytest.raises(ObjectExists), file.create(overwrite=True) as out:
            out.write(b"second")
        assert len(file) == len(file.to_input_file()) == 5


def test_a_failed_block_stores_nothing(world: World) -> None:
    path = f"{world.table_root}/metadata/m.avro"

    def half() -> None:
        with world.io.new_output(path).create() as out:
            out.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert not world.io.new_input(path).exists()
    assert world.seals.digests == {}


def test_delete_of_a_missing_file_is_fine(world: World) -> None:
    with world.io.new_output(f"{world.table_root}/f.parquet").create() as out:
        out.write(b"x")
    world.io.delete(world.io.new_input(f"{world.table_root}/f.parquet"))
    world.io.delete(f"{world.table_root}/f.parquet")
    assert not world.io.new_input(f"{world.table_root}/f.parquet").exists()


def test_streams_follow_the_protocols(world: World) -> None:
    for name in ("m.avro", "f.parquet"):
        with world.io.new_output(f"{world.table_root}/{name}").create() as out:
            assert isinstance(out, OutputStream)
            out.write(b"x")
        with world.io_for().new_input(f"{world.table_root}/{name}").open() as stream:
            assert isinstance(stream, InputStream)
            assert stream.read(1) == b"x"


def test_compressed_metadata_is_verified_too(world: World) -> None:
    path = Location.parse(f"{world.table_root}/metadata/00000-x.gz.metadata.json")
    world.storage._inner.create(path, gzip.compress(b"{}"))
    with pytest.raises(MetadataTampered):
        FromInputFile.table_metadata(world.io.new_input(path.canonical))


def test_a_link_inside_the_table_is_refused_in_a_scan(tmp_path: Path, world: World) -> None:
    if world.root.startswith("s3"):
        pytest.skip("an object store has no links")
    table = world.table()
    table.append(ROWS)
    data = Path(next(task.file.file_path for task in table.scan().plan_files()).removeprefix("file://"))
    shutil.copy(data, tmp_path / "elsewhere.parquet")
    data.unlink()
    os.symlink(tmp_path / "elsewhere.parquet", data)
    with pytest.raises(LocationNotAllowed) as refusal:
        rows_of(fresh(table, world.io))
    assert refusal.value.rule == "no-links"


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("00001-x.metadata.json", True),
        ("00001-x.gz.metadata.json", True),
        ("snap-1.avro", True),
        ("f.parquet", False),
        ("f.avro.parquet", False),
        ("000000_0", False),
    ],
)
def test_names_of_metadata(name: str, metadata: bool) -> None:
    assert is_metadata_name(name) is metadata

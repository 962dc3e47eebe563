"""Plans from stored manifests are those from decoded ones, and check what these check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan

from catalog.base.identifiers import TableName
from catalog.crypto.secret import SecretBytes
from catalog.iceberg.manifests import CacheFiles, ManifestCache, ranges, stored
from catalog.planning.gathering import data_of
from catalog.planning.prune import Pruner
from catalog.planning.request import ScanRequest
from catalog.storage.base import Storage
from policy.errors import LocationNotAllowed, MetadataTampered
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import ENCRYPTED, Engine, make, name_of, ten_ids

#: Files of each of three manifests; a range has eight.
_FILES = 20
_FILTERS = [
    AlwaysTrue(),
    EqualTo("id", 255),
    And(GreaterThanOrEqual("id", 150), LessThan("id", 230)),
    EqualTo("name", "0000000000000100"),
    LessThan("id", -1),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(tmp_path_factory.mktemp("lake").resolve()) as opened:
        opened.catalog().create_namespace("db")
        yield opened


@pytest.fixture(scope="module", params=["plaintext", "encrypted"])
def table(request: pytest.FixtureRequest, lake: Lake) -> TableName:
    properties = ENCRYPTED if request.param == "encrypted" else {}
    name = name_of(make(lake, properties=properties))
    for manifest in range(3):
        engine = Engine.begin(lake, name)
        engine.append(*(engine.file(**ten_ids(10 * (manifest * _FILES + i))) for i in range(_FILES)))
    return name


@pytest.fixture
def storing(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ManifestCache:
    """Every manifest is stored, in ranges of eight entries."""
    monkeypatch.setattr(ranges, "RANGE_ROWS", 8)
    monkeypatch.setattr(stored, "RANGE_ROWS", 8)
    cache = ManifestCache(0, CacheFiles(tmp_path, lambda: SecretBytes(bytes(32))), stored_from=0)
    monkeypatch.setattr(lake.services.reader, "cache", cache)
    return cache


def planned(lake: Lake, table: TableName, row_filter: BooleanExpression) -> pa.Table:
    request = ScanRequest(filter=row_filter)
    files = lake.services.planner.plan(lake.caller(ALICE, "spark"), table, request).files
    return files.drop_columns("keys")


def opened(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names the manifests that are read from now on."""
    seen: list[str] = []
    storage: Storage = lake.services.reader._storage
    read = storage.read

    def noted(location: Location, **options: int) -> bytes:
        if "-m0" in location.canonical:
            seen.append(location.canonical)
        return read(location, **options)

    monkeypatch.setattr(storage, "read", noted)
    return seen


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("row_filter", _FILTERS, ids=str)
def test_a_plan_is_the_same(
    lake: Lake, table: TableName, row_filter: BooleanExpression, request: pytest.FixtureRequest
) -> None:
    expected = planned(lake, table, row_filter)
    request.getfixturevalue("storing")
    for _ in range(3):
        assert planned(lake, table, row_filter).to_pylist() == expected.to_pylist()


def test_manifests_that_the_filter_leaves_out_are_not_read(
    lake: Lake, table: TableName, storing: ManifestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(lake, table, AlwaysTrue())
    governed = lake.services.loader.load(table).governed
    read = opened(lake, monkeypatch)
    assert planned(lake, table, EqualTo("id", 255)).num_rows == 1
    # Sealed bounds are not in the statistics of ranges.
    assert len(set(read)) == (3 if governed.spec.encrypts else 1)


def test_a_manifest_that_was_edited_is_refused_although_it_is_stored(
    lake: Lake, table: TableName, storing: ManifestCache
) -> None:
    planned(lake, table, AlwaysTrue())
    loaded = lake.services.loader.load(table)
    snapshot = loaded.metadata.current_snapshot()
    assert snapshot is not None
    [last, *_] = lake.services.reader.manifests(loaded, snapshot)
    file = Path(last.manifest_path.removeprefix("file://"))
    sealed = file.read_bytes()
    file.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    try:
        with pytest.raises(MetadataTampered):
            planned(lake, table, EqualTo("id", 455))
    finally:
        file.write_bytes(sealed)


@pytest.mark.parametrize("listed_directories", [True, False])
def test_every_path_of_a_manifest_that_is_left_out_is_checked(
    lake: Lake,
    table: TableName,
    storing: ManifestCache,
    listed_directories: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list was narrowed: files that the filter leaves out are outside of it."""
    if not listed_directories:
        monkeypatch.setattr(stored, "_MAX_DIRECTORIES", 0)
    planned(lake, table, AlwaysTrue())
    loaded = lake.services.loader.load(table)
    metadata = loaded.metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    reader = lake.services.reader
    listed = reader.manifests(loaded, snapshot)
    pruner = Pruner(metadata.schema(), metadata.specs(), LessThan("id", -1))
    for _ in range(2):
        list(data_of(reader, loaded, listed, pruner.keeps_ranges))
    allowed = AllowList.of([f"{metadata.location}/metadata"])
    narrowed = replace(loaded, governed=replace(loaded.governed, allowed=allowed))
    for _ in range(2):
        with pytest.raises(LocationNotAllowed, match="outside of the table"):
            list(data_of(reader, narrowed, listed, pruner.keeps_ranges))

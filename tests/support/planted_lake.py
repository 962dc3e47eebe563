"""A lake with violations that standard tools planted, and what an audit has to say of each table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, clear_manifest_cache
from pyiceberg.types import LongType

from spark_ext.demo.attacker import flipped, in_place_of
from tests.support.attacker import OWN_ROWS, Attacker, data_file, entry, local, new_id, relisted, sql, updates
from tests.support.lake import ALICE, Lake

_DROP = "DELETE FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
_RENAME = "UPDATE iceberg_tables SET table_name = 'alone' WHERE table_namespace = ? AND table_name = ?"
#: Long before the time from which on files are garbage.
_LONG_AGO = 1_000_000_000


@dataclass
class PlantedLake:
    """A namespace in which violations are planted.

    Attributes:
        lake: the catalog.
        namespace: the namespace.
        expected: the rules that an audit names, each with the table.
    """

    lake: Lake
    namespace: str
    expected: set[tuple[str, str]] = field(default_factory=set)

    def make(self, name: str, *rules: str, location: str | None = None) -> Attacker:
        """Make a plaintext table with a file, and expect these rules."""
        catalog = self.lake.catalog(ALICE)
        full = f"{self.namespace}.{name}"
        catalog.create_table(full, OWN_ROWS.schema, location=location).append(OWN_ROWS)
        return self.expect(name, *rules)

    def expect(self, name: str, *rules: str) -> Attacker:
        """Expect rules of a table; returns who attacks it."""
        self.expected |= {(rule, name) for rule in rules}
        clear_manifest_cache()
        return Attacker(self.lake, f"{self.namespace}.{name}", ALICE)

    def behind(
        self, name: str, rule: str, make: Callable[[Attacker], DataFile], *, deletes: bool = False
    ) -> None:
        """Commit a file past the catalog, so that the table is unsealed and breaks the rule."""
        attacker = self.make(name, "unsealed-metadata", rule)
        attacker.commit_behind(*attacker.appending(entry(make(attacker)), deletes=deletes))

    def run(self, statement: str, name: str) -> None:
        """Run a statement on the database that names a table by namespace and name."""
        sql(self.lake, statement, self.namespace, name)


def copied(
    attacker: Attacker, rows: pa.Table = OWN_ROWS, *, suffix: str = "parquet", ids: bool = True
) -> str:
    """Write another file with ids of columns beside the data files of a table."""
    path = Path(local(attacker.data_paths()[0])).parent / f"copy-{uuid4().hex}.{suffix}"
    fields = [each.with_metadata({"PARQUET:field_id": str(i)}) for i, each in enumerate(rows.schema, 1)]
    fields = fields if ids else list(rows.schema)
    pq.write_table(pa.table(rows.columns, schema=pa.schema(fields)), path)
    return f"file://{path}"


def plant(planted: PlantedLake) -> None:
    """Plant what takes plaintext tables alone."""
    _plant_pointers(planted)
    _plant_metadata(planted)
    _plant_files(planted)
    _plant_entries(planted)
    _plant_places(planted)


def _plant_pointers(planted: PlantedLake) -> None:
    planted.make("no_pointer", "pointer-missing")
    planted.run(_DROP, "no_pointer")
    planted.make("before", "pointer-missing")
    planted.run(_RENAME, "before")
    planted.expected.add(("ungoverned", "alone"))
    rolled = planted.make("rolled_back", "unsealed-metadata")
    rolled.point(rolled.metadata.metadata_log[-1].metadata_file)
    other = planted.make("other_uuid", "unsealed-metadata", "wrong-uuid")
    other.point(other.write_metadata(other.metadata.model_copy(update={"table_uuid": uuid4()})))
    for name, rule, old, new in (
        ("garbled", "invalid-metadata", "}", ""),
        ("version_3", "format-version", '"format-version":2', '"format-version":3,"next-row-id":0'),
        ("lost_tag", "broken-ref", '"refs":{', '"refs":{"lost":{"snapshot-id":7,"type":"tag"},'),
    ):
        attacker = planted.make(name, "unsealed-metadata", rule)
        path = attacker.write_metadata(attacker.metadata)
        local(path).write_text(local(path).read_text().replace(old, new))
        attacker.point(path)


def _plant_metadata(planted: PlantedLake) -> None:
    gone = planted.make("no_metadata", "metadata-missing")
    local(gone.pointer()).unlink()
    edited = planted.make("edited", "seal-broken")
    edited.edit(edited.pointer(), lambda data: data.replace(b'"refs"', b'"Refs"'))
    manifest = planted.make("edited_manifest", "seal-broken")
    manifest.edit(manifest.manifests()[0].manifest_path, flipped)
    lost = planted.make("no_manifest", "metadata-missing")
    local(lost.manifests()[0].manifest_path).unlink()
    unsealed = planted.make("no_seal", "seal-missing")
    path = unsealed.manifests()[0].manifest_path
    sql(planted.lake, "DELETE FROM lw_sealed_file WHERE path = ?", path)
    counts = planted.make("counts", "unsealed-metadata", "manifest-record")
    snapshot_id = new_id()
    listed = relisted(counts.manifests()[0], added_files_count=9)
    counts.commit_behind(*updates(counts.snapshot([listed], snapshot_id)))


def _plant_files(planted: PlantedLake) -> None:
    missing = planted.make("missing", "file-missing")
    local(missing.data_paths()[0]).unlink()
    longer = planted.make("longer", "file-size")
    longer.edit(longer.data_paths()[0], lambda data: data + b"more")
    linked = planted.make("linked", "file-link")
    path = local(linked.data_paths()[0])
    aside = planted.lake.root / f"aside-{uuid4().hex}"
    shutil.move(path, aside)
    path.symlink_to(aside)
    orphaned = planted.make("orphaned", "orphan-files")
    orphan = local(f"{orphaned.location}/data/orphan.parquet")
    orphan.write_bytes(b"1234")
    os.utime(orphan, (_LONG_AGO, _LONG_AGO))


def _plant_entries(planted: PlantedLake) -> None:
    victim = planted.make("victim")
    secret = victim.data_paths()[0]
    planted.behind("foreign", "foreign-path", lambda _: data_file(secret))
    planted.behind("relative", "invalid-path", lambda _: data_file("data/a.parquet"))
    planted.behind(
        "avro",
        "unsupported-file",
        lambda each: data_file(copied(each, suffix="avro"), file_format=FileFormat.AVRO),
    )
    twice = planted.make("twice", "unsealed-metadata", "listed-twice")
    again = entry(data_file(copied(twice)))
    twice.commit_behind(*twice.appending(again, again))
    planted.behind("rows", "wrong-statistics", lambda each: data_file(copied(each), record_count=3))
    high = {1: to_bytes(LongType(), 5)}
    planted.behind("bounds", "wrong-statistics", lambda each: data_file(copied(each), lower_bounds=high))
    planted.behind(
        "nulls", "wrong-statistics", lambda each: data_file(copied(each), null_value_counts={1: 2})
    )
    planted.behind("no_parquet", "damaged-file", _text)
    nameless = pa.table({"id": OWN_ROWS["id"]})
    planted.behind("no_ids", "unknown-columns", lambda each: data_file(copied(each, nameless, ids=False)))
    texts = pa.table({"id": OWN_ROWS["name"]})
    planted.behind("types", "wrong-columns", lambda each: data_file(copied(each, texts)))
    planted.behind(
        "equality",
        "delete-file",
        lambda each: data_file(copied(each), content=DataFileContent.EQUALITY_DELETES, equality_ids=[77]),
        deletes=True,
    )


def _text(attacker: Attacker) -> DataFile:
    path = copied(attacker)
    local(path).write_bytes(b"no Parquet file, but long enough to be one")
    return data_file(path)


def _plant_places(planted: PlantedLake) -> None:
    outer = planted.make("outer", "overlap")
    planted.make("inner", "overlap", location=f"{outer.location}/inner")
    victim = Attacker(planted.lake, f"{planted.namespace}.victim", ALICE)
    reader = planted.make("reader", "path-in-other-table")
    reader.commit_properties({"read.allowed.data.paths": f"{reader.location},{victim.location}"})
    reader.commit(*reader.appending(entry(data_file(victim.data_paths()[0]))))


def of_another_algorithm(data: bytes) -> bytes:
    """The bytes of an encrypted file, whose footer names the other algorithm of Parquet."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert data[start : start + 2] == b"\x1c\x1c"
    return data[: start + 1] + b"\x2c" + data[start + 2 :]


def replace_by_plaintext(path: Path) -> None:
    """Put a plaintext file of the same length in the place of an encrypted one."""
    original, plain = path.read_bytes(), path.with_suffix(".plain")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), plain)
    content = plain.read_bytes()
    plain.unlink()
    path.write_bytes(in_place_of(original, content))

"""Tables as the audit of files takes them, and good files of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from catalog.base.identifiers import TableName
from catalog.iceberg.manifests import decode_manifest, decode_manifest_list, inherit
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.files import FileCheck
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.slices import Slice
from spark_ext.pipelines.items import Finding
from tests.support.lake import Lake

Listed = tuple[Slice, pa.Table]


def audited(lake: Lake, name: str) -> Listed:
    """A table by its dotted name, and the entries of its current snapshot."""
    loaded = lake.services.loader.load(TableName(tuple(name.split(".")[:-1]), name.split(".")[-1]))
    metadata = loaded.metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    entries = []
    for listed in decode_manifest_list(_bytes(snapshot.manifest_list), path="list", format_version=2):
        decoded = decode_manifest(_bytes(listed.manifest_path), path="manifest")
        found = inherit(decoded, listed)
        for column in decoded.statistics.column_names:
            found = found.append_column(column, decoded.statistics[column])
        entries.append(found.drop_columns(["partition"]))
    state = {"table": name, "table-uuid": str(metadata.table_uuid)}
    current = metadata.schema()
    others = (each for each in metadata.schemas if each.schema_id != current.schema_id)
    return Slice(Facts(state), {}, (current, *others), ()), pa.concat_tables(entries)


def found(listed: Listed, verify: float = 1.0) -> list[Finding]:
    """What the audit finds in the files of entries."""
    part, entries = listed
    result = Partial(part.facts.table)
    FileCheck(Looking(verify=verify), part).check(entries, entries, result)
    assert result.counts["opened"] == entries.num_rows
    return result.findings


def path_of(listed: Listed, row: int = 0) -> Path:
    """Where a file lies."""
    return Path(listed[1]["file_path"][row].as_py().removeprefix("file://"))


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    """A file with other bytes, and then as it was."""
    good = path.read_bytes()
    path.write_bytes(change(good))
    try:
        yield
    finally:
        path.write_bytes(good)


def _bytes(location: str) -> bytes:
    return Path(location.removeprefix("file://")).read_bytes()

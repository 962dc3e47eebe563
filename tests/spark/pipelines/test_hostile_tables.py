"""Hostile metadata and manifests: what they hide, and what they do to the audit of other tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    clear_manifest_cache,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table

from catalog.client import thrift
from catalog.client.thrift import Struct
from spark_ext.pipelines.audit.catalogs import OtherCatalog
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.job import _surveyed, _walked
from spark_ext.pipelines.audit.listing import compare
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.orc_footers import _columns
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.protobuf import Message
from spark_ext.pipelines.audit.rows import Kind, texts
from spark_ext.pipelines.items import Finding
from tests.support.attacker import local
from tests.support.vectors import each_row

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})
SNAPSHOT = 777
Document = dict[str, Any]


@dataclass
class Two:
    """A good table and a base of hostile ones, as another catalog has them."""

    good: Table
    base: Table
    facts: Facts

    def of(self, location: str) -> Facts:
        """What is known of the table whose pointer names this metadata."""
        return Facts({**self.facts.state, "table": "hostile", "metadata-location": location})

    def edited(self, change: Callable[[Document], object]) -> Facts:
        """The table with other metadata."""
        document = json.loads(local(self.base.metadata_location).read_text())
        change(document)
        path = local(self.base.metadata_location).with_name("hostile.metadata.json")
        path.write_text(json.dumps(document))
        return self.of(f"file://{path}")

    def listing(self, *manifests: list[DataFile], twice: bool = False) -> Facts:
        """The table with a single snapshot, of these manifests, each listed once or twice."""
        io, at = PyArrowFileIO(), f"{self.base.location()}/metadata"
        made = []
        for number, listed in enumerate(manifests):
            output = io.new_output(f"{at}/hostile-{number}.avro")
            output.create(overwrite=True).close()
            with write_manifest(2, self.base.spec(), self.base.schema(), output, SNAPSHOT, "null") as writer:
                for each in listed:
                    writer.add_entry(
                        ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=each)
                    )
            made.append(writer.to_manifest_file())
        with write_manifest_list(2, io.new_output(f"{at}/list.avro"), SNAPSHOT, None, 9, "null") as writer:
            writer.add_manifests(made * (1 + twice))

        def single(document: Document) -> None:
            (*_, last) = document["snapshots"]
            last |= {"snapshot-id": SNAPSHOT, "manifest-list": f"{at}/list.avro", "sequence-number": 9}
            document |= {"snapshots": [last], "current-snapshot-id": SNAPSHOT, "last-sequence-number": 9}
            document |= {"refs": {"main": {"snapshot-id": SNAPSHOT, "type": "branch"}}, "snapshot-log": []}

        clear_manifest_cache()
        return self.edited(single)

    def file(self, **changes: Any) -> DataFile:
        """A data file of the base, with other values in its entry."""
        (manifest, *_) = self.base.current_snapshot().manifests(self.base.io)  # type: ignore[union-attr]
        (listed,) = manifest.fetch_manifest_entry(self.base.io)
        names = [each.name for each in DataFile.__fields__] if hasattr(DataFile, "__fields__") else []
        known = {name: getattr(listed.data_file, name) for name in names or _NAMES}
        return DataFile.from_args(**{**known, **changes})

    def findings(self, hostile: Facts) -> list[Finding]:
        """What is found of a hostile table that one task audits between two good ones, which stay good."""
        parts = audited([self.of_good("first"), hostile, self.of_good("last")])
        for name in ("first", "last"):
            assert (parts[name].findings, parts[name].failed) == ([], [])
            assert parts[name].counts["opened"] == 1
        assert parts["hostile"].failed == []
        return parts["hostile"].findings

    def of_good(self, name: str) -> Facts:
        return Facts({**self.facts.state, "table": name})


_NAMES = (
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "value_counts",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
)


def audited(tables: list[Facts]) -> dict[str, Partial]:
    """The steps of the Spark job, in this process: one task has all tables."""
    looking = Looking()
    rows = [texts(Kind.TABLE, each.table, [json.dumps(each.document())]) for each in tables]
    parts: dict[str, Partial] = {}
    for batch in compare(looking, _walked(looking, _surveyed(looking, rows))):
        for text in batch["text"].to_pylist():
            part = Partial.from_json(text)
            parts.setdefault(part.table, Partial(part.table)).merge(part)
    return parts


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("ns")
    made = {name: catalog.create_table(f"ns.{name}", ROWS.schema) for name in ("good", "base")}
    for each in made.values():
        each.append(ROWS)
    other = OtherCatalog("ns.good", {"name": "c", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"})
    (item,) = other.items(None)  # type: ignore[arg-type]
    yield Two(**made, facts=Facts(item.payload))
    catalog.close()


def test_an_entry_that_lies_is_found_beside_one_of_the_same_file_that_does_not(two: Two) -> None:
    truth, lie = two.file(), two.file(file_size_in_bytes=5, record_count=9)
    respelled = two.file(file_path=truth.file_path.replace("file:///", "file:/"), file_size_in_bytes=5)
    assert two.findings(two.listing([truth])) == []
    for manifests in ([[lie, truth]], [[truth, lie]], [[lie], [truth]], [[respelled, truth]]):
        found = two.findings(two.listing(*manifests))
        assert {each.rule for each in found} - {"listed-twice"} == {"file-size"}, manifests


def test_a_file_or_manifest_that_is_listed_twice_is_found(two: Two) -> None:
    (found,) = two.findings(two.listing([two.file(), two.file()]))
    assert (found.rule, found.path) == ("listed-twice", two.file().file_path)
    (found,) = two.findings(two.listing([two.file()], twice=True))
    assert (found.rule, found.snapshot) == ("listed-twice", SNAPSHOT)


def test_large_footers_are_parsed_one_at_a_time(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A footer of zeros costs nothing to store, and some hundred times its size to parse."""
    running: list[int] = []
    most = 0

    def counted(data: bytes, shape: object = None) -> tuple[Struct, int]:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        time.sleep(0.02)
        running.pop()
        raise thrift.Malformed("a hostile footer")

    monkeypatch.setattr(thrift, "read", counted)
    first = local(two.file().file_path)
    footer = bytes(1 << 20)
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    paths = [first.with_name(f"hostile-{number}.parquet") for number in range(8)]
    for path in paths:
        path.write_bytes(content)
    listed = [two.file(file_path=f"file://{path}", file_size_in_bytes=len(content)) for path in paths]
    parts = audited([two.listing(listed)])
    assert [each.rule for each in parts["hostile"].findings] == ["damaged-file"] * 8
    assert most == 1


def statistics(size: object) -> Callable[[Document], object]:
    return lambda document: document.update(
        statistics=[
            {
                "snapshot-id": document["current-snapshot-id"],
                "statistics-path": f"{document['location']}/metadata/s.puffin",
                "file-size-in-bytes": size,
                "file-footer-size-in-bytes": 4,
                "blob-metadata": [],
            }
        ]
    )


def tagged(name: str, snapshot: object) -> Callable[[Document], object]:
    return lambda document: document["refs"].update({name: {"snapshot-id": snapshot, "type": "tag"}})


def listed_at(path: str) -> Callable[[Document], object]:
    return lambda document: document["snapshots"][0].update({"manifest-list": path})


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (statistics(2**70), "file-missing"),
        (statistics(-(2**70)), "file-missing"),
        (tagged("t", 2**70), "broken-ref"),
        (tagged("t", str(2**70)), "broken-ref"),
        (tagged("\x1b[31m" + "r" * 1_000_000, 7), "broken-ref"),
        (tagged("half \ud800", 7), "invalid-metadata"),
        (listed_at("file:///half\ud800"), "invalid-metadata"),
        (listed_at("s3://AKIA:hunter2@bucket/list.avro"), "invalid-path"),
        (listed_at("s3://bucket/" + "x" * 1_000_000), "invalid-path"),
    ],
)
def test_hostile_metadata_is_a_finding_that_can_be_recorded_and_hides_no_other_table(
    two: Two, change: Callable[[Document], object], rule: str
) -> None:
    (found,) = two.findings(two.edited(change))
    assert found.rule == rule
    assert found.snapshot is None or found.snapshot < 2**63
    text = json.dumps(asdict(found), ensure_ascii=False)
    assert len(text.encode()) < 10_000
    assert "hunter2" not in text


def _field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: bytes with their length before them."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    assert size < 1 << 14
    return bytes([number << 3 | 2]) + length + content


@each_row("digits", ["9" * 11, "9" * 5_000])
def test_a_field_id_of_many_digits_in_an_orc_footer_is_none(digits: str) -> None:
    """Attack: Python refuses to convert thousands of digits, which would end the audit of all tables."""
    said = [_field(7, _field(1, b"iceberg.id") + _field(2, text.encode())) for text in ("7", digits)]
    struct = _field(4, b"\x08\x0c\x12\x02\x01\x02\x1a\x01a\x1a\x01b")
    kinds = struct + b"".join(_field(4, b"\x08\x04" + each) for each in said)
    assert [each.field_id for each in _columns(Message(kinds))] == [7, None]

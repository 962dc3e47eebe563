"""A wrong guess where entries start changes nothing of what a manifest says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.iceberg.avro.record_starts import guessed_starts
from catalog.iceberg.manifests import decode_manifest
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import container, entry_bytes, entry_schema, field, text

PATH = "s3://lake/t/metadata/m.avro"
NAMES = [f"s3://lake/t/data/{number:040}" for number in range(50)]


def paths_in(entries: list[bytes]) -> pa.ChunkedArray:
    """The paths of a manifest of one block."""
    schema = entry_schema(field("key_metadata", 131, "bytes"))
    decoded = decode_manifest(container(schema, [(len(entries), b"".join(entries))]), path=PATH)
    return decoded.entries["file_path"]


def entry(path: str, status: int = 1, key_metadata: bytes = b"") -> bytes:
    """An entry of the manifest."""
    return entry_bytes(text(key_metadata), path=path, status=status)


def starts_of(entries: list[bytes]) -> list[int]:
    """Where the entries start."""
    return [sum(map(len, entries[:number])) for number in range(len(entries))]


def guess(entries: list[bytes]) -> list[int] | None:
    """Where they are guessed to start."""
    block = b"".join(entries)
    return guessed_starts(block, 0, len(block), len(entries))


def test_entries_that_begin_alike_are_found() -> None:
    entries = [entry(name) for name in NAMES]
    assert guess(entries) == starts_of(entries)
    assert paths_in(entries).to_pylist() == NAMES


def test_entries_that_begin_differently_are_read_one_after_the_other() -> None:
    entries = [entry(name, number % 3) for number, name in enumerate(NAMES)]
    assert guess(entries) is None
    assert paths_in(entries).to_pylist() == NAMES


def test_bytes_that_look_like_the_beginning_of_an_entry_hide_no_entry() -> None:
    first = entry(NAMES[0])
    names = ["s3://l/a" if number == 7 else name for number, name in enumerate(NAMES)]
    entries = [entry(name, key_metadata=first if number == 3 else b"") for number, name in enumerate(names)]
    guessed = guess(entries)
    assert guessed is not None and guessed != starts_of(entries)
    assert paths_in(entries).to_pylist() == names


def test_entries_that_begin_alike_and_are_cut_are_refused() -> None:
    entries = [entry(name) for name in NAMES]
    entries[-1] = entries[-1][:-1]
    assert guess(entries) == starts_of(entries)
    with pytest.raises(MetadataInvalid):
        paths_in(entries)


def test_more_entries_than_begin_alike_are_not_guessed() -> None:
    assert guess([entry(name) for name in NAMES[:3]] + [b"\x02"]) is None

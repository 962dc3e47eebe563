"""Whatever an allowed list lets through names, to every reader, something inside of the list.

A short run is part of the tests; a long one is `make fuzz`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.locations.readers import FAMILIES, Opened, Reader, area, inside
from tests.locations.spellings import ENTRIES, odd_paths, paths

pytestmark = pytest.mark.nightly

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "locations.json").read_text())
# The long run's profile asks for more.
examples = settings(
    max_examples=max(300, settings.default.max_examples),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def strays(readers: Mapping[str, Reader], entry: str, path: str) -> dict[str, object]:
    """The readers that leave the entry by the path, with what they open."""
    found = {}
    for name, reader in readers.items():
        areas = [area(reader, each) for each in (entry, Location.parse(entry).canonical)]
        for opened in {reader(each) for each in (path, Location.parse(path).canonical)}:
            if not any(inside(each, opened) for each in areas):
                found[name] = (areas, opened)
    return found


def test_no_reader_leaves_an_entry_by_a_path_of_the_vectors(readers):
    granted = [(e, c["path"]) for c in VECTORS["cases"] if c["allowed"] for e in c["entries"]]
    within = [(e, p) for e, p in granted if Location.parse(e).contains(Location.parse(p))]
    assert len(within) > 350
    assert [(e, p, out) for e, p in within if (out := strays(readers, e, p))] == []


@examples
@given(entry=st.sampled_from(ENTRIES), data=st.data())
def test_no_reader_leaves_an_entry_by_an_invented_path(readers, entry, data):
    path = data.draw(paths(entry))
    granted = AllowList.of([entry]).decide(path).allowed
    event(f"granted: {granted}")
    if granted:
        assert strays(readers, entry, path) == {}, ascii(path)


@examples
@given(entry=st.sampled_from(ENTRIES), data=st.data())
def test_an_odd_but_legal_path_is_granted_and_stays_inside(readers, entry, data):
    path = data.draw(odd_paths(entry))
    assert AllowList.of([entry]).decide(path).allowed, ascii(path)
    assert strays(readers, entry, path) == {}, ascii(path)


@pytest.mark.parametrize(
    ("reader", "entry", "path"),
    [
        ("hadoop", "s3://bucket/wh/t1", "s3://bucket/wh/t1/../t2/f"),
        ("java uri", "hdfs://nn:8020/wh/t1", "hdfs://nn:8020/wh/t1/%2e%2e/t2/f"),
        ("pyarrow", "gs://bucket/wh/t1", "gs://bucket/wh/t1/a%2F..%2F..%2Ft2/f"),
        (
            "pyarrow",
            "abfss://data@acme.dfs.core.windows.net/wh",
            "abfss://other@acme.dfs.core.windows.net/wh/f",
        ),
        ("pyiceberg, pyarrow", "s3://bucket/wh/t1", "s3://bucket/wh/t2?/wh/t1/f"),
        ("pyiceberg, pyarrow", "s3://bucket/wh/t1", "s3://bucket/wh/t1/.\t./t2/f"),
        ("pyiceberg, fsspec", "file:///wh/t1", "file:///wh/t1/../t2/f"),
        ("boto3", "s3://bucket/wh/t1", "s3://other/wh/t1/f"),
        ("iceberg", "oss://bucket/wh/t1", "oss://bucket/wh/t2#/wh/t1/f"),
        ("url", "hdfs://nn:8020/wh/t1", "hdfs://nn:8021/wh/t1/f"),
    ],
)
def test_the_readers_see_what_is_hostile(readers, reader, entry, path):
    """Without this, a reader that answers anything would prove everything."""
    assert not inside(area(readers[reader], entry), readers[reader](path))


def test_every_reader_answers_for_each_scheme_that_it_serves(readers):
    serves = {
        "pyarrow": {"s3", "gs", "abfs", "file"},
        "pyiceberg, fsspec": {"s3", "gs", "abfs", "file"},
        "boto3": {"s3"},
    }
    serves["pyiceberg, pyarrow"] = set(FAMILIES.values()) - {"abfs", "wasb"}
    serves["iceberg"] = set(FAMILIES.values()) - {"hdfs", "viewfs", "file"}
    for name in ("hadoop", "java uri", "url"):
        serves[name] = set(FAMILIES.values())
    for name, families in serves.items():
        answered = {
            FAMILIES[each.partition(":")[0]]
            for each in ENTRIES
            if isinstance(readers[name](f"{each}/f"), Opened)
        }
        assert answered == families, name

"""The engine's own containment check answers as the catalog's does: by shared vectors and by invention."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.location.allow_list import AllowList
from policy.location.location import shown
from tests.locations.spellings import ENTRIES, odd_paths, paths
from tests.support.jvm import Texts
from tests.support.spark import SparkLake

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "locations.json").read_text())


class EngineCheck:
    """The check in the JVM."""

    def __init__(self, spark_lake: SparkLake) -> None:
        gateway = spark_lake.spark.sparkContext._gateway
        self._jvm = gateway.jvm
        self._texts = Texts(gateway)

    def decide(self, entries: Sequence[str], paths: Sequence[str]) -> list[bool]:
        """For each path, whether it may be read."""
        check = self._jvm.org.apache.spark.sql.lakewarden.read.AllowedPaths.decideAll
        return [bool(each) for each in check(self._texts(entries), self._texts(paths))]

    def shown(self, path: str) -> str:
        """The path as messages have it."""
        return str(self._jvm.org.apache.spark.sql.lakewarden.read.AllowedPaths.shown(path))

    def knows(self, character: str) -> bool:
        """Whether the JVM's Unicode tables have it."""
        return self._jvm.java.lang.Character.getType(ord(character)) != 0


@pytest.fixture(scope="module")
def engine(spark_lake: SparkLake) -> EngineCheck:
    return EngineCheck(spark_lake)


def test_every_vector_of_allowed_lists_is_answered_alike(engine):
    by_entries = defaultdict(list)
    for case in VECTORS["cases"]:
        by_entries[tuple(case["entries"])].append(case)
    for entries, cases in by_entries.items():
        answers = engine.decide(entries, [case["path"] for case in cases])
        assert [
            case for case, allowed in zip(cases, answers, strict=True) if case["allowed"] != allowed
        ] == []
    assert len(VECTORS["cases"]) > 1500


def test_every_vector_of_single_locations_is_answered_alike(engine):
    for case in VECTORS["canonical"]:
        below = f"{case['canonical']}/f" if case["canonical"] else "s3://bucket/f"
        if case["canonical"] is None:
            assert not engine.decide(["s3://bucket", "file:///a"], [case["text"]])[0], case
            with pytest.raises(Exception, match="LocationInvalid"):
                engine.decide([case["text"]], [])
        else:
            assert engine.decide([case["text"]], [below]) == [True], case


def test_an_empty_list_allows_nothing(engine):
    assert engine.decide([], ["s3://bucket/a", "file:///a/b"]) == [False, False]


@pytest.mark.parametrize(
    "path",
    [
        "s3://id:secret@bucket/a",
        "s3:/id:secret@bucket/a",
        "s3:///id:secret@bucket/a",
        "s3:id:se/cret@bucket/a",
        "s3:\\\\id:secret@bucket/a",
        "//id:secret@bucket/a",
        "jdbc:postgresql://id:secret@host/a",
        "file:/a/10:30@b/../c",
        "abfss://data@acme.blob.core.windows.net/a/../b",
    ],
)
def test_refused_paths_are_shown_as_the_catalog_shows_them(engine, path):
    assert engine.shown(path) == shown(path)
    assert "cret" not in engine.shown(path)


_PATHS = st.sampled_from(ENTRIES).flatmap(lambda entry: paths(entry) | odd_paths(entry))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    entries=st.lists(st.sampled_from(ENTRIES), min_size=3, max_size=12),
    column=st.lists(_PATHS, min_size=20, max_size=60),
)
def test_invented_paths_are_answered_alike(engine, entries, column):
    catalog = AllowList.of(entries)
    theirs = [catalog.decide(path).allowed for path in column]
    for path, ours, expected in zip(column, engine.decide(entries, column), theirs, strict=True):
        # Stricter only where the JVM's Unicode tables lack a character.
        stricter = expected and not ours and not all(map(engine.knows, path))
        assert ours == expected or stricter, ascii(path)


def test_what_the_engine_cannot_fold_it_refuses(engine):
    # U+1DFFF is not assigned in any version of Unicode so far; the catalog lets it pass as a name.
    path = "s3://bucket/wh/t1/\U0001dfff"
    assert AllowList.of(["s3://bucket/wh/t1"]).decide(path).allowed
    assert engine.decide(["s3://bucket/wh/t1"], [path]) == [False]

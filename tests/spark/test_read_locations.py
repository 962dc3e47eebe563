"""The engine's own containment check answers as the catalog's does: by shared vectors and by invention."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.allowlist import AllowList
from tests.support.spark import SparkLake

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "locations.json").read_text())


class EngineCheck:
    """The check in the JVM; texts go there as JSON, since py4j cannot send half of a surrogate pair."""

    def __init__(self, spark_lake: SparkLake) -> None:
        self._jvm = spark_lake.spark.sparkContext._jvm
        self._mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._list = self._jvm.java.lang.Class.forName("java.util.List")

    def decide(self, entries: Sequence[str], paths: Sequence[str]) -> list[bool]:
        """For each path, whether it may be read."""
        check = self._jvm.org.apache.spark.sql.lakewarden.read.AllowedPaths.decideAll
        return [bool(each) for each in check(self._texts(entries), self._texts(paths))]

    def knows(self, character: str) -> bool:
        """Whether the JVM's Unicode tables have it."""
        return self._jvm.java.lang.Character.getType(ord(character)) != 0

    def _texts(self, texts: Sequence[str]):
        return self._mapper.readValue(json.dumps(list(texts)), self._list)


@pytest.fixture(scope="module")
def engine(spark_lake: SparkLake) -> EngineCheck:
    return EngineCheck(spark_lake)


def test_every_vector_of_allowed_lists_is_answered_alike(engine):
    wrong = [
        case
        for case in VECTORS["cases"]
        if engine.decide(case["entries"], [case["path"]]) != [case["allowed"]]
    ]
    assert wrong == []
    assert len(VECTORS["cases"]) > 400


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


# Pieces that readers decode, cut, fold or resolve.
_PIECES = [
    "/", "//", "a", "t1", "data", ".", "..", "%2e", "%2E%2e", "%252e", "%u002e", "%2f", "%2F", "%5c", "\\",
    "%00", "%0a", "\n", " ", "+", "%20", ";", "{", "}", ",", "?", "#", "%3F", "%23", "@", ":", "C:", "%",
    "%zz", "%c3%a9", "%c0%ae", "é", "e\u0301", "．", "／", "\u2044", "\u200d", "\ufeff", "\ufb01",
    "👩\u200d🚀", "\ud800", "東京", "\u00a0", "=", "p=1", "~", "-", "_", "x" * 260,
]  # fmt: skip
_TEXT = st.one_of(st.sampled_from(_PIECES), st.characters(), st.text(max_size=3))
_STARTS = ["s3://bucket/wh/t1", "s3a://bucket/wh/t1", "s3n://bucket/wh/t1/", "file:///wh/t1", "file:/wh/t1", "S3://",
           "s3://", "file://", "file://localhost/wh/t1", "s3://BUCKET/wh/t1", "/wh/t1", ""]  # fmt: skip
_PATHS = st.builds(
    lambda start, pieces: start + "".join(pieces), st.sampled_from(_STARTS), st.lists(_TEXT, max_size=7)
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(paths=st.lists(_PATHS, min_size=50, max_size=200))
def test_invented_paths_are_answered_alike(engine, paths):
    entries = ["s3://bucket/wh/t1", "file:///wh/t1"]
    catalog = AllowList.of(entries)
    theirs = [catalog.decide(path).allowed for path in paths]
    for path, ours, expected in zip(paths, engine.decide(entries, paths), theirs, strict=True):
        stricter = expected and not all(engine.knows(character) for character in path)
        assert ours == expected or (stricter and not ours), ascii(path)


def test_what_the_engine_cannot_fold_it_refuses(engine):
    # U+1DFFF is not assigned in any version of Unicode so far; the catalog lets it pass as a name.
    path = "s3://bucket/wh/t1/\U0001dfff"
    assert AllowList.of(["s3://bucket/wh/t1"]).decide(path).allowed
    assert engine.decide(["s3://bucket/wh/t1"], [path]) == [False]

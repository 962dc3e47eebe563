"""The engine lets pass what the catalog spells canonically and allows: by shared vectors and by invention."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.errors import LocationInvalid
from policy.location import spelling
from policy.location.allow_list import AllowList
from policy.location.location import Location
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

    def check(self, entries: Sequence[str], path: str) -> None:
        """Raises for a path outside."""
        read = self._jvm.org.apache.spark.sql.lakewarden.read
        to_seq = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq
        read.AllowedPaths.of(to_seq(list(entries))).check(path, "lake.db.t")

    def knows(self, character: str) -> bool:
        """Whether the JVM's Unicode tables have it."""
        return self._jvm.java.lang.Character.getType(ord(character)) != 0


@pytest.fixture(scope="module")
def engine(spark_lake: SparkLake) -> EngineCheck:
    return EngineCheck(spark_lake)


def canonical(text: str) -> str | None:
    """The catalog's spelling; None if it refuses the text."""
    try:
        return Location.parse(text).canonical
    except LocationInvalid:
        return None


def respelled(texts: Iterable[str]) -> list[str]:
    """The spellings of the texts that are locations."""
    return [each for each in map(canonical, texts) if each is not None]


def expected(entries: Sequence[str], paths: Sequence[str]) -> list[bool]:
    """Which paths are canonical, and inside by the catalog's answer."""
    allowed = AllowList.of(entries)
    return [canonical(path) == path and allowed.decide(path).allowed for path in paths]


def test_every_vector_of_allowed_lists_is_answered_alike(engine):
    by_entries = defaultdict(list)
    for case in VECTORS["cases"]:
        by_entries[tuple(respelled(case["entries"]))].append(case)
    for entries, cases in by_entries.items():
        given = [case["path"] for case in cases]
        assert engine.decide(entries, given) == expected(entries, given)
        spelled = [canonical(path) or path for path in given]
        assert engine.decide(entries, spelled) == [case["allowed"] for case in cases]
    assert len(VECTORS["cases"]) > 1500


def test_every_vector_of_single_locations_is_canonical_or_refused(engine):
    for case in VECTORS["canonical"]:
        if case["canonical"] == case["text"]:
            assert engine.decide([case["text"]], [f"{case['text']}/f"]) == [True], case
        else:
            assert engine.decide(["s3://bucket", "file:///a"], [case["text"]]) == [False], case
        if case["canonical"] not in (case["text"], None):
            with pytest.raises(Exception, match="LocationInvalid"):
                engine.decide([case["text"]], [])


@pytest.mark.nightly
def test_an_empty_list_allows_nothing(engine):
    assert engine.decide([], ["s3://bucket/a", "file:///a/b"]) == [False, False]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "path", ["s3://id:secret@bucket/a", "s3:/id:secret@bucket/a", "//id:secret@bucket/a"]
)
def test_a_path_that_is_not_canonical_is_not_shown(engine, path):
    with pytest.raises(Exception, match="LocationNotAllowed") as refusal:
        engine.check(["s3://bucket"], path)
    assert "cret" not in str(refusal.value)


_PATHS = st.sampled_from(ENTRIES).flatmap(lambda entry: paths(entry) | odd_paths(entry))


@pytest.mark.nightly
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    entries=st.lists(st.sampled_from(respelled(ENTRIES)), min_size=3, max_size=12),
    invented=st.lists(_PATHS, min_size=20, max_size=60),
)
def test_invented_paths_are_answered_alike(engine, entries, invented):
    column = [*invented, *respelled(invented)]
    answers = zip(column, engine.decide(entries, column), expected(entries, column), strict=True)
    for path, ours, theirs in answers:
        # Stricter only where the JVM's Unicode tables lack a character.
        stricter = theirs and not ours and not all(map(engine.knows, path))
        assert ours == theirs or stricter, ascii(path)


@pytest.mark.nightly
def test_what_the_engine_cannot_fold_it_refuses(engine):
    # U+1DFFF is not assigned in any version of Unicode so far; the catalog lets it pass as a name.
    path = "s3://bucket/wh/t1/\U0001dfff"
    assert AllowList.of(["s3://bucket/wh/t1"]).decide(path).allowed
    assert engine.decide(["s3://bucket/wh/t1"], [path]) == [False]


@given(st.lists(_PATHS, max_size=30))
def test_a_plan_spells_every_location_canonically(invented):
    valid = [each for each in invented if canonical(each) and Location.parse(each).name]
    spelled = spelling.respelled(pa.chunked_array([pa.array(valid, pa.string())])).to_pylist()
    assert spelled == [None if canonical(each) == each else canonical(each) for each in valid]

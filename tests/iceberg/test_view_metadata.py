"""View metadata after sequences of commits, compared with a small model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewMetadata, ViewVersion

from catalog.iceberg import view_metadata
from catalog.iceberg.view_metadata import ViewUpdate, changed, current_version, empty_view, present, texts
from policy.errors import InvalidInput
from policy.location.location import Location

_UPDATE: TypeAdapter[ViewUpdate] = TypeAdapter(ViewUpdate)
_TYPES = (LongType(), StringType())
_ALLOWED = {view_metadata.DROP_DIALECT: "true"}

Texts = tuple[tuple[str, str], ...]


@dataclass
class Model:
    """What a view is: the definitions that it had, each once, and the one that is read.

    Attributes:
        kept: how many definitions it keeps.
        current: the place of the one that is read, in `known`.
        known: the definitions that were ever added, in their order.
        log: the places that were current, one for each change.
    """

    kept: int
    current: int = -1
    known: list[tuple[Texts, int]] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)
    log: list[int] = field(default_factory=list)

    def replace(self, definition: tuple[Texts, int]) -> None:
        places = [at for at, each in enumerate(self.known) if each == definition and at not in self.forgotten]
        if not places:
            self.known.append(definition)
        self.make_current(places[0] if places else len(self.known) - 1, added=not places)

    def make_current(self, at: int, *, added: bool = False) -> None:
        if at != self.current:
            self.log.append(at)
        self.current = at
        must = {at} | ({len(self.known) - 1} if added else set())
        others = [each for each in range(len(self.known)) if each not in self.forgotten | must]
        room = max(self.kept, len(must)) - len(must)
        self.forgotten |= set(others[: max(len(others) - room, 0)])
        gone = [place for place, each in enumerate(self.log) if each in self.forgotten]
        self.log = self.log[gone[-1] + 1 :] if gone else self.log


def _schema(kind: int) -> Schema:
    return Schema(NestedField(3, "c", _TYPES[kind], required=False), schema_id=9)


def _version(given_texts: Texts, **more: Any) -> ViewVersion:
    representations = [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in given_texts]
    return ViewVersion.model_validate(
        {"schema-id": 7, "representations": representations, "default-namespace": ["n"], **more}
    )


def _update(**update: Any) -> ViewUpdate:
    return _UPDATE.validate_python({key.replace("_", "-"): value for key, value in update.items()})


_DEFINITIONS = st.tuples(
    st.dictionaries(st.sampled_from(["spark", "trino"]), st.sampled_from("abc"), min_size=1).map(
        lambda found: tuple(sorted(found.items()))
    ),
    st.sampled_from([0, 1]),
)
_STEPS = st.lists(st.one_of(_DEFINITIONS, st.integers(1, 12), st.none()), max_size=12)


@settings(max_examples=60, deadline=None)
@given(kept=st.integers(1, 4), first=_DEFINITIONS, steps=_STEPS)
def test_replacements_keep_the_versions_of_the_model(kept: int, first: Any, steps: list[Any]) -> None:
    model = Model(kept)
    properties = {view_metadata.HISTORY: str(kept), **_ALLOWED}
    base = empty_view("00000000-0000-0000-0000-000000000001", Location.parse("s3://b/v"))
    model.replace(first)
    updates = view_metadata.first_version(_schema(first[1]), _version(first[0]), properties)
    metadata = changed(base, updates, 1_000, "n.v")
    # The clock of another replica can be behind.
    for now_ms, step in zip([500, *range(2_000, 3_000)], steps, strict=False):
        if step is None:
            update = _update(action="set-properties", updates={"p": "q"})
            metadata = changed(metadata, [update], now_ms, "n.v")
        elif isinstance(step, int):
            update = _update(action="set-current-view-version", view_version_id=step)
            if step > len(model.known) or step - 1 in model.forgotten:
                with pytest.raises(InvalidInput):
                    changed(metadata, [update], now_ms, "n.v")
                continue
            model.make_current(step - 1)
            metadata = changed(metadata, [update], now_ms, "n.v")
        else:
            model.replace(step)
            updates = view_metadata.next_version(_schema(step[1]), _version(step[0]))
            metadata = changed(metadata, updates, now_ms, "n.v")
        _compare(metadata, model)


def _compare(metadata: ViewMetadata, model: Model) -> None:
    kept = {at + 1: each for at, each in enumerate(model.known) if at not in model.forgotten}
    assert {each.version_id: texts(each) for each in metadata.versions} == {
        id_: dict(definition) for id_, (definition, _) in kept.items()
    }
    types = {each.schema_id: each.fields[0].field_type for each in metadata.schemas}
    for each in metadata.versions:
        assert types[each.schema_id] == _TYPES[kept[each.version_id][1]]
    assert set(types) == {each.schema_id for each in metadata.versions}
    assert metadata.current_version_id == model.current + 1
    assert [each.version_id - 1 for each in metadata.version_log] == model.log
    times = [each.timestamp_ms for each in metadata.version_log]
    assert times == sorted(times)
    shown = present(metadata)
    assert shown.versions == [current_version(metadata)] and len(shown.schemas) == len(shown.version_log) == 1


def test_a_change_of_the_schema_alone_is_a_version() -> None:
    base = empty_view("00000000-0000-0000-0000-000000000001", Location.parse("s3://b/v"))
    text: Texts = (("spark", "a"),)
    one = changed(base, view_metadata.first_version(_schema(0), _version(text), {}), 1, "n.v")
    two = changed(one, view_metadata.next_version(_schema(1), _version(text)), 2, "n.v")
    assert (two.current_version_id, len(two.versions), len(two.schemas)) == (2, 2, 2)
    assert two.versions[1].summary["operation"] == "replace"

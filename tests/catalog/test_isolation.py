"""Statements that overlap in any order leave what a model of their isolation levels says."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from catalog.writes.new_files import Isolation
from tests.support.lake import Lake
from tests.support.row_changes import Ledger
from tests.support.row_statements import Begun, Row, Rows, Statement

PARTS = st.sampled_from(["a", "b"])
LEVELS = st.sampled_from([None, Isolation.SERIALIZABLE, Isolation.SNAPSHOT])
CHANGES = st.builds(
    Statement,
    st.sampled_from(["update", "update", "delete"]),
    PARTS,
    st.none() | st.sampled_from([2, 5, 100]),
    merge_on_read=st.booleans(),
    level=LEVELS,
)
CONDITIONAL = st.builds(Statement, st.just("truncate"), PARTS, level=LEVELS | st.just(Isolation.NONE))
COMPACT = st.builds(Statement, st.just("compact"), PARTS)
#: `make fuzz` runs more of them.
PROFILE = settings(
    max_examples=max(2, settings.default.max_examples // 25),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)


@st.composite
def inserting(draw: st.DrawFn) -> Statement:
    part = draw(PARTS)
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    rows: tuple[Row, ...] = tuple((each, part, 0) for each in ids)
    kind: Any = draw(st.sampled_from(["insert", "insert", "overwrite", "partitions"]))
    level = None if kind == "insert" else draw(LEVELS | st.just(Isolation.NONE))
    return Statement(kind, part, rows=rows, level=level)


STATEMENTS = CHANGES | CHANGES | inserting() | CONDITIONAL | COMPACT


@given(data=st.data())
@PROFILE
def test_overlapping_statements_are_isolated(lake: Lake, data: st.DataObject) -> None:
    """Each step begins a statement, or commits one that began at an earlier state."""
    rows = Rows(Ledger.of(lake))
    for part in ("a", "b"):
        assert rows.finish(rows.begin(Statement("insert", part, rows=((1, part, 0), (4, part, 0)))))
    under_way: list[Begun] = []
    for _ in range(8):
        if under_way and data.draw(st.booleans()):
            begun = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            note(f"{begun.statement}: {rows.finish(begun)}")
        else:
            under_way.append(rows.begin(data.draw(STATEMENTS)))
    for begun in under_way:
        note(f"{begun.statement}: {rows.finish(begun)}")
    rows.check_history()

"""Numbers of distinct values in the database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import uuid4

from sqlalchemy import Engine, insert

from catalog.db.engine import write
from catalog.db.schema import lw_table
from catalog.state import distinct_counts


def test_counts_of_a_table_at_the_same_time_follow_one_another(engine: Engine) -> None:
    table_id, columns, starts = str(uuid4()), range(1, 9), Barrier(4)
    names = {"catalog": "lake", "namespace": "db", "name": table_id, "owner": "ann", "location": "file:///x"}
    states = {"default_location": True, "state": "active", "created_ms": 0}
    with write(engine) as connection:
        connection.execute(insert(lw_table).values(id=table_id, table_uuid=str(uuid4()), **names, **states))

    def count(number: int, column: int) -> None:
        starts.wait(60)
        distinct_counts.keep(engine, table_id, number, {column: number, 100: number}, 0)

    with ThreadPoolExecutor(4) as pool:
        for column in columns:
            list(pool.map(count, range(4), [column] * 4))
    found = distinct_counts.known(engine, table_id, [*columns, 100])
    assert found.keys() == {*columns, 100}
    assert set(found.values()) <= set(range(4))

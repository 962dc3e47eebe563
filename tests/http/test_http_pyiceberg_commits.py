"""Every operation of a standard pyiceberg client that commits, over the running service.

Walt has the `select` and `update` permissions on tables and no others; Alice creates tables and rolls back.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.expressions import EqualTo, In
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.lake import ALICE, policy, standard_policies, tables
from tests.support.service import Service, open_service

WALT = "walt"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    identifier_field_ids=[],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one more user, who updates tables and alters none."""
    updates = policy("walt-updates", tables("*"), {WALT: ["select", "update"]})
    with open_service(tmp_path_factory.mktemp("lake"), policies=[*standard_policies(), updates]) as running:
        yield running


@dataclass
class History:
    """One table and what the two do to it."""

    service: Service
    namespace: str

    def create(self, spec: PartitionSpec = BY_PART, **properties: str) -> Table:
        """Create the table; answers with Walt's view of it."""
        self.service.iceberg().create_table(
            (self.namespace, "t"), SCHEMA, partition_spec=spec, properties=properties
        )
        return self.table()

    def table(self, user: str = WALT) -> Table:
        """The table as it is now, for a user."""
        return self.service.iceberg(user).load_table((self.namespace, "t"))

    def ids(self, snapshot_id: int | None = None) -> list[int]:
        """The ids in the table, at a snapshot if one is named."""
        return sorted(self.table().scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())

    def branch(self, name: str) -> list[int]:
        """The ids at a branch or tag."""
        return self.ids(self.table().refs()[name].snapshot_id)

    def snapshots(self) -> list[int]:
        """The ids of the snapshots, oldest first."""
        return [each.snapshot_id for each in self.table().snapshots()]


@pytest.fixture
def history(served: Service, namespace: str) -> History:
    return History(served, namespace)


def rows(*ids: int, part: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [part] * len(ids)})


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, MERGING], ids=["fast", "merging"])
def test_appends(history: History, properties: dict[str, str]) -> None:
    table = history.create(**properties)
    for number in range(1, 6):
        table.append(rows(number, part="ab"[number % 2]))
    assert history.ids() == [1, 2, 3, 4, 5]
    assert len(history.table().inspect.manifests()) == (1 if properties else 5)


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, MERGING], ids=["fast", "merging"])
def test_rows_and_partitions_are_deleted(history: History, properties: dict[str, str]) -> None:
    table = history.create(**properties)
    table.append(rows(1, 2, 3))
    table.append(pa.concat_tables([rows(4, 5), rows(6, 7, part="b")]))
    table.delete(EqualTo("id", 2))
    assert history.ids() == [1, 3, 4, 5, 6, 7]
    table.delete(EqualTo("part", "a"))
    assert history.ids() == [6, 7]
    table.append(rows(8))
    table.delete(In("id", (6, 8)))
    assert history.ids() == [7]
    table.delete()
    assert history.ids() == []


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, MERGING], ids=["fast", "merging"])
def test_overwrites(history: History, properties: dict[str, str]) -> None:
    table = history.create(**properties)
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.append(rows(4))
    table.overwrite(rows(10), overwrite_filter=EqualTo("id", 1))
    assert history.ids() == [2, 3, 4, 10]
    table.overwrite(rows(11))
    assert history.ids() == [11]


@pytest.mark.nightly
def test_partitions_are_overwritten_dynamically(history: History) -> None:
    table = history.create(**MERGING)
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.append(rows(4, part="c"))
    table.dynamic_partition_overwrite(pa.concat_tables([rows(9), rows(8, part="c")]))
    assert history.ids() == [3, 8, 9]


@pytest.mark.nightly
def test_rows_are_upserted(history: History) -> None:
    table = history.create()
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    done = table.upsert(pa.concat_tables([rows(2, part="c"), rows(9)]), join_cols=["id"])
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert history.ids() == [1, 2, 3, 9]


@pytest.mark.nightly
def test_one_transaction_has_many_snapshots(history: History) -> None:
    table = history.create()
    with table.transaction() as transaction:
        transaction.append(rows(1, 2))
        transaction.delete(EqualTo("id", 1))
        transaction.append(rows(3))
    assert history.ids() == [2, 3]
    assert len(history.snapshots()) == 3


@pytest.mark.nightly
def test_branches_are_written_tagged_and_published(history: History) -> None:
    table = history.create()
    table.append(rows(1))
    with table.manage_snapshots() as manage:
        manage.create_branch(history.snapshots()[-1], "audit").create_tag(history.snapshots()[-1], "first")
    table.append(rows(2), branch="audit")
    table.delete(EqualTo("id", 1), branch="audit")
    assert (history.ids(), history.branch("audit"), history.branch("first")) == ([1], [2], [1])
    table.refresh()
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(ref_name="audit")
    assert history.ids() == [2]
    with history.table(ALICE).manage_snapshots() as manage:
        manage.remove_branch("audit").remove_tag("first")
    assert set(history.table().refs()) == {"main"}


@pytest.mark.nightly
def test_staged_snapshot_is_published(history: History) -> None:
    table = history.create()
    table.append(rows(1))
    table.append(rows(2), branch=None)
    assert history.ids() == [1]
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(history.snapshots()[-1])
    assert history.ids() == [1, 2]


@pytest.mark.nightly
def test_snapshots_expire(history: History) -> None:
    table = history.create(**MERGING)
    for number in range(1, 5):
        table.append(rows(number))
    table.delete(EqualTo("id", 2))
    table.maintenance.expire_snapshots().by_ids(history.snapshots()[:3]).commit()
    assert history.ids() == [1, 3, 4]
    table.append(rows(5))
    assert history.ids() == [1, 3, 4, 5]


@pytest.mark.nightly
def test_rollback_takes_the_alter_permission(history: History) -> None:
    table = history.create()
    table.append(rows(1))
    table.append(rows(2))
    first = history.snapshots()[0]
    with pytest.raises(ForbiddenError, match="alter"), table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    assert history.ids() == [1, 2]
    with history.table(ALICE).manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    history.table().append(rows(3))
    assert history.ids() == [1, 3]


@pytest.mark.nightly
def test_specs_change_between_writes(history: History) -> None:
    table = history.create(**MERGING)
    table.append(rows(1, 2))
    with history.table(ALICE).update_spec() as change:
        change.add_identity("id")
    table.refresh()
    table.append(rows(3, 4))
    table.delete(EqualTo("id", 2))
    table.delete(EqualTo("id", 3))
    assert history.ids() == [1, 4]


@pytest.mark.nightly
def test_writers_of_one_branch_and_of_two_all_succeed(history: History) -> None:
    table = history.create(**{"commit.retry.num-retries": "50", "commit.retry.min-wait-ms": "5"})
    table.append(rows(0))
    with table.manage_snapshots() as manage:
        manage.create_branch(history.snapshots()[-1], "b")

    def write(number: int) -> None:
        history.table().append(rows(number), branch="b" if number % 2 else "main")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 9)))
    assert history.ids() == [0, 2, 4, 6, 8]
    assert history.branch("b") == [0, 1, 3, 5, 7]

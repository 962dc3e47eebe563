"""A stage without Spark: the catalog's side of the story, which is where most of its checks are."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from pyiceberg.manifest import clear_manifest_cache
from rich.console import Console

from catalog.authorize import Caller
from catalog.guarded import GuardedCatalog
from catalog.identifiers import TableName
from catalog.planning.plan import ScanRequest
from policy.principal import Principal
from spark_ext.demo.attacker import local
from spark_ext.demo.flights import unpack
from spark_ext.demo.lake import Lake, open_lake
from spark_ext.demo.people import ENGINE, MALLORY, OLGA
from spark_ext.demo.screen import Screen
from spark_ext.demo.stage import FLIGHTS, OWN_ROWS, PICKS, Stage

ROWS = 1_000


class CatalogAlone:
    """Answers the statements of the story that are about Mallory's table as an engine without checks would.

    It reads what the catalog plans, so a check that is missing in the catalog is missing.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def sql(self, who: str, statement: str) -> list[tuple[object, ...]]:
        """The answer to a count, or to a change of a property."""
        caller = Caller(Principal(who), Principal(ENGINE), uuid4().hex)
        count = re.fullmatch(r"SELECT count\(\*\) FROM lake\.(\w+)\.(\w+)", statement)
        if count is not None:
            return [(self._count(caller, TableName((count[1],), count[2])),)]
        alter = re.fullmatch(r"ALTER TABLE lake\.(\S+) SET TBLPROPERTIES \('(\S+)' = '(.*)'\)", statement)
        assert alter is not None, statement
        table = GuardedCatalog(self._lake.warden, caller).load_table(alter[1])
        table.transaction().set_properties({alter[2]: alter[3]}).commit_transaction()
        return []

    def _count(self, caller: Caller, name: TableName) -> int:
        planned = self._lake.warden.planner.plan(caller, name, ScanRequest()).files
        paths = planned["file_path"].to_pylist()
        return sum(parquet.read_metadata(local(path)).num_rows for path in paths)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Operations' flights and Mallory's three rows, and no Spark."""
    clear_manifest_cache()
    flights = unpack(tmp_path / "input", ROWS)
    rows = csv.read_csv(flights.flights)
    screen = Screen(Console(file=io.StringIO(), highlight=False))
    with open_lake(tmp_path / "lake") as lake:
        _fill(lake, OLGA, FLIGHTS, rows)
        _fill(lake, MALLORY, PICKS, rows.slice(0, OWN_ROWS))
        yield Stage(tmp_path, lake, CatalogAlone(lake).sql, flights, screen)


def _fill(lake: Lake, who: str, table: str, rows: pa.Table) -> None:
    client = lake.stock_client(who)
    client.create_namespace(table.partition(".")[0])
    client.create_table(table, rows.schema).append(rows)


def audited(stage: Stage) -> str:
    """The audit trail as text."""
    return json.dumps([repr(each) for each in stage.lake.audit()])

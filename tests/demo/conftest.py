"""A stage without Spark: the catalog's side of the story, which is where most of its checks are."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from pyiceberg.manifest import clear_manifest_cache
from pyspark.sql import SparkSession
from rich.console import Console

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.transport import KeyLabel, wrap_for_write
from catalog.envelope.write_keys import WrittenKey
from catalog.planning.request import ScanRequest
from catalog.service.pyiceberg_catalog import GuardedCatalog
from catalog.writes.new_files import FileCommit, NewFile
from catalog.writes.steps import WriteSession
from policy.principal import Principal
from spark_ext.demo.attacker import local
from spark_ext.demo.flights import unpack
from spark_ext.demo.lake import Lake, open_lake
from spark_ext.demo.people import ENGINE, MALLORY, MASTER_KEY, OLGA
from spark_ext.demo.screen import Screen
from spark_ext.demo.stage import ENCRYPTED, FLIGHTS, OWN_ROWS, PICKS, Stage
from tests.support.tables import lay_down

ROWS = 1_000


class CatalogAlone:
    """Answers some statements of the story as an engine without checks of its own would.

    It reads what the catalog plans, so a check that is missing in the catalog is missing. Of an encrypted
    table it only asks for the plan.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def sql(self, who: str, statement: str) -> list[tuple[object, ...]]:
        """The answer to a count, or to a change of a property."""
        caller = Caller(Principal(who), Principal(ENGINE), uuid4().hex)
        query = re.fullmatch(r"SELECT (\w+)\(.*\) FROM lake\.(\w+)\.(\w+)", statement)
        if query is not None:
            paths = self._planned(caller, TableName((query[2],), query[3]))
            return [(_rows(paths) if query[1] == "count" else len(paths),)]
        alter = re.fullmatch(r"ALTER TABLE lake\.(\S+) SET TBLPROPERTIES \('(\S+)' = '(.*)'\)", statement)
        assert alter is not None, statement
        table = GuardedCatalog(self._lake.services, caller).load_table(alter[1])
        table.transaction().set_properties({alter[2]: alter[3]}).commit_transaction()
        return []

    def session(self, who: str) -> SparkSession:
        """There is no Spark."""
        raise AssertionError(f"{who} has no session")

    def _planned(self, caller: Caller, name: TableName) -> list[str]:
        planned = self._lake.services.planner.plan(caller, name, ScanRequest()).files
        return list(planned["file_path"].to_pylist())


def _rows(paths: list[str]) -> int:
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
        alone = CatalogAlone(lake)
        yield Stage(tmp_path, lake, alone.sql, alone.session, flights, screen)


@pytest.fixture
def encrypted(stage: Stage) -> Stage:
    """The same with the encrypted table; the bytes of its one file are of no matter to the catalog."""
    properties = {"encryption.mechanism": "envelope", "encryption.master-key-id": MASTER_KEY}
    schema = pa.schema([("flight", pa.int32())])
    writes, caller = stage.lake.services.writes, Caller(Principal(OLGA), Principal(ENGINE), uuid4().hex)
    GuardedCatalog(stage.lake.services, caller).create_table(ENCRYPTED, schema, properties=properties)
    namespace, _, name = ENCRYPTED.partition(".")
    session = writes.begin(caller, TableName((namespace,), name))
    writes.commit(caller, session.id, FileCommit("append", (_encrypted_file(session),)))
    return stage


def _encrypted_file(session: WriteSession) -> NewFile:
    assert session.transport is not None
    path, label = session.prefix.child(new_file_name("part", "parquet")).canonical, KeyLabel(MASTER_KEY)
    identity = FileIdentity.of(session.table.record.table_uuid, path)
    wrapped = wrap_for_write(session.transport, new_dek(32), identity, label)
    new = NewFile(path, "parquet", 2, 1000, keys=(WrittenKey(label, wrapped),))
    lay_down(new, session.prefix)
    return new


def _fill(lake: Lake, who: str, table: str, rows: pa.Table) -> None:
    client = lake.standard_client(who)
    client.create_namespace(table.partition(".")[0])
    client.create_table(table, rows.schema).append(rows)

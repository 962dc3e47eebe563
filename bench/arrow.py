"""Reads without Spark: `lakewarden.connect` and PyArrow on the same rows: `python -m bench.arrow`.

Budget: reading an encrypted table at most 1.15 times plain PyArrow, as the geometric mean over the questions,
    with asking the catalog for the plan in it. Plain PyArrow reads the very files of the table in plaintext,
    as one dataset. Rounds are as in `bench.spark`.

Of two tables the parts are shown that plain PyArrow does not have: the plan alone, and the opening of the
    files that it names, one after the other. What is left of the whole is reading.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console

import lakewarden
from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import in_rounds, mean_of, ratios_of
from bench.samples import root_of
from bench.service import Served, served
from bench.spark_lineitem import generate
from catalog.client.files import opened
from catalog.client.scan import Scan
from catalog.service.pyiceberg_catalog import GuardedCatalog
from tests.support.lake import open_lake
from tests.support.tables import ENCRYPTED

BUDGET = 1.15
PYARROW = "PyArrow"
TABLES: Mapping[str, Mapping[str, str]] = {
    "in plaintext": {},
    "AES_GCM_V1": ENCRYPTED,
    "AES_GCM_CTR_V1": {"encryption.algorithm": "AES_GCM_CTR_V1"},
    "column keys": {"encryption.columns": "pii:l_comment,l_extendedprice,l_orderkey"},
}

#: The tables of which the parts are shown.
IN_PARTS = ("in plaintext", "AES_GCM_V1")

_QUANTITY = pa.scalar(Decimal("24.00"), pa.decimal128(15, 2))

#: Columns, a filter for the client and the same one for PyArrow.
Question = tuple[list[str] | None, str | None, pc.Expression | None]


def questions(rows: pa.Table) -> Mapping[str, Question]:
    """What is read, by name."""
    keys = rows["l_orderkey"]
    # In the middle of a file: of one with the wanted rows at its beginning, less would be read.
    low, high = (int(pc.quantile(keys, share)[0].as_py()) for share in (0.56, 0.57))
    between = (pc.field("l_orderkey") >= low) & (pc.field("l_orderkey") <= high)
    return {
        "every column of every row": (None, None, None),
        "one column": (["l_extendedprice"], None, None),
        "texts": (["l_comment", "l_shipmode", "l_shipinstruct"], None, None),
        "1 % by a clustered key": (
            ["l_orderkey", "l_extendedprice"],
            f"l_orderkey >= {low} and l_orderkey <= {high}",
            between,
        ),
        "filter and project": (
            ["l_extendedprice", "l_discount"],
            "l_quantity < 24.00 and l_shipmode = 'AIR'",
            (pc.field("l_quantity") < _QUANTITY) & (pc.field("l_shipmode") == "AIR"),
        ),
    }


def measure(root: Path, scale: float, runs: int) -> list[Figure]:
    """Every question asked of every contender."""
    lake = root_of(root, "lake")
    files = sorted(generate(root / "generated", scale).glob("*.parquet"))
    with open_lake(lake) as made:
        made.kms.create_master_key("pii")
        _create(made.catalog(), pq.read_schema(files[0]))
    with served(lake) as service:
        tables = _filled(service, files)
        paths = [each.path.removeprefix("file://") for each in tables["in plaintext"].scan()._plan().files]
        asked = questions(ds.dataset(paths).to_table(columns=["l_orderkey"]))
        figures: list[Figure] = []
        by_table: dict[str, list[float]] = {name: [] for name in tables}
        for name, question in asked.items():
            taken = in_rounds(_contenders(paths, tables, question), runs)
            figures += [figure(f"{name}, {each}", seconds, "s") for each, seconds in taken.items()]
            for table, collected in by_table.items():
                collected.append(statistics.median(ratios_of(taken, table, PYARROW)))
    means = [mean_of(f"{name} / {PYARROW}", each) for name, each in by_table.items()]
    return [*figures, means[0], *(at_most(BUDGET, each) for each in means[1:])]


def _create(catalog: GuardedCatalog, schema: pa.Schema) -> None:
    catalog.create_namespace("db")
    for number, properties in enumerate(TABLES.values()):
        catalog.create_table(f"db.t{number}", schema, properties=dict(properties))


def _filled(service: Served, files: list[Path]) -> dict[str, lakewarden.Table]:
    client = lakewarden.connect(service.url, service.token)
    tables = {name: client.table(f"db.t{number}") for number, name in enumerate(TABLES)}
    for table in tables.values():
        for file in files:
            table.append(pq.read_table(file))
    return tables


def _contenders(
    paths: list[str], tables: Mapping[str, lakewarden.Table], question: Question
) -> dict[str, Callable[[], Any]]:
    columns, text, expression = question

    def plain() -> int:
        return ds.dataset(paths).to_table(columns=columns, filter=expression).num_rows

    found = plain()

    def ask(table: lakewarden.Table) -> None:
        assert table.scan(text, columns).to_arrow().num_rows == found

    asked = {name: lambda table=table: ask(table) for name, table in tables.items()}
    parts = [_parts(name, tables[name].scan(text, columns)) for name in IN_PARTS]
    return {PYARROW: plain} | asked | parts[0] | parts[1]


def _parts(name: str, scan: Scan) -> dict[str, Callable[[], Any]]:
    plan = scan._plan()

    def opening() -> None:
        for file in plan.files:
            with opened(plan, file, scan.storage, plan.schema.fields):
                pass

    return {f"{name}: the plan": scan._plan, f"{name}: opening": opening}


def main() -> None:
    """Run this benchmark alone."""
    given = alone.given("Reading without Spark")
    with tempfile.TemporaryDirectory() as directory:
        measured = measure(Path(directory).resolve(), given.scale, given.runs)
    show(Console(), f"Reading lineitem at scale {given.scale:g} without Spark", measured)


if __name__ == "__main__":
    main()

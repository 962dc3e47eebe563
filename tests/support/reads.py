"""Reading through Spark under attack: refusals, a table's files, and writers who write what they like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import create_encryption_properties
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from catalog.base.identifiers import TableName, table_name
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.tables import Engine, NewFile

Encryption = Callable[[bytes, bytes], Mapping[str, Any]]
"""From data key and AAD prefix to the arguments of PyArrow's `create_encryption_properties`."""


def as_agreed(dek: bytes, prefix: bytes) -> Mapping[str, Any]:
    """How an honest writer encrypts."""
    return {"footer_key": dek, "aad_prefix": prefix, "store_aad_prefix": False}


@contextmanager
def replaced(path: Path, data: bytes) -> Iterator[None]:
    """The file with other bytes, for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def denied(spark_lake: SparkLake, *columns: str) -> Iterator[None]:
    """Carol may not select some columns, for a while."""
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    resources = {"database": ["db"], "table": ["*"], "column": list(columns)}
    rule = policy("denied", resources, {}, denyPolicyItems=items)
    spark_lake.lake.set_policies([*standard_policies(), rule])
    try:
        yield
    finally:
        spark_lake.lake.set_policies(standard_policies())


def refused(spark_lake: SparkLake, statement: str, kind: str, rule: str, user: str = ALICE) -> str:
    """Hold that a statement is refused with a condition and a rule; the message.

    Args:
        spark_lake: where.
        statement: SQL.
        kind: the class of the error, such as ``DECRYPTION_REFUSED``.
        rule: the rule that the message names.
        user: whose session.
    """
    return _refused(lambda: spark_lake.rows(statement, user), kind, rule)


def refused_again(frame: DataFrame, kind: str, rule: str) -> str:
    """Like `refused`, of a DataFrame that runs anew: Spark does not plan it again.

    Args:
        frame: a scan without a shuffle, whose result Spark would keep.
        kind: the class of the error.
        rule: the rule that the message names.
    """
    return _refused(frame.collect, kind, rule)


def _refused(run: Callable[[], object], kind: str, rule: str) -> str:
    with pytest.raises(PySparkException) as caught:
        run()
    assert caught.value.getCondition() == f"LAKEWARDEN.{kind}", str(caught.value)
    message = str(caught.value)
    assert f"rule={rule}" in message
    return message


def name_of(table: str) -> TableName:
    """The catalog's name for a table of Spark's."""
    _, *namespace, name = table.split(".")
    return table_name(namespace, name)


def data_files(spark_lake: SparkLake, table: str) -> list[Path]:
    """A table's live data files, on this disk."""
    loaded = spark_lake.lake.catalog().load_table(str(name_of(table)))
    return [Path(each.file.file_path.removeprefix("file://")) for each in loaded.scan().plan_files()]


def publish(
    spark_lake: SparkLake,
    table: str,
    rows: pa.Table,
    encryption: Encryption | None = None,
    content: bytes | None = None,
    **given: Any,
) -> Path:
    """Commit a file that a writer made without Spark, as an engine would commit it.

    Args:
        spark_lake: where.
        table: Spark's name of a table.
        rows: what to write, with field ids in the metadata of the fields.
        encryption: how, for an encrypted table.
        content: what the file contains in place of the rows.
        given: what the commit says of the file, where it is not the truth.
    """
    engine = Engine.begin(spark_lake.lake, name_of(table))
    path, dek = engine.path(), new_dek(32)
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    if encryption is None:
        pq.write_table(rows, local, store_schema=False)
    else:
        identity = FileIdentity.of(engine.session.table.record.table_uuid, path)
        arguments = encryption(dek.reveal(), parquet_aad_prefix(identity))
        properties = create_encryption_properties(**arguments)
        pq.write_table(rows, local, store_schema=False, encryption_properties=properties)
        given = {"keys": (engine.key(path, dek),), **given}
    if content is not None:
        local.write_bytes(content)
    said = {"record_count": rows.num_rows, "file_size_in_bytes": local.stat().st_size} | given
    engine.append(NewFile(path, "parquet", **said))
    return local


def with_ids(rows: pa.Table, ids: Mapping[str, int] | None = None) -> pa.Table:
    """Rows whose top-level columns have field ids: those given, or 1, 2, 3…"""
    numbers = ids or {name: number for number, name in enumerate(rows.column_names, 1)}
    fields = [
        field.with_metadata({"PARQUET:field_id": str(numbers[field.name])})
        if field.name in numbers
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))

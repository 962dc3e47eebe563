"""Delete files with rows, written by the plugin's own writers, in any format that it writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyiceberg.manifest import DataFileContent
from pyspark.sql.types import StructType

from catalog.base.identifiers import TableName, table_name
from catalog.envelope.file_ids import new_file_name
from catalog.http.engine_models import AddedFile, WriteBegun
from catalog.http.table_answers import Viewer, loaded_table
from tests.support.delete_commits import EQUALITY, POSITIONS, DeleteCommit
from tests.support.lake import ALICE
from tests.support.spark import CATALOG, SparkLake

_POSITIONS: Final = {
    "type": "struct",
    "fields": [
        {"id": 2147483546, "name": "file_path", "required": True, "type": "string"},
        {"id": 2147483545, "name": "pos", "required": True, "type": "long"},
    ],
}


class RowDeletes:
    """Writes delete files of one table; `commit` puts what was written into one snapshot.

    Args:
        spark_lake: where the table is.
        table: Spark's name for it.
        file_format: ``parquet`` or ``orc``.
    """

    def __init__(
        self, spark_lake: SparkLake, table: str, file_format: str = "parquet", user: str = ALICE
    ) -> None:
        self._spark = spark_lake.spark
        services, caller, name = spark_lake.lake.services, spark_lake.lake.caller(user, "spark"), _name(table)
        self._format = file_format
        self._session = services.writes.begin(caller, name)
        self._commit = DeleteCommit(services, caller, self._session)
        self._own: Any = spark_lake.spark.sparkContext._jvm.org.apache.spark.sql.lakewarden
        found, viewer = services.access.load(caller, name), Viewer.of(caller, services)
        settings = json.loads(bytes(loaded_table(found, viewer, masked=()).body))["write-settings"]
        self._settings = self._own.write.WriteSettings.of(self._json(settings))
        begun = json.loads(WriteBegun.of(self._session).model_dump_json())
        self._begun = self._own.write.BegunWrite.parse(self._json(begun))
        one_key = begun | {"encryption": begun["position-deletes"]["encryption"]}
        self._of_positions = self._own.write.BegunWrite.parse(self._json(one_key))

    def positions(
        self, rows: Sequence[tuple[str, int]], partition: Mapping[str, object] | None = None
    ) -> RowDeletes:
        """Write a position delete file: paths and row numbers."""
        written = self._written(_POSITIONS, sorted(rows), self._of_positions)
        written |= {"content": 1, "referenced-data-files": sorted({path for path, _ in rows})}
        return self._add(written, POSITIONS, partition)

    def equal(
        self,
        field_ids: Sequence[int],
        rows: Sequence[tuple[Any, ...]],
        partition: Mapping[str, object] | None = None,
        schema: Mapping[str, Any] | None = None,
        *,
        statistics: bool = True,
    ) -> RowDeletes:
        """Write an equality delete file.

        Args:
            field_ids: of the columns that are compared.
            rows: the values of the file's columns, in the order of its schema.
            partition: of the delete file.
            schema: Iceberg's JSON of the file's columns; by default those of the table that are compared.
            statistics: whether the manifest tells of the values.
        """
        chosen = schema or self._columns(frozenset(field_ids))
        written = self._written(chosen, rows, self._begun)
        if not statistics:
            written = {
                name: value for name, value in written.items() if not name.endswith(("-bounds", "-counts"))
            }
        return self._add(written, EQUALITY, partition, field_ids)

    def commit(self) -> None:
        """Commit what was written."""
        self._commit.commit()

    def _columns(self, field_ids: frozenset[int]) -> dict[str, Any]:
        schema = self._session.table.metadata.schema()
        fields = [
            each.model_dump(mode="json", by_alias=True) | {"required": False}
            for each in schema.fields
            if each.field_id in field_ids
        ]
        return {"type": "struct", "fields": fields}

    def _written(
        self, schema: Mapping[str, Any], rows: Sequence[tuple[Any, ...]], begun: JavaObject
    ) -> dict[str, Any]:
        """Write a file; returns what the plugin says of it."""
        kind = self._own.schema.IcebergSchema.toSpark(self._json(schema))
        shown = StructType.fromJson(json.loads(self._own.schema.FieldIds.strip(kind).json()))
        jvm: Any = self._spark.sparkContext._jvm
        conf = self._own.write.WriterConfiguration.of(kind, self._settings)
        serializable = jvm.org.apache.spark.util.SerializableConfiguration(conf)
        template = self._own.write.FileTemplate(begun, kind, None, self._settings, serializable)
        path = self._session.prefix.child(new_file_name("delete-0", self._format)).canonical
        file = self._own.write.DataFormat.named(self._format).start(template, path)
        frame = self._spark.createDataFrame(list(rows), shown, verifySchema=True).coalesce(1)
        for row in _internal(frame._jdf):
            file.write(row)
        found: dict[str, Any] = json.loads(file.close().toString())
        return found

    def _add(
        self,
        written: Mapping[str, Any],
        content: DataFileContent,
        partition: Mapping[str, object] | None,
        equality_ids: Sequence[int] = (),
    ) -> RowDeletes:
        file = AddedFile.model_validate(written).to_file()
        spec_id = self._session.table.metadata.default_spec_id
        placed = replace(file, partition=dict(partition or {}), spec_id=spec_id)
        self._commit.add(placed, content, equality_ids)
        return self

    def _json(self, document: Mapping[str, Any]) -> JavaObject:
        jvm: Any = self._spark.sparkContext._jvm
        return jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(document))


def _internal(frame: JavaObject) -> Any:
    return frame.queryExecution().executedPlan().executeCollect()


def _name(table: str) -> TableName:
    *namespace, name = table.removeprefix(f"{CATALOG}.").split(".")
    return table_name(namespace, name)

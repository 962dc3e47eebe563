"""The contenders: Spark's Parquet, Parquet's encryption and Lakewarden, each with separate files.

All write the same rows with the same codec, row-group size and number of files, and are asked the same
questions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from bench.spark_session import CATALOG

NAMESPACE = f"{CATALOG}.bench"
PARQUET, PARQUET_V1 = "Parquet V2", "Parquet V1"
STOCK, STOCK_V1 = "Parquet V2 encrypted", "Parquet V1 encrypted"
PLAIN, ENCRYPTED = "Lakewarden", "Lakewarden encrypted"
GCM, CTR, KEYED = "Lakewarden GCM", "Lakewarden CTR", "Lakewarden column keys"
ORC, ORC_PLAIN, ORC_ENCRYPTED = "ORC V2", "Lakewarden ORC", "Lakewarden ORC encrypted"
#: When files are checked against their digests; the first of them is what the others are compared with.
VERIFIED = ("never", "first-read", "always")

#: Parquet's own encryption: one key for the whole file, as long as Lakewarden's; the master key from memory.
_PARQUET_ENCRYPTION = {
    "parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "bench.FixedKeys",
    "parquet.encryption.uniform.key": "bench",
    "parquet.encryption.data.key.length.bits": "256",
}
#: As large a dictionary as Spark's own writer makes, so that the files are alike.
_LAKE_FILES = {"write.parquet.dict-size-bytes": str(1024 * 1024)}
_LAKE_ENCRYPTION = {"encryption.mechanism": "envelope", "encryption.algorithm": "AES_GCM_V1"}
_V1_SOURCES = "spark.sql.sources.useV1SourceList"


class Side(Protocol):
    """One way to keep rows in files and to ask them."""

    def write(self, source: str, table: str) -> None:
        """Write the rows of a view to a new table."""

    def opened(self, table: str) -> str:
        """The name under which SQL asks a table that was written."""

    def drop(self, table: str) -> None:
        """Take a table away with its files."""

    def files(self, table: str) -> list[Path]:
        """The data files of a table."""


def sides(spark: SparkSession, parquet: Path, warehouse: Path) -> dict[str, Side]:
    """All contenders by name.

    Args:
        spark: the session that all of them run in.
        parquet: a directory for the files of Spark's own Parquet.
        warehouse: the directory of Lakewarden's tables.
    """
    return {
        PARQUET: _SparkFiles(spark, parquet / "v2", "", {}),
        PARQUET_V1: _SparkFiles(spark, parquet / "v1", "parquet", {}),
        STOCK: _SparkFiles(spark, parquet / "v2-encrypted", "", _PARQUET_ENCRYPTION),
        STOCK_V1: _SparkFiles(spark, parquet / "v1-encrypted", "parquet", _PARQUET_ENCRYPTION),
        PLAIN: _LakeTable(spark, warehouse, "plain", _LAKE_FILES),
        ENCRYPTED: _LakeTable(spark, warehouse, "encrypted", _LAKE_FILES | _LAKE_ENCRYPTION),
    }


def formats(spark: SparkSession, root: Path, warehouse: Path, column_keys: str) -> dict[str, Side]:
    """Every way to keep a table's files, in the order of the tables of figures.

    Args:
        spark: the session that all of them run in.
        root: a directory for the files of Spark's own writers.
        warehouse: the directory of Lakewarden's tables.
        column_keys: the keys of all columns, as `encryption.columns` has them.
    """
    gcm, ctr = (
        _LAKE_ENCRYPTION | {"encryption.algorithm": name} for name in ("AES_GCM_V1", "AES_GCM_CTR_V1")
    )
    keyed = gcm | {"encryption.columns": column_keys}
    return {
        PARQUET: _SparkFiles(spark, root / "v2", "", {}),
        STOCK: _SparkFiles(spark, root / "v2-encrypted", "", _PARQUET_ENCRYPTION),
        PLAIN: _LakeTable(spark, warehouse, "plain", _LAKE_FILES),
        GCM: _LakeTable(spark, warehouse, "gcm", _LAKE_FILES | gcm),
        CTR: _LakeTable(spark, warehouse, "ctr", _LAKE_FILES | ctr),
        KEYED: _LakeTable(spark, warehouse, "keyed", _LAKE_FILES | keyed),
        ORC: _SparkFiles(spark, root / "orc", "", {}, "orc"),
        ORC_PLAIN: _LakeTable(spark, warehouse, "orc", {}, "orc"),
        ORC_ENCRYPTED: _LakeTable(spark, warehouse, "orc_keyed", {"encryption.mechanism": "envelope"}, "orc"),
    }


def digests(spark: SparkSession, warehouse: Path) -> dict[tuple[str, str], Side]:
    """Tables with digests of their files, by how they are encrypted and when those are looked at.

    Args:
        spark: the session that all of them run in.
        warehouse: the directory of Lakewarden's tables.
    """
    ctr = _LAKE_FILES | _LAKE_ENCRYPTION | {"encryption.algorithm": "AES_GCM_CTR_V1"}
    encrypted = {CTR: (ctr, "iceberg"), ORC_ENCRYPTED: ({"encryption.mechanism": "envelope"}, "orc")}
    return {
        (name, when): _LakeTable(
            spark,
            warehouse,
            f"{form}_{when}".replace("-", "_"),
            properties | {"encryption.verify-digest": when},
            form,
        )
        for name, (properties, form) in encrypted.items()
        for when in VERIFIED
    }


def spark_files(spark: SparkSession, root: Path) -> Side:
    """Spark's own Parquet in plaintext, below a directory."""
    return _SparkFiles(spark, root, "", {})


def lake_table(spark: SparkSession, warehouse: Path, suffix: str, properties: Mapping[str, str]) -> Side:
    """Lakewarden's tables with these properties, by a suffix of their names, below the directory."""
    return _LakeTable(spark, warehouse, suffix, _LAKE_FILES | properties)


@dataclass(frozen=True)
class _SparkFiles:
    """Spark's own files in directories; schema and files are looked up once, when a table is opened."""

    spark: SparkSession
    root: Path
    v1_sources: str
    options: Mapping[str, str]
    format: str = "parquet"

    def write(self, source: str, table: str) -> None:
        writer = self.spark.table(source).write.options(**self.options)
        writer.format(self.format).save(str(self.root / table))

    def opened(self, table: str) -> str:
        view = f"{self.root.name}_{table}".replace("-", "_")
        with _setting(self.spark, _V1_SOURCES, self.v1_sources):
            reader = self.spark.read.options(**self.options).format(self.format)
            reader.load(str(self.root / table)).createOrReplaceTempView(view)
        return view

    def drop(self, table: str) -> None:
        shutil.rmtree(self.root / table)

    def files(self, table: str) -> list[Path]:
        return sorted((self.root / table).glob(f"*.{self.format}"))


@dataclass(frozen=True)
class _LakeTable:
    """Tables of Lakewarden; every question loads the table and plans the scan."""

    spark: SparkSession
    warehouse: Path
    suffix: str
    properties: Mapping[str, str]
    format: str = "iceberg"

    def write(self, source: str, table: str) -> None:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        properties = f"TBLPROPERTIES ({listed})" if listed else ""
        name = self.opened(table)
        self.spark.sql(f"CREATE TABLE {name} USING {self.format} {properties} AS TABLE {source}")

    def opened(self, table: str) -> str:
        return f"{NAMESPACE}.{table}_{self.suffix}"

    def drop(self, table: str) -> None:
        self.spark.sql(f"DROP TABLE {self.opened(table)}")
        for directory in self._directories(table):
            shutil.rmtree(directory)

    def files(self, table: str) -> list[Path]:
        ending = "orc" if self.format == "orc" else "parquet"
        return sorted(file for each in self._directories(table) for file in each.rglob(f"*.{ending}"))

    def _directories(self, table: str) -> list[Path]:
        return list(self.warehouse.glob(f"*/{table}_{self.suffix}-*"))


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)

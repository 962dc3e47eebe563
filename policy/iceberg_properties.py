"""Lists Iceberg's table properties, and refuses those without effect when they are set.

- Honoured: the catalog, the Spark extension or both follow it. `write_properties` checks the values.
- Left to clients: standard clients or other engines read it. Spark does the same with and without it.
- Refused: a reader or writer means something by it that Lakewarden does not do.

A name with one of Iceberg's prefixes that is in no list is refused, too: it is misspelled, or of a later
release. docs/spark-options.md shows the lists to users.

Source: Apache Iceberg, `org.apache.iceberg.TableProperties`, and the documentation, "Configuration".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.errors import PropertyInvalid
from policy.write_properties import CHOICES, NUMBERS

#: Names and prefixes that are followed. A prefix ends with a dot, and a column's name follows.
HONOURED: Final = frozenset(
    {
        *CHOICES,
        *NUMBERS,
        "comment",
        "format-version",
        "write.data.path",
        "write.format.default",
        "write.metadata.path",
        "write.parquet.bloom-filter-enabled.column.",
        "write.parquet.bloom-filter-fpp.column.",
        "write.parquet.bloom-filter-ndv.column.",
        "write.summary.partition-limit",
    }
)

#: Names that others read.
LEFT_TO_CLIENTS: Final = frozenset(
    {
        "commit.manifest-merge.enabled",
        "commit.manifest.min-count-to-merge",
        "commit.retry.max-wait-ms",
        "commit.retry.min-wait-ms",
        "commit.retry.num-retries",
        "commit.retry.total-timeout-ms",
        "commit.status-check.max-wait-ms",
        "commit.status-check.min-wait-ms",
        "commit.status-check.num-retries",
        "commit.status-check.total-timeout-ms",
        "compatibility.snapshot-id-inheritance.enabled",
        "engine.hive.enabled",
        "engine.hive.lock-enabled",
        "schema.name-mapping.default",
        "write.folder-storage.path",
        "write.object-storage.path",
        "write.upsert.enabled",
    }
)

_DELETES: Final = "Delete files are written with the settings of data files."
_AVRO: Final = "Data files are Parquet or ORC."
_VARIANT: Final = "The type variant needs format version 3."
_SPLITS: Final = "Spark's spark.sql.files.maxPartitionBytes decides."
_STATISTICS: Final = "Statistics of all columns are written; those of encrypted columns are encrypted."

#: Names that are refused, with what to do or know.
REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "current-schema": "The catalog sets it.",
        "current-snapshot-id": "The catalog sets it.",
        "current-snapshot-summary": "The catalog sets it.",
        "current-snapshot-timestamp-ms": "The catalog sets it.",
        "default-partition-spec": "The catalog sets it.",
        "default-sort-order": "The catalog sets it.",
        "identifier-fields": "Use SET IDENTIFIER FIELDS, or set it when Spark creates the table.",
        "read.data-planning-mode": "The catalog plans scans.",
        "read.delete-planning-mode": "The catalog plans scans.",
        "read.split.adaptive-size.enabled": _SPLITS,
        "read.split.metadata-target-size": "The catalog reads manifests.",
        "read.split.planning-lookback": _SPLITS,
        "snapshot-count": "The catalog sets it.",
        "sort-order": "Use WRITE ORDERED BY, or set it when Spark creates the table.",
        "uuid": "The catalog sets it.",
        "write.avro.compression-codec": _AVRO,
        "write.avro.compression-level": _AVRO,
        "write.delete.avro.compression-codec": _DELETES,
        "write.delete.avro.compression-level": _DELETES,
        "write.delete.orc.block-size-bytes": _DELETES,
        "write.delete.orc.compression-codec": _DELETES,
        "write.delete.orc.compression-strategy": _DELETES,
        "write.delete.orc.stripe-size-bytes": _DELETES,
        "write.delete.orc.vectorized.batch-size": _DELETES,
        "write.delete.parquet.compression-codec": _DELETES,
        "write.delete.parquet.compression-level": _DELETES,
        "write.delete.parquet.dict-size-bytes": _DELETES,
        "write.delete.parquet.page-row-limit": _DELETES,
        "write.delete.parquet.page-size-bytes": _DELETES,
        "write.delete.parquet.page-version": _DELETES,
        "write.delete.parquet.row-group-check-max-record-count": _DELETES,
        "write.delete.parquet.row-group-check-min-record-count": _DELETES,
        "write.delete.parquet.row-group-size-bytes": _DELETES,
        "write.delete.target-file-size-bytes": _DELETES,
        "write.location-provider.impl": "Set write.data.path.",
        "write.manifest.compression-codec": "The catalog writes manifests.",
        "write.manifest.compression-level": "The catalog writes manifests.",
        "write.metadata.metrics.column.": _STATISTICS,
        "write.metadata.metrics.default": _STATISTICS,
        "write.metadata.metrics.max-inferred-column-defaults": _STATISTICS,
        "write.object-storage.partitioned-paths": "Set write.data.path.",
        "write.orc.block-size-bytes": "Set write.orc.stripe-size-bytes.",
        "write.orc.bloom.filter.columns": "Only Parquet files have bloom filters.",
        "write.orc.bloom.filter.fpp": "Only Parquet files have bloom filters.",
        "write.orc.compression-strategy": "Set write.orc.compression-codec.",
        "write.orc.vectorized.batch-size": "Set write.orc.stripe-size-bytes.",
        "write.parquet.bloom-filter-adaptive-enabled": "Set write.parquet.bloom-filter-max-bytes.",
        "write.parquet.dict-encoding-enabled.column.": "Set write.parquet.dict-size-bytes.",
        "write.parquet.row-group-check-max-record-count": "Set write.parquet.row-group-size-bytes.",
        "write.parquet.row-group-check-min-record-count": "Set write.parquet.row-group-size-bytes.",
        "write.parquet.row-group-size-track-uncompressed": "Set write.parquet.row-group-size-bytes.",
        "write.parquet.stats-enabled.column.": _STATISTICS,
        "write.parquet.variant-inference-buffer-size": _VARIANT,
    }
)

#: What the names of Iceberg's properties begin with, beside those without a prefix.
_PREFIXES: Final = ("commit.", "compatibility.", "engine.", "gc.", "history.", "read.", "schema.", "write.")


def check_names(properties: Mapping[str, str], table: str) -> None:
    """Check the names of the properties that a user sets.

    Raises:
        PropertyInvalid: a property that would have no effect.
    """
    for name in sorted(properties):
        if _listed(name) in HONOURED | LEFT_TO_CLIENTS:
            continue
        hint = REFUSED.get(_listed(name))
        if hint is not None or name.startswith(_PREFIXES):
            raise PropertyInvalid(
                f"The table property {name[:200]} has no effect in Lakewarden.",
                table=table,
                rule="property-without-effect",
                hint=hint or "Check the spelling, or remove it. docs/spark-options.md lists the properties.",
            )


def _listed(name: str) -> str:
    """The name, or the prefix that stands for the names of all columns."""
    head, dot, _ = name.partition(".column.")
    return f"{head}{dot}"

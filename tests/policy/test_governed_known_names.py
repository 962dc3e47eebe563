"""No documented property of another project is taken for a governed one.

The names are those of the projects' own documentation: Iceberg, "Configuration"; ORC, "Spark Configuration",
"Hive Configuration" and "Using Core Java"; Parquet's Hadoop properties; Hive's and Impala's table properties;
the Iceberg connectors of Trino and Flink.
"""

from __future__ import annotations

import pytest

from policy.encryption.governed import MAX_PROPERTIES, canonical_name, is_governed, split
from policy.errors import PropertyInvalid
from tests.support.vectors import each_row

ORDINARY = """
read.split.target-size read.split.metadata-target-size read.split.planning-lookback read.split.open-file-cost
read.split.adaptive-size.enabled read.parquet.vectorization.enabled read.parquet.vectorization.batch-size
read.orc.vectorization.enabled read.orc.vectorization.batch-size read.data-planning-mode
read.delete-planning-mode read.stream.skip-delete-snapshots read.stream.skip-overwrite-snapshots
write.format.default write.delete.format.default write.parquet.row-group-size-bytes
write.parquet.page-size-bytes write.parquet.page-version write.parquet.page-row-limit
write.parquet.dict-size-bytes write.parquet.dict-enabled.column.id write.parquet.compression-codec
write.parquet.compression-level write.parquet.bloom-filter-enabled.column.id
write.parquet.bloom-filter-max-bytes write.parquet.bloom-filter-fpp.column.id
write.parquet.bloom-filter-ndv.column.id write.parquet.stats-enabled.column.id
write.parquet.row-group-check-min-record-count write.parquet.row-group-check-max-record-count
write.parquet.shred-variants write.delete.parquet.row-group-size-bytes
write.delete.parquet.page-size-bytes write.delete.parquet.page-row-limit write.delete.parquet.dict-size-bytes
write.delete.parquet.compression-codec write.delete.parquet.compression-level write.avro.compression-codec
write.avro.compression-level write.delete.avro.compression-codec write.delete.avro.compression-level
write.orc.stripe-size-bytes write.orc.block-size-bytes write.orc.vectorized.batch-size
write.orc.compression-codec write.orc.compression-strategy write.orc.bloom.filter.columns
write.orc.bloom.filter.fpp write.delete.orc.stripe-size-bytes write.delete.orc.block-size-bytes
write.delete.orc.vectorized.batch-size write.delete.orc.compression-codec
write.delete.orc.compression-strategy write.location-provider.impl write.metadata.compression-codec
write.metadata.metrics.max-inferred-column-defaults write.metadata.metrics.default
write.metadata.metrics.column.id write.target-file-size-bytes write.delete.target-file-size-bytes
write.distribution-mode write.delete.distribution-mode write.update.distribution-mode
write.merge.distribution-mode write.wap.enabled write.summary.partition-limit
write.metadata.delete-after-commit.enabled write.metadata.previous-versions-max write.spark.fanout.enabled
write.spark.accept-any-schema write.spark.advisory-partition-size-bytes write.object-storage.enabled
write.object-storage.partitioned-paths write.object-storage.path write.folder-storage.path write.data.path
write.metadata.path write.delete.mode write.delete.isolation-level write.update.mode
write.update.isolation-level write.merge.mode write.merge.isolation-level write.delete.granularity
write.manifest-lists.enabled write.upsert.enabled write.merge.cardinality-check.enabled
write.py-location-provider.impl
commit.retry.num-retries commit.retry.min-wait-ms commit.retry.max-wait-ms commit.retry.total-timeout-ms
commit.status-check.num-retries commit.status-check.min-wait-ms commit.status-check.max-wait-ms
commit.status-check.total-timeout-ms commit.manifest.target-size-bytes commit.manifest.min-count-to-merge
commit.manifest-merge.enabled history.expire.max-snapshot-age-ms history.expire.min-snapshots-to-keep
history.expire.max-ref-age-ms gc.enabled format-version format uuid snapshot-count current-snapshot-id
current-snapshot-summary current-snapshot-timestamp-ms current-schema default-partition-spec
default-sort-order identifier-fields sort-order partition-spec row-lineage
compatibility.snapshot-id-inheritance.enabled engine.hive.enabled engine.hive.lock-enabled
schema.name-mapping.default provider location owner comment external catalog table_type catalog-type
catalog-name metadata_location previous_metadata_location metadata.location created-at created_by
created_with_ctas is_ctas EXTERNAL external.table.purge numFiles numRows rawDataSize totalSize
numFilesErasureCoded transient_lastDdlTime last_modified_by last_modified_time COLUMN_STATS_ACCURATE
STATS_GENERATED STATS_GENERATED_VIA_STATS_TASK bucketing_version transactional transactional_properties
auto.purge skip.header.line.count skip.footer.line.count serialization.format serialization.null.format
field.delim storage_handler iceberg.catalog iceberg.mr.split.size iceberg.file_format iceberg.hive.keep.stats
avro.schema.url avro.schema.literal immutable sort.columns kudu.table_name impala.lastComputeStatsTime
impala.enable.stats.extrapolation DO_NOT_UPDATE_STATS TRANSLATED_TO_EXTERNAL discover.partitions
partition.retention.period storage.insert_only presto_query_id presto_version trino_query_id trino_version
trino.stats.ndv.1.ndv trino_table_id extra_properties orc.compress orc.compress.size orc.stripe.size
orc.stripe.row.count orc.block.size orc.create.index orc.row.index.stride orc.base.delta.ratio
orc.block.padding orc.write.format orc.buffer.size.enforce orc.encoding.strategy orc.compression.strategy
orc.block.padding.tolerance orc.bloom.filter.columns orc.bloom.filter.fpp orc.bloom.filter.write.version
orc.use.zerocopy orc.skip.corrupt.data orc.tolerate.missing.schema orc.memory.pool
orc.dictionary.key.threshold orc.dictionary.early.check orc.dictionary.implementation
orc.direct.encoding.columns
orc.rows.between.memory.checks orc.max.file.length orc.mapred.input.schema orc.mapred.output.schema
orc.mapred.map.output.key.schema orc.mapred.map.output.value.schema orc.overwrite.output.file
orc.schema.evolution.case.sensitive orc.force.positional.evolution orc.column.index.access
orc.proleptic.gregorian orc.proleptic.gregorian.default orc.row.batch.size orc.row.child.limit
orc.write.variable.length.blocks orc.compression.zstd.level orc.compression.zstd.windowlog
orc.min.disk.seek.size
parquet.block.size parquet.page.size parquet.dictionary.page.size parquet.enable.dictionary
parquet.compression parquet.compression.codec parquet.writer.version parquet.writer.max-padding
parquet.bloom.filter.enabled parquet.bloom.filter.enabled#id parquet.bloom.filter.expected.ndv
parquet.bloom.filter.fpp parquet.bloom.filter.max.bytes parquet.page.row.count.limit
parquet.page.write-checksum.enabled parquet.page.verify-checksum.enabled parquet.columnindex.truncate.length
parquet.statistics.truncate.length parquet.column.index.access parquet.avro.schema parquet.read.schema
parquet.read.support.class parquet.write.support.class parquet.validation parquet.filter.stats.enabled
parquet.filter.columnindex.enabled parquet.memory.pool.ratio parquet.memory.min.chunk.size
parquet.strings.signed-min-max.enabled parquet.task.side.metadata parquet.split.files
parquet.enable.summary-metadata parquet.compression.codec.zstd.level parquet.decrypt.off-heap.buffer.enabled
spark.sql.create.version spark.sql.sources.provider spark.sql.sources.schema.numParts
spark.sql.sources.schema.part.0 spark.sql.partitionProvider spark.sql.statistics.totalSize
spark.sql.statistics.numRows compression path header delimiter mergeSchema option.path
option.write.format.default option.compression option.owner option.provider option.serialization.format
snapshotPropertyPrefix flink.max-continuous-empty-commits connector write-format write-parallelism
upsert-enabled
streaming monitor-interval equality-field-columns catalog-database catalog-table warehouse uri
"""

#: Documented elsewhere, and governed here: refused, or read by the catalog.
GOVERNED = """
encryption.key-id encryption.data-key-length orc.key.provider orc.encrypt orc.mask
hadoop.security.key.provider.path parquet.encryption.column.keys parquet.encryption.footer.key
parquet.encryption.uniform.key parquet.encryption.plaintext.footer parquet.encryption.algorithm
parquet.encryption.complete.columns parquet.encryption.kms.client.class parquet.encryption.kms.instance.id
parquet.encryption.kms.instance.url parquet.encryption.key.access.token parquet.encryption.double.wrapping
parquet.encryption.cache.lifetime.seconds parquet.encryption.wrap.locally
parquet.encryption.key.material.store.internally parquet.encryption.data.key.length.bits
parquet.encryption.kek.length.bits parquet.encryption.key.list parquet.crypto.factory.class
"""


@each_row("name", ORDINARY.split(), count=291)
def test_documented_property_of_another_project_is_ordinary(name: str) -> None:
    assert not is_governed(name)
    assert split({name: "x"}) == ({}, {name: "x"})


@each_row("name", GOVERNED.split(), count=24)
def test_documented_property_about_encryption_is_governed(name: str) -> None:
    assert is_governed(name)


def test_names_that_come_close_to_governed_ones_are_not_searched_for_one_by_one() -> None:
    """A request cannot bring more names than are judged."""
    many = {f"encryptoin.mechanim-{number}": "x" for number in range(MAX_PROPERTIES + 1)}
    with pytest.raises(PropertyInvalid) as refused:
        split(many)
    assert refused.value.rule == "property-count" and refused.value.hint
    ordinary = {f"team.property-{number}": "x" for number in range(MAX_PROPERTIES)}
    assert split(ordinary) == ({}, ordinary)


@each_row(
    ("name", "taken"),
    [
        ("read.allowed.data.path", True),
        ("rxad.allowed.data.pxths", True),
        ("rxad.allxwed.data.pxths", False),
        ("xxread.allowed.data.pathsxxx", True),
        ("xxxread.allowed.data.pathsxxx", False),
        ("daer.dewolla.atad.shtap", False),
        ("paths.data.allowed.read", False),
    ],
)
def test_a_slip_of_the_pen_is_a_tenth_of_the_name(name: str, taken: bool) -> None:
    assert is_governed(name) is taken


def test_the_hint_for_a_name_of_any_length_is_bounded() -> None:
    with pytest.raises(PropertyInvalid) as refused:
        canonical_name("encryption." + "mechanism" * 100_000)
    assert len(str(refused.value)) < 1_000

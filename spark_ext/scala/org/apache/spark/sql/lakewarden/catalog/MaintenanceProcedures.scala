package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.types._

/** Iceberg's procedures that maintain tables, as far as the catalog carries them out by itself. */
private[catalog] object MaintenanceProcedures {
  val All: Seq[CatalogOperation] = Seq(
    CatalogOperation(
      "rewrite_manifests", "Rewrite the manifests of a partition spec, ordered by partition.",
      Seq("manifests", "rewrite"), None,
      Seq(Shown("rewritten-manifests-count", IntegerType), Shown("added-manifests-count", IntegerType)),
      Seq(
        Argument.refused("use_caching", BooleanType, "The catalog rewrites manifests, not Spark."),
        Argument("spec_id", IntegerType, "The partition spec; the current one by default."),
        Argument.refused("sort_by", ArrayType(StringType), "Files are ordered by all partition fields."))),
    CatalogOperation(
      "expire_snapshots", "Remove old snapshots, and the files that no other snapshot lists.",
      Seq("snapshots", "expire"), None,
      Seq(
        Shown("deleted-data-files-count"), Shown("deleted-position-delete-files-count"),
        Shown("deleted-equality-delete-files-count"), Shown("deleted-manifest-files-count"),
        Shown("deleted-manifest-lists-count"), Shown("deleted-statistics-files-count"),
        Shown("problem", StringType, nullable = true)),
      Seq(
        Argument("older_than", TimestampType, "Snapshots of before that expire; by default five days ago."),
        Argument("retain_last", IntegerType, "How many snapshots each branch keeps; 1 by default."),
        Argument.refused("max_concurrent_deletes", IntegerType, "The catalog deletes the files."),
        Argument.refused("stream_results", BooleanType, "The catalog deletes the files."),
        Argument("snapshot_ids", ArrayType(LongType), "Snapshots that expire as well."),
        Argument.refused("clean_expired_metadata", BooleanType, "Schemas and partition specs are kept.")),
      paged = true),
    CatalogOperation(
      "remove_orphan_files", "Remove files of a table that nothing references.", Seq("orphan-files", "remove"),
      Some("files"), Seq(Shown("orphan-file-location", StringType)),
      Seq(
        Argument("older_than", TimestampType, "Files of before that are removed; by default three days ago."),
        Argument("location", StringType, "A directory of the table; by default all of its location."),
        Argument("dry_run", BooleanType, "Whether the files are only listed."),
        Argument.refused("max_concurrent_deletes", IntegerType, "The catalog deletes the files."),
        Argument.refused("file_list_view", StringType, "The catalog lists the files."),
        Argument.refused("equal_schemes", Argument.Texts, "The catalog knows which schemes are the same."),
        Argument.refused("equal_authorities", Argument.Texts, "The catalog compares locations."),
        Argument.refused("prefix_mismatch_mode", StringType, "The catalog compares locations."),
        Argument.refused("prefix_listing", BooleanType, "The catalog lists the files."),
        Argument.refused("stream_results", BooleanType, "The catalog deletes the files.")),
      paged = true))

  /** Those that are refused, with what to do instead. */
  val Refused: Map[String, String] = Map(
    "compute_partition_stats" -> "Query the metadata table partitions.",
    "rewrite_table_path" -> "The catalog keeps the locations of tables. Copy the rows into another table.")
}

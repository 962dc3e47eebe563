package org.apache.spark.sql.lakewarden.options

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** How a scan is split and read. Sizes are in bytes; none: as Spark's settings say.
  *
  * @param batchRows
  *   rows of a batch
  * @param aggregates
  *   whether aggregates can be answered out of footers
  * @param grouped
  *   whether tasks have the files of one partition value each
  * @param ordered
  *   whether tasks keep the order of the rows in files
  * @param statistics
  *   whether Spark is told of the columns' values
  * @param snapshots
  *   which snapshots are read
  */
final case class ReadOptions(
    splitSize: Option[Long] = None, openCost: Option[Long] = None, batchRows: Option[Int] = None,
    aggregates: Boolean = true, grouped: Boolean = false, ordered: Boolean = false,
    statistics: Boolean = false, snapshots: StreamOptions = StreamOptions())

object ReadOptions {

  /** They became time travel, or the name of the table, before there was a scan (`IcebergReads`), or have no effect. */
  private val Elsewhere = Set("as-of-timestamp", "path", "snapshot-id", "tag")

  /** Throws `NotSupportedYet` for options and settings without effect, and `RequestInvalid` for their values.
    *
    * @param properties
    *   of the table
    * @param format
    *   of its files
    * @param changes
    *   whether changes are read
    */
  def of(
      options: CaseInsensitiveStringMap, properties: Map[String, String], format: String, changes: Boolean = false)
      : ReadOptions = {
    val told = new GivenOptions("read", IcebergNames.read, options, properties)
    told.check(if (changes) Elsewhere else Elsewhere ++ StreamOptions.OfChanges)
    ReadOptions(
      told.number("split-size", "spark.sql.iceberg.read.split-size", "read.split.target-size"),
      told.number("file-open-cost", property = "read.split.open-file-cost"),
      told.number("batch-size", property = s"read.$format.vectorization.batch-size").map(_.min(Int.MaxValue).toInt),
      told.flag("aggregate-push-down-enabled", "spark.sql.iceberg.aggregate-push-down.enabled").getOrElse(true),
      told.flag(null, "spark.sql.iceberg.planning.preserve-data-grouping").getOrElse(false),
      told.flag(null, "spark.sql.iceberg.planning.preserve-data-ordering").getOrElse(false),
      SQLConf.get.cboEnabled && told.flag(null, "spark.sql.iceberg.report-column-stats").getOrElse(true),
      StreamOptions.of(told))
  }
}

package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** What a changelog shows of each row beside the table's columns, and what it calls the kinds of changes.
  *
  * @param insert
  *   a row that a snapshot added
  * @param delete
  *   a row that it removed
  * @param before
  *   a row as it was before an update
  * @param after
  *   the same as it was then
  */
private[lakewarden] final case class ChangeColumns(
    insert: String, delete: String, before: String, after: String, fields: Seq[StructField]) {
  import ChangeColumns._

  private[read] def value(name: String, change: RowChange): Any = name match {
    case Type               => UTF8String.fromString(if (change.inserted) insert else delete)
    case Ordinal            => change.ordinal
    case Snapshot | Version => change.snapshotId
    case Timestamp          => Math.multiplyExact(change.millis, 1000L)
  }
}

private[lakewarden] object ChangeColumns {
  val Type = "_change_type"
  val Ordinal = "_change_ordinal"
  private val Snapshot = "_commit_snapshot_id"
  private val Version = "_commit_version"
  private val Timestamp = "_commit_timestamp"

  /** As in Iceberg's changelog: the table `changes`, and the procedure `create_changelog_view`. */
  val Iceberg: ChangeColumns = ChangeColumns(
    "INSERT", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER",
    Seq(required(Type, StringType), required(Ordinal, IntegerType), required(Snapshot, LongType)))

  /** As `CHANGES` of Spark has them. A version is the id of a snapshot, which has no order; the ordinal has. */
  val Spark: ChangeColumns = ChangeColumns(
    "insert", "delete", "update_preimage", "update_postimage",
    Seq(
      required(Type, StringType), required(Ordinal, IntegerType), required(Version, LongType),
      required(Timestamp, TimestampType)))

  val names: Set[String] = (Iceberg.fields ++ Spark.fields).map(_.name).toSet

  private def required(name: String, kind: DataType): StructField = StructField(name, kind, nullable = false)
}

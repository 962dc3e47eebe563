package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.options.ReadOptions
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Builds the scan of a table's changes: the rows that each snapshot added and removed. A row that was only copied to
  * another file is removed and added (`ChangeRows`).
  *
  * @param columns
  *   beside the table's
  * @param fixed
  *   the range; none: that of the options
  */
private[lakewarden] final class ChangesScanBuilder(
    handle: TableHandle, columns: ChangeColumns, fixed: Option[Increment], options: CaseInsensitiveStringMap)
    extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownFilters {
  private val table = handle.table
  private val format = table.writeSettings.path("format").asText
  private lazy val told = ReadOptions.of(options, table.properties, format, changes = true)
  private var wanted = table.schema
  private var shown = columns.fields
  private var pushed = Seq.empty[Filter]

  override def pruneColumns(required: StructType): Unit = {
    val (own, others) = required.partition(field => table.schema.fieldNames.contains(field.name))
    wanted = FieldIds.restore(StructType(own), table.schema)
    shown = others.map(field => columns.fields.find(_.name == field.name).get)
  }

  override def pushFilters(filters: Array[Filter]): Array[Filter] = {
    val json = new FilterJson(table.schema)
    pushed = filters.toSeq.filter(json.says)
    filters
  }

  override def pushedFilters(): Array[Filter] = pushed.toArray

  override def build(): Scan = {
    told.snapshots.requireChanges()
    val range = fixed.getOrElse(ChangeBounds.of(told.snapshots).of(table))
    new ChangesScan(handle, wanted, pushed, shown, columns, range, told)
  }
}

/** @param range
  *   between which snapshots
  */
private[read] final class ChangesScan(
    handle: TableHandle, wanted: StructType, filters: Seq[Filter], metadata: Seq[StructField], columns: ChangeColumns,
    range: Increment, options: ReadOptions)
    extends GuardedScan(
      handle, None, wanted, filters, metadata = metadata, options = options, content = PlanContent.Changes) {

  override protected lazy val increment: Option[Increment] = Some(range)

  override protected def requireBatch(): Unit = ()

  override protected def shown(plan: Plan): MetadataColumns = MetadataColumns.in(plan, metadata, Some(columns))

  /** A table that was empty when it was loaded is. */
  override protected def files: Seq[PlannedFile] = if (range.end.isEmpty) Nil else plan.files

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = throw LakewardenException.notSupportedYet(
    s"Changes of ${handle.table.fullName} cannot be read as a stream.", "changes", "Read them in batches.")

  override def description(): String = s"${handle.table.fullName} changes [$range]"

  override def equals(other: Any): Boolean = other match {
    case scan: ChangesScan => super.equals(scan)
    case _                 => false
  }

  override def hashCode: Int = super.hashCode

  override protected def identity: Product = (super.identity, range, columns)
}

package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.Column
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.{ChangeColumns, ChangesScanBuilder, Increment}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The rows that snapshots of a table added and removed: `lake.sales.orders.changes`.
  *
  * @param shown
  *   its columns beside the table's
  * @param range
  *   between which snapshots; none: that of the read's options
  */
final class ChangesTable private (base: GuardedTable, val shown: ChangeColumns, range: Option[Increment])
    extends ReadOnlyTable {
  private val handle = base.handle

  override def name: String = s"${base.name}.changes"
  override def user: SessionUser = base.user
  override def columns: Array[Column] =
    (FieldIds.strip(handle.table.schema).fields ++ shown.fields).map(ShownTable.column)

  override def id: String = s"${base.id}/changes"
  override def version: String = base.version

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new ChangesScanBuilder(handle.on(options), shown, range, options)

  override def equals(other: Any): Boolean = other match {
    case table: ChangesTable => table.identity == identity
    case _                   => false
  }

  override def hashCode: Int = identity.hashCode

  private def identity: Product = (handle.table.identity, shown, range)
}

object ChangesTable {

  /** With Iceberg's columns. */
  def of(base: GuardedTable): ChangesTable = of(base, ChangeColumns.Iceberg, None)

  /** Throws `NotSupportedYet` for a table that hides the columns of changes, and `RequestInvalid` for an earlier state. */
  def of(base: GuardedTable, shown: ChangeColumns, range: Option[Increment]): ChangesTable = {
    val table = base.handle.table
    if (base.asOf.nonEmpty) throw TableStates.refused(
      s"The statement names a snapshot of ${base.name}, and its changes.", "time-travel",
      "Name the range by start-snapshot-id and end-snapshot-id.")
    table.schema.fieldNames.find(ChangeColumns.names).foreach { column =>
      throw LakewardenException.notSupportedYet(
        s"${base.name} has the column $column, which hides that of its changes.", "changes", "Rename the column.")
    }
    new ChangesTable(base, shown, range)
  }
}

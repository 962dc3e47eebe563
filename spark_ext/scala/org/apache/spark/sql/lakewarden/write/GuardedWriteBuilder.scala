package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.distributions.Distribution
import org.apache.spark.sql.connector.expressions.SortOrder
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{LoadedTable, TableHandle}
import org.apache.spark.sql.types.DataType

/** Builds an append of rows to a table. Every other way of writing is refused, before anything is begun. */
final class GuardedWriteBuilder(handle: TableHandle, info: LogicalWriteInfo, target: CommitTarget)
    extends WriteBuilder with SupportsOverwriteV2 with SupportsDynamicOverwrite {

  override def build(): Write = {
    refuseOptions()
    refuseForeignRows()
    refuseFixed(handle.table)
    new GuardedWrite(handle.table, target)
  }

  override def truncate(): WriteBuilder = throw notAppend
  override def overwrite(predicates: Array[Predicate]): WriteBuilder = throw notAppend
  override def overwriteDynamicPartitions(): WriteBuilder = throw notAppend

  private def notAppend: LakewardenException = LakewardenException.notSupportedYet(
    s"Overwriting rows of ${handle.table.fullName} is not supported.", "append-only", "Use INSERT INTO.")

  /** Options that Iceberg's own writer obeys and this one does not. */
  private def refuseOptions(): Unit =
    info.options.keySet.asScala.find(GuardedWriteBuilder.Refused).foreach { name =>
      throw LakewardenException.notSupportedYet(
        s"The write option $name is not supported.", "write-option", "Remove it from the statement.")
    }

  private def refuseForeignRows(): Unit =
    if (!DataType.equalsStructurally(info.schema, handle.table.schema, ignoreNullability = true))
      throw new LakewardenException(
        "RequestInvalid", s"The columns of the rows differ from those of ${handle.table.fullName}.", Some("schema"),
        Some("The table was altered after the statement began. Run the statement again."))

  /** Spark has no type for bytes of a fixed length, and would write a file that others cannot read. */
  private def refuseFixed(table: LoadedTable): Unit =
    if (table.metadata.required("schemas").findValuesAsText("type").asScala.exists(_.startsWith("fixed[")))
      throw LakewardenException.notSupportedYet(
        s"${table.fullName} has a column of the type fixed, which Spark cannot write.", "column-type",
        "Write the table with another engine.")
}

private object GuardedWriteBuilder {
  private val Refused =
    Set("branch", "tag", "write-format", "overwrite-mode", "replacewhere", "partitionoverwritemode")
}

/** An append: how the rows are to come (`RowOrder`), and who takes them. */
final class GuardedWrite(table: LoadedTable, target: CommitTarget) extends RequiresDistributionAndOrdering {
  private val layout = PartitionLayout.of(table.metadata, table.schema)
  private val order = RowOrder.of(table.metadata, table.schema, layout)
  private val settings = WriteSettings.of(table.writeSettings)

  override def description: String = s"append to ${table.fullName}"
  override def toString: String = description

  override def toBatch: BatchWrite = new GuardedBatchWrite(table, layout, settings, target)

  override def requiredDistribution: Distribution = order.distribution(settings)

  /** A partition with very many rows may be written by several tasks. */
  override def distributionStrictlyRequired: Boolean = false

  override def requiredOrdering: Array[SortOrder] = order.ordering(settings)
}

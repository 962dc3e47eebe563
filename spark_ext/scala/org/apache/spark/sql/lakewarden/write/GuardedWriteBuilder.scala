package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.distributions.Distribution
import org.apache.spark.sql.connector.expressions.SortOrder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{LoadedTable, TableHandle}
import org.apache.spark.sql.types.DataType

/** Builds a write of rows to a table. What cannot be written is refused before anything is begun. */
private[lakewarden] abstract class GuardedWriteBuilder(handle: TableHandle, info: LogicalWriteInfo)
    extends WriteBuilder {

  /** Who takes the files; asked when the write is built. */
  protected def target: CommitTarget

  /** Write options that are obeyed, in small letters. */
  protected def known: Set[String]

  protected def isKnown(option: String): Boolean = known(option)

  /** How rows are brought together; none: as the table's settings say. */
  protected def distribution: Option[String] = None

  override def build(): Write = {
    check()
    new GuardedWrite(handle.table, target, settings)
  }

  /** Throws what refuses the write. */
  protected def check(): Unit = {
    refuseOptions()
    refuseForeignRows()
    refuseFixed(handle.table)
  }

  protected def settings: WriteSettings = {
    val own = WriteSettings.of(handle.table.writeSettings)
    distribution.fold(own)(each => own.copy(distribution = each))
  }

  /** An option without effect is refused: a writer meant something by it. */
  protected def refuseOptions(): Unit =
    info.options.keySet.asScala.filterNot(isKnown).toSeq.sorted.headOption.foreach { name =>
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

/** Builds the first rows of a table that is being made, or the same rows in other files.
  *
  * The options of a statement that makes a table are the table's, too.
  */
private[lakewarden] final class NewFilesBuilder(handle: TableHandle, info: LogicalWriteInfo, files: CommitTarget)
    extends GuardedWriteBuilder(handle, info) {
  override protected def target: CommitTarget = files
  override protected def known: Set[String] = Set.empty
  override protected def isKnown(option: String): Boolean = !NewFilesBuilder.Refused(option)
}

private object NewFilesBuilder {

  /** Options that Iceberg's own writer obeys and this one does not. */
  private val Refused =
    Set("branch", "tag", "write-format", "overwrite-mode", "replacewhere", "partitionoverwritemode")
}

/** How the rows of a write are to come (`RowOrder`), and who takes them. */
final class GuardedWrite(table: LoadedTable, target: CommitTarget, settings: WriteSettings)
    extends RequiresDistributionAndOrdering {
  private[write] val layout = PartitionLayout.of(table.metadata, table.schema)
  private[write] val order = RowOrder.of(table.metadata, table.schema, layout)

  override def description: String = s"${target.name} ${table.fullName}"
  override def toString: String = description

  override def toBatch: BatchWrite = new GuardedBatchWrite(table, layout, settings, target)

  override def requiredDistribution: Distribution = order.distribution(settings)

  /** A partition with very many rows may be written by several tasks. */
  override def distributionStrictlyRequired: Boolean = false

  override def requiredOrdering: Array[SortOrder] = order.ordering(settings)
}

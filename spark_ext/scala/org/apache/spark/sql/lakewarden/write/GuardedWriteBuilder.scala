package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.distributions.{Distribution, UnspecifiedDistribution}
import org.apache.spark.sql.connector.expressions.SortOrder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.StreamingWrite
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{LoadedTable, TableHandle}
import org.apache.spark.sql.lakewarden.options.{GivenOptions, IcebergNames}
import org.apache.spark.sql.lakewarden.read.MetadataColumns
import org.apache.spark.sql.lakewarden.statements.MetadataInCommands
import org.apache.spark.sql.types.DataType

/** Builds a write of rows to a table. What cannot be written is refused before anything is begun. */
private[lakewarden] abstract class GuardedWriteBuilder(handle: TableHandle, info: LogicalWriteInfo)
    extends WriteBuilder {

  /** Who takes the files; asked when the write is built. */
  protected def target: CommitTarget

  /** Options of Iceberg, in small letters, that have no effect on this write. */
  protected def unused: Set[String] = Set.empty

  /** Whether an option, in small letters, that is not Iceberg's means something. */
  protected def isOther(option: String): Boolean = false

  /** How rows are brought together; none: as the table's settings say. */
  protected def distribution: Option[String] = None

  protected val told = new GivenOptions("write", IcebergNames.write, info.options, handle.table.properties)

  /** Entries for the snapshot's summary, as options and settings give them. */
  protected def summary: Map[String, String] = WriteOptions.summary(told, info.options)

  override def build(): Write = {
    check()
    new GuardedWrite(handle.table, target, settings, () => epochs, () => refuseOptions())
  }

  /** Who takes the files of a stream; none: there can be no stream. */
  protected def epochs: Option[EpochTarget] = None

  /** Throws what refuses the write. */
  protected def check(): Unit = {
    refuseOptions(StreamSink.OptionsOfSpark)
    refuseForeignRows()
    refuseFixed(handle.table)
  }

  protected def settings: WriteSettings = {
    val own = WriteSettings.of(handle.table.writeSettings)
    WriteOptions.applied(distribution.fold(own)(each => own.copy(distribution = each)), told)
  }

  /** An option without effect is refused: a writer meant something by it.
    *
    * @param used
    *   options that Spark itself uses
    */
  protected def refuseOptions(used: Set[String] = Set.empty): Unit = 
    told.check(unused, name => used(name) || isOther(name))

  private def refuseForeignRows(): Unit =
    if (!DataType.equalsStructurally(info.schema, handle.table.schema, ignoreNullability = true)) {
      val more = info.schema.fieldNames.toSeq.drop(handle.table.schema.length).filter(MetadataColumns.All.contains)
      if (more.nonEmpty) throw MetadataInCommands.unusable(more)
      throw new LakewardenException(
        "RequestInvalid", s"The columns of the rows differ from those of ${handle.table.fullName}.", Some("schema"),
        Some("The table was altered after the statement began. Run the statement again."))
    }

  /** Spark has no type for bytes of a fixed length, and would write a file that others cannot read. */
  private def refuseFixed(table: LoadedTable): Unit =
    if (table.metadata.required("schemas").findValuesAsText("type").asScala.exists(_.startsWith("fixed[")))
      throw LakewardenException.notSupportedYet(
        s"${table.fullName} has a column of the type fixed, which Spark cannot write.", "column-type",
        "Write the table with another engine.")
}

private object GuardedWriteBuilder {
  val OfOverwrites: Set[String] = Set("overwrite-mode", Validation.isolationOption, Validation.baseOption)
}

/** Builds the first rows of a table that is being made, or made anew.
  *
  * Spark gives the options of such a statement to the table, too: there they are properties.
  */
private[lakewarden] final class StagedWriteBuilder(handle: TableHandle, info: LogicalWriteInfo, staged: StagedTarget)
    extends GuardedWriteBuilder(handle, info) with SupportsTruncate {
  import StagedWriteBuilder._

  /** Spark 4.3 empties a table that it makes anew; the catalog does that anyway. */
  override def truncate(): WriteBuilder = this

  override protected def target: CommitTarget = staged.summarized(summary)

  /** A new table has no branch but main. */
  override protected def unused: Set[String] = GuardedWriteBuilder.OfOverwrites + TableHandle.BranchOption

  /** Properties with an effect, and the location. */
  override protected def isOther(option: String): Boolean = option == Path ||
    Effective.exists(option.startsWith) && handle.table.properties.exists(_._1.toLowerCase(Locale.ROOT) == option)
}

private object StagedWriteBuilder {

  /** Says where the table lies, as LOCATION does. */
  private val Path = "path"

  /** How names of properties begin that have an effect. */
  private val Effective = Seq("write.", "encryption.", "read.allowed.", "commit.", "history.")
}

/** How the rows of a write are to come (`RowOrder`), and who takes them.
  *
  * @param epochs
  *   who takes them in a stream
  * @param requireBatch
  *   throws what refuses a batch that would be allowed as a stream
  */
class GuardedWrite private[write] (
    table: LoadedTable, target: CommitTarget, settings: WriteSettings,
    epochs: () => Option[EpochTarget] = () => None, requireBatch: () => Unit = () => ())
    extends RequiresDistributionAndOrdering {
  private[write] lazy val layout: PartitionLayout = PartitionLayout.of(table.metadata, table.schema)
  private[write] lazy val order: RowOrder = RowOrder.of(table.metadata, table.schema, layout)

  override def description: String = s"${target.name} ${table.fullName}"
  override def toString: String = description

  override def toBatch: BatchWrite = {
    requireBatch()
    new GuardedBatchWrite(table, layout, settings, target)
  }

  override def toStreaming: StreamingWrite = {
    val own = epochs().getOrElse(throw LakewardenException.notSupportedYet(
      s"A stream cannot write ${table.fullName} in this way.", "stream", "Use append or complete mode."))
    new GuardedStreamingWrite(new GuardedBatchWrite(table, layout, settings, own), own)
  }

  override def requiredDistribution: Distribution = order.distribution(settings)

  /** Spark takes none where rows are not brought together. */
  override def advisoryPartitionSizeInBytes: Long =
    if (requiredDistribution.isInstanceOf[UnspecifiedDistribution]) 0 else settings.partitionSize

  /** A partition with very many rows may be written by several tasks. */
  override def distributionStrictlyRequired: Boolean = false

  override def requiredOrdering: Array[SortOrder] = order.ordering(settings)
}

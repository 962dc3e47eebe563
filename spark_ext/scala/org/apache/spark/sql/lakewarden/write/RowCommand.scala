package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{LoadedTable, SourceName, TableHandle}
import org.apache.spark.sql.lakewarden.read.{CommandScan, CommandScanBuilder, FilterJson, MetadataColumns}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** DELETE, UPDATE or MERGE of a table. */
sealed abstract class RowCommand(handle: TableHandle, override val command: RowLevelOperation.Command)
    extends RowLevelOperation {
  protected val name: String = RowCommand.name(command)
  private var scan = Option.empty[CommandScan]

  override def description: String = s"$name ${handle.table.fullName}"

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new CommandScanBuilder(handle, options, rewritten, built)

  protected def rewritten: Boolean

  /** What Spark reads. It plans that before it plans the write, unless it found out that no row can match: by
    * `WHERE NULL`, for example. Then no file has rows to delete, and `PositionDeletes` refuses them.
    */
  protected def found: Option[CommandScan] = scan

  /** Without it, nobody knows which files are to be replaced. */
  protected def read: CommandScan = scan.getOrElse(throw LakewardenException.notSupportedYet(
    s"Spark simplified the condition so that it does not read ${handle.table.fullName}.", "row-level",
    "Write the condition in another way, or leave it out."))

  /** Spark plans one scan for a command. Of two, nobody knows which one was read. */
  protected def built(made: CommandScan): Unit = {
    if (scan.nonEmpty) throw new LakewardenException(
      "TableChanged", s"Spark planned two scans of ${handle.table.fullName} for one command.", Some("row-level"),
      Some("Run the statement again."))
    scan = Some(made)
  }
}

/** Copy-on-write: Spark reads the files that can have matching rows, and writes the rows that stay, are changed or
  * come; the files go.
  *
  * Spark finds the files with matching rows by a query of `_file`, and hands them to the scan as a runtime filter.
  */
private final class CopyOnWrite(handle: TableHandle, command: RowLevelOperation.Command)
    extends RowCommand(handle, command) {
  override protected def rewritten: Boolean = true

  override def requiredMetadataAttributes(): Array[NamedReference] = Array(Expressions.column(MetadataColumns.File))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new CommandWriteBuilder(handle, info, name, new RewriteFiles(handle.table, name, () => read))
}

/** Merge-on-read: Spark reads the matching rows, and says which row goes and which comes. */
private final class MergeOnRead(handle: TableHandle, command: RowLevelOperation.Command)
    extends RowCommand(handle, command) with SupportsDelta {
  override protected def rewritten: Boolean = false

  override def rowId(): Array[NamedReference] =
    Array(MetadataColumns.File, MetadataColumns.Position).map(Expressions.column)
  override def representUpdateAsDeleteAndInsert: Boolean = true

  /** With it the plan says the partition of each file. */
  override def requiredMetadataAttributes(): Array[NamedReference] =
    MetadataColumns.of(handle.table.metadata, handle.table.schema).map(_.name)
      .filter(_ == MetadataColumns.Partition).map(Expressions.column).toArray

  override def newWriteBuilder(info: LogicalWriteInfo): DeltaWriteBuilder =
    new CommandDeltaBuilder(
      handle, info, name, new DeleteRows(handle.table, name, () => found.flatMap(_.condition)),
      () => found.fold(noFiles)(_.partitions))

  private val noFiles = Map.empty[String, (Int, String)]
}

/** A MERGE that adds the rows without a match, and changes none. Spark looks for matches of each part of a UNION by a scan
  * of its own.
  */
private final class InsertRows(handle: TableHandle) extends RowCommand(handle, RowLevelOperation.Command.MERGE) {
  private var scans = Seq.empty[CommandScan]

  override protected def rewritten: Boolean = false
  override protected def built(made: CommandScan): Unit = scans :+= made

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new CommandWriteBuilder(handle, info, name, new DeleteRows(handle.table, name, () => condition))

  private def condition: Option[JsonNode] = scans.map(_.condition)
    .reduceOption((one, other) => one.flatMap(left => other.map(FilterJson.either(left, _)))).flatten
}

object RowCommand {
  private val (copyOnWrite, mergeOnRead) = ("copy-on-write", "merge-on-read")

  /** As properties name it. */
  private def name(command: RowLevelOperation.Command): String = command.name.toLowerCase(Locale.ROOT)

  /** Throws `NotSupportedYet` for a mode that is not known, and where a column hides what the command needs. */
  def builder(handle: TableHandle, info: RowLevelOperationInfo): RowLevelOperationBuilder = {
    val (table, command) = (handle.table, info.command)
    requireColumns(table)
    mode(table, name(command)) match {
      case `copyOnWrite` => () => new CopyOnWrite(handle, command)
      case `mergeOnRead` =>
        requireSameFiles(table)
        () => new MergeOnRead(handle, command)
      case other => throw LakewardenException.notSupportedYet(
          s"${table.fullName} has the property ${property(name(command))}=$other.", "write-property",
          s"Set it to $copyOnWrite or $mergeOnRead.")
    }
  }

  /** A MERGE without clauses but WHEN NOT MATCHED. */
  def inserts(handle: TableHandle): RowLevelOperation = new InsertRows(handle)

  /** Whether a command writes files again, and not only which of their rows are deleted. */
  def writesFilesAgain(table: LoadedTable, command: String): Boolean = mode(table, command) == copyOnWrite

  private def mode(table: LoadedTable, command: String): String =
    table.properties.get(property(command)).fold(copyOnWrite)(_.toLowerCase(Locale.ROOT))

  private def property(command: String): String = s"write.$command.mode"

  private def requireColumns(table: LoadedTable): Unit = {
    val needed = Set(MetadataColumns.File, MetadataColumns.Position, MetadataColumns.Partition)
    table.schema.fieldNames.find(column => needed(column.toLowerCase(Locale.ROOT))).foreach { column =>
      throw LakewardenException.notSupportedYet(
        s"${table.fullName} has a column $column, which hides the metadata column of that name. " +
          "DELETE, UPDATE and MERGE need the latter.", "reserved-column", "Rename the column.")
    }
  }

  /** Delete files are written as data files are. */
  private def requireSameFiles(table: LoadedTable): Unit =
    table.properties.keys.toSeq.sorted
      .find(each => Formats.exists(format => each.startsWith(s"write.delete.$format."))).foreach { property =>
        throw LakewardenException.notSupportedYet(
          s"${table.fullName} has the property $property, which has no effect in Spark.", "write-property",
          "Unset it. Delete files are written with the settings of data files.")
      }

  private val Formats = DataFormat.All.map(_.name) :+ "avro"
}

/** What a command writes. */
private abstract class CommandBuilder(handle: TableHandle, info: LogicalWriteInfo, command: String)
    extends GuardedWriteBuilder(handle, info) {

  /** The table is on its branch already. A path is not how a command finds it. */
  override protected def unused: Set[String] =
    Set(SourceName.Path) ++ Option(info.options.get(TableHandle.BranchOption)).filter(_ != handle.table.branch.name)
      .map(_ => TableHandle.BranchOption)

  /** `write.delete.distribution-mode` and so on; by default that of other writes. */
  override protected def distribution: Option[String] =
    handle.table.properties.get(s"write.$command.distribution-mode").map(_.toLowerCase(Locale.ROOT))
}

/** Writes the rows that a command leaves, changes and adds. */
private final class CommandWriteBuilder(handle: TableHandle, info: LogicalWriteInfo, command: String, change: Change)
    extends CommandBuilder(handle, info, command) {
  override protected def target: CommitTarget = new TableTarget(handle, change, summary)
}

/** Writes the rows that a command changes and adds, and which rows go. */
private final class CommandDeltaBuilder(
    handle: TableHandle, info: LogicalWriteInfo, command: String, change: Change,
    partitions: () => Map[String, (Int, String)])
    extends CommandBuilder(handle, info, command) with DeltaWriteBuilder {
  private val deletes = info.schema.isEmpty

  override protected def target: CommitTarget = new TableTarget(handle, change, summary)

  override def build(): DeltaWrite = {
    if (deletes) refuseOptions() else check()
    new GuardedDeltaWrite(handle.table, target, settings, deletes, info.rowIdSchema.get, partitions)
  }
}

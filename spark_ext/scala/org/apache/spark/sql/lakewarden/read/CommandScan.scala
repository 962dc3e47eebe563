package org.apache.spark.sql.lakewarden.read

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.options.{ReadOptions, StreamOptions}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Builds the scan of a command that changes rows.
  *
  * @param rewritten
  *   whether files are written again as a whole
  * @param built
  *   is told the scan
  */
private[lakewarden] final class CommandScanBuilder(
    handle: TableHandle, options: CaseInsensitiveStringMap, rewritten: Boolean, built: CommandScan => Unit)
    extends GuardedScanBuilder(handle, None, options) {

  /** A file that is written again has to keep its other rows. */
  override protected def dropsRows: Boolean = false

  override protected def scan(
      wanted: StructType, filters: Seq[Filter], metadata: Seq[StructField], options: ReadOptions): Scan = {
    if (options.snapshots != StreamOptions()) throw LakewardenException.notSupportedYet(
      s"The rows of ${handle.table.fullName} that are changed are those of the current snapshot.", "read-option",
      s"Remove ${StreamOptions.Start} and the options of streams from the statement.")
    val made =
      if (rewritten) new RewrittenScan(handle, wanted, filters, metadata, options)
      else new CommandScan(handle, wanted, filters, metadata, options)
    made.requireUnmasked()
    built(made)
    made
  }
}

/** The scan of a command that changes rows.
  *
  * No column in it is masked: the mask would be written in the place of the values, or choose the rows. Each scan
  * equals itself alone, since what it reads can depend on what it is told while the command runs.
  */
private[lakewarden] class CommandScan(
    handle: TableHandle, wanted: StructType, filters: Seq[Filter], metadata: Seq[StructField], options: ReadOptions)
    extends GuardedScan(handle, None, wanted, filters, metadata = metadata, options = options) {
  private val table = handle.table

  /** Rows are written as they are, and hidden ones with them. */
  override protected def enforces: Boolean = false

  /** A condition that all rows meet on which the command depends; none: all rows. */
  def condition: Option[JsonNode] = new FilterJson(table.schema).of(filters)

  /** The files that are read, by path: partition spec and partition, as JSON. */
  def partitions: Map[String, (Int, String)] = files.map(each => each.path -> (each.specId, each.partition)).toMap

  override protected def files: Seq[PlannedFile] = unmasked.files

  /** Throws what refuses the plan, before Spark plans a subquery whose refusal it would hide. */
  def requireUnmasked(): Unit = {
    unmasked
    ()
  }

  protected def unmasked: Plan = {
    wanted.find(field => plan.masked(FieldIds.of(field))).foreach { field =>
      throw new LakewardenException(
        "NotAuthorized",
        s"The column ${field.name} of ${table.fullName} is masked for you. The statement would write the mask in the " +
          "place of its values, or choose rows by it.", Some("masked-column"),
        Some("You need the select permission on every column that the statement reads, unmasked."))
    }
    plan
  }

  override def equals(other: Any): Boolean = other match {
    case scan: CommandScan => scan eq this
    case _                 => false
  }

  override def hashCode: Int = System.identityHashCode(this)
}

/** The scan of a command that writes again what it reads: whole files, without their deleted rows.
  *
  * Filters choose files alone, since the rows that do not match are written again.
  */
private[lakewarden] final class RewrittenScan(
    handle: TableHandle, wanted: StructType, filters: Seq[Filter], metadata: Seq[StructField], options: ReadOptions)
    extends CommandScan(handle, wanted, filters, metadata, options)
    with SupportsRuntimeFiltering {
  private var chosen = Option.empty[Set[String]]

  override def filterAttributes(): Array[NamedReference] = Array(Expressions.column(MetadataColumns.File))

  /** Which files have matching rows. Spark may ask several times. */
  override def filter(runtime: Array[Filter]): Unit = synchronized {
    val named = runtime.toSeq.flatMap(NamedFiles.of)
    val planned = unmasked.files.map(_.path).toSet
    named.flatMap(_ -- planned).headOption.foreach { path =>
      throw new LakewardenException(
        "ConcurrentModification",
        s"${handle.table.fullName} was changed while the statement ran. [file=${AllowedPaths.shown(path)}]",
        Some("removed-files"), Some("Run the statement again."))
    }
    chosen = (chosen.toSeq ++ named).reduceOption(_ & _)
  }

  override protected def files: Seq[PlannedFile] =
    chosen.fold(unmasked.files)(some => unmasked.files.filter(file => some(file.path)))

  override protected def rowFilters: Seq[Filter] = Nil
}

private[read] object NamedFiles {

  /** The files that a filter names; none: it does not say. */
  def of(filter: Filter): Option[Set[String]] = filter match {
    case In(MetadataColumns.File, paths)     => Some(paths.toSet[Any].collect { case path: String => path })
    case EqualTo(MetadataColumns.File, path) => Some(Set(path).collect { case path: String => path })
    case AlwaysFalse()                       => Some(Set.empty)
    case _                                   => None
  }
}

package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import org.apache.spark.{SparkException, SparkThrowable}
import org.apache.spark.sql.catalyst.FileSourceOptions
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.parser.{CatalystSqlParser, ParseException}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, View}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.execution.datasources.{FileStatusWithMetadata, HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.types.{DataType, StringType, StructType}

/** Parquet or ORC files outside of Lakewarden, whose rows are copied into a table: all files below a path, or those of
  * a table in Spark's own catalog.
  *
  * Spark reads them as in `SELECT`, after the same checks: in a shared engine, that takes `engine:code`.
  *
  * @param rows
  *   what is read, analyzed
  * @param pruned
  *   conditions on partition columns, which `rows` has as well
  */
private final class CopySource private (
    val text: String, val rows: LogicalPlan, relation: HadoopFsRelation, pruned: Seq[Expression],
    val definition: Option[CatalogTable]) {
  import CopySource._

  val format: DataFormat = formatOf(relation).getOrElse(throw refused(text))

  def partitionColumns: Seq[String] = relation.partitionSchema.fieldNames.toSeq

  /** Whether a column is text out of names of directories, which no catalog gave a type. */
  def isUntyped(column: String): Boolean = definition.isEmpty && partitionColumns.exists(resolver(_, column))

  /** The files of some partitions alone. Throws `RequestInvalid` for what is no partition column. */
  def only(partition: Seq[(String, String)]): CopySource = {
    val conditions = partition.map { case (name, value) =>
      rows.output.find(each => resolver(each.name, name) && partitionColumns.exists(resolver(_, name)))
        .fold(throw noPartition(name))(condition(_, value))
    }
    conditions.reduceOption(And(_, _))
      .fold(this)(all => new CopySource(text, Filter(all, rows), relation, conditions, definition))
  }

  /** Throws `RequestInvalid` if there are none. */
  def requireFiles(): Unit = if (found.isEmpty) throw Procedures.refused(
    s"$text has no files to copy.", "copy-source", "Check the path, the table and the partition filter.")

  /** The names of the files, in full. */
  def files: Seq[String] = found.map(_.getPath.toString)

  /** Refuses files that are not those that were found before the rows were copied.
    *
    * Throws `ConcurrentModification` if one came, went or was written again.
    */
  def requireUnchanged(): Unit = {
    relation.location.refresh()
    requireSame(listed(list()))
  }

  /** The same for the files of a table after it was renamed. */
  def requireSame(now: CopySource): Unit = requireSame(now.listing)

  private def requireSame(now: Seq[(String, Long, Long)]): Unit = if (now != listing)
    throw new LakewardenException(
      "ConcurrentModification", s"The files of ${text.take(200)} were changed while its rows were copied.",
      Some("copy-source"), Some("Stop its writers, and run the statement again."))

  /** What shows that the files are still the same, wherever their directory is. */
  private lazy val listing = listed(found)

  private def listed(files: Seq[FileStatusWithMetadata]): Seq[(String, Long, Long)] = {
    val roots = relation.location.rootPaths.map(_.toUri.getPath + "/")
    def within(path: String): String = roots.find(path.startsWith).fold(path)(root => path.drop(root.length))
    files.map(each => (within(each.getPath.toUri.getPath), each.getLen, each.getModificationTime)).sorted
  }

  private def list(): Seq[FileStatusWithMetadata] = relation.location.listFiles(pruned, Nil).flatMap(_.files)

  private lazy val found = list()

  private def condition(column: Attribute, value: String): Expression =
    if (value == NoValue) IsNull(column)
    else EqualTo(column, Literal(cast(Literal(value), column.dataType).eval(), column.dataType))

  private def noPartition(name: String): LakewardenException = Procedures.refused(
    s"${name.take(80)} is not a partition column of $text.", "partition-filter",
    if (partitionColumns.isEmpty) "Leave partition_filter out." else s"Partition columns: ${partitionColumns.mkString(", ")}.")
}

private object CopySource {

  /** The name that Hive gives to the directory of NULL. */
  private val NoValue = "__HIVE_DEFAULT_PARTITION__"
  private val Session = CatalogManager.SESSION_CATALOG_NAME

  private val MostCauses = 20

  /** By Spark's condition. */
  private val Unreadable = Map("FAILED_READ_FILE" -> "DataFileDamaged", "CANNOT_MERGE_SCHEMAS" -> "RequestInvalid")

  /** Files that cannot be read are never left out. */
  private val Strict = Map("ignoreCorruptFiles" -> "false", "ignoreMissingFiles" -> "false")

  /** Formats that Spark takes in the place of a database, and that are not copied. */
  private val Others = Set("avro", "binaryfile", "csv", "json", "text", "xml", "delta", "iceberg")

  /** ``parquet.`PATH` ``, ``orc.`PATH` ``, or the name of a table in Spark's own catalog.
    *
    * Throws `NotSupportedYet` for other formats, catalogs and views.
    */
  def of(text: String): CopySource = parts(text) match {
    case Seq(format, path) if known(format).nonEmpty                    => below(text, known(format).get, path)
    case Seq(format, _) if Others(format.toLowerCase(Locale.ROOT))      => throw refused(text)
    case Seq(Session, database, name)                                   => table(text, database, name)
    case Seq(database, name)                                            => table(text, database, name)
    case _                                                              => throw refused(text)
  }

  /** A table in Spark's own catalog. */
  def table(text: String, database: String, name: String): CopySource = {
    val rows = Dataset.ofRows(SparkSession.active, UnresolvedRelation(Seq(Session, database, name))).queryExecution.analyzed
    val (relation, definition) = filesOf(text, rows)
    relation.location.refresh() // Spark keeps lists of files, which others may have changed.
    new CopySource(text, rows, relation, Nil, Some(definition.getOrElse(throw refused(text))))
  }

  /** Throws what Spark throws for a value that the type does not have, whatever the session says. */
  def cast(value: Expression, to: DataType): Expression =
    Cast(value, to, Some(SparkSession.active.sessionState.conf.sessionLocalTimeZone), EvalMode.ANSI)

  def resolver: (String, String) => Boolean = SparkSession.active.sessionState.conf.resolver

  /** Spark would guess types of partition columns: `01` would become 1. */
  private def below(text: String, format: DataFormat, path: String): CopySource = {
    val guessed = read(format, path, None)
    val (relation, _) = filesOf(text, guessed)
    val names = relation.partitionSchema.map(_.copy(dataType = StringType))
    val rows =
      if (names.isEmpty) guessed
      else {
        val own = relation.dataSchema.filterNot(each => names.exists(name => resolver(name.name, each.name)))
        read(format, path, Some(StructType(own ++ names)))
      }
    val files = filesOf(text, rows)._1
    requireAllRead(text, files)
    new CopySource(text, rows, files, Nil, None)
  }

  /** Refuses files that Spark leaves out silently: empty ones, and those beside directories of partitions. */
  private def requireAllRead(text: String, files: HadoopFsRelation): Unit = {
    val read = files.location.listFiles(Nil, Nil).flatMap(_.files).map(_.getPath.toUri.toString).toSet
    files.location.inputFiles.find(!read(_)).foreach(file => throw Procedures.refused(
      s"Spark does not read the file $file of ${text.take(200)}: it is empty, or beside directories of partitions.",
      "copy-source", "Move the file elsewhere, or name it alone."))
  }

  /** Reads the columns of every file, not those of one alone. */
  private def read(format: DataFormat, path: String, schema: Option[StructType]): LogicalPlan = {
    val reader = SparkSession.active.read.format(format.name).options(Strict + ("mergeSchema" -> "true"))
    schema.foreach(reader.schema)
    told(path)(reader.load(path).queryExecution.analyzed)
  }

  /** What Spark cannot read, as an error with a type: PySpark has none for it. */
  def told[T](source: String)(work: => T): T =
    try work
    catch {
      case problem: SparkException =>
        val causes = Iterator.iterate[Throwable](problem)(_.getCause).takeWhile(_ != null).take(MostCauses)
        throw causes.collectFirst(unreadable(source)).getOrElse(problem)
    }

  private def unreadable(source: String): PartialFunction[Throwable, LakewardenException] = {
    case cause: SparkThrowable if Unreadable.keys.exists(each => String.valueOf(cause.getCondition).startsWith(each)) =>
      val kind = Unreadable.collectFirst { case (each, kind) if cause.getCondition.startsWith(each) => kind }.get
      new LakewardenException(
        kind, s"Files of ${source.take(200)} cannot be read: ${cause.getMessage}", Some("copy-source"),
        Some("Write the file again, or move it elsewhere."), cause.asInstanceOf[Throwable])
  }

  /** The one relation of a plan, if it is made of files. A view can be anything. */
  private def filesOf(text: String, plan: LogicalPlan): (HadoopFsRelation, Option[CatalogTable]) =
    plan.collectLeaves() match {
      case Seq(leaf: LogicalRelation) if !plan.exists(_.isInstanceOf[View]) => leaf.relation match {
          case files: HadoopFsRelation if formatOf(files).nonEmpty =>
            requireStrict(files)
            (files, leaf.catalogTable)
          case _ => throw refused(text)
        }
      case _ => throw refused(text)
    }

  private def requireStrict(files: HadoopFsRelation): Unit = {
    val options = new FileSourceOptions(CaseInsensitiveMap(files.options))
    if (options.ignoreCorruptFiles || options.ignoreMissingFiles) throw LakewardenException.notSupportedYet(
      "The session or the table leaves out files that cannot be read.", "copy-source",
      "RESET spark.sql.files.ignoreCorruptFiles and spark.sql.files.ignoreMissingFiles.")
  }

  private def formatOf(files: HadoopFsRelation): Option[DataFormat] = files.fileFormat match {
    case _: ParquetFileFormat => Some(DataFormat.Parquet)
    case _: OrcFileFormat     => Some(DataFormat.Orc)
    case _                    => None
  }

  private def known(format: String): Option[DataFormat] = DataFormat.All.find(_.name.equalsIgnoreCase(format))

  private def parts(text: String): Seq[String] =
    try CatalystSqlParser.parseMultipartIdentifier(text)
    catch { case _: ParseException => throw refused(text) }

  private def refused(text: String): LakewardenException = LakewardenException.notSupportedYet(
    s"${text.take(80)} is neither a Parquet or ORC path, nor a Parquet or ORC table of Spark's own catalog.", "copy-source",
    "Use parquet.`PATH`, orc.`PATH` or spark_catalog.DATABASE.TABLE. For all else, use INSERT INTO … SELECT or CREATE TABLE … AS SELECT.")
}

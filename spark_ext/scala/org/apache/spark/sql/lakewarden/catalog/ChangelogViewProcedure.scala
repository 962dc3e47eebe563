package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.parser.{CatalystSqlParser, ParseException}
import org.apache.spark.sql.catalyst.util.quoteIfNeeded
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.options.ReadOptions
import org.apache.spark.sql.lakewarden.read.{ChangeBounds, ChangeColumns}
import org.apache.spark.sql.lakewarden.schema.PartitionTransforms
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/** `CALL <catalog>.system.create_changelog_view(table => '…')`: makes a temporary view of a table's changes. The view is
  * of the snapshots that are there when it is made.
  */
private final class ChangelogViewProcedure(catalog: CatalogPlugin, tables: => Tables)
    extends TableProcedure(catalog.name) {
  override def name: String = "create_changelog_view"
  override def description: String = "Create a temporary view of the rows that were added, removed and updated."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Seq(
    Argument("changelog_view", StringType, "The name of the view; TABLE_changes by default."),
    Argument("options", Argument.Texts, "start-snapshot-id, end-snapshot-id, start-timestamp, end-timestamp."),
    Argument("compute_updates", BooleanType, "Whether updates are told; by default with identifier_columns."),
    Argument("identifier_columns", ArrayType(StringType), "What identifies a row; by default the identifier fields."),
    Argument("net_changes", BooleanType, "Whether only the difference over all snapshots is shown.")).map(_.parameter)

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    def flag(at: Int): Option[Boolean] = Option.when(!arguments.isNullAt(at))(arguments.getBoolean(at))
    val base = tables.load(table)
    val asked = Option.when(!arguments.isNullAt(4))(
      ChangelogViews.columns(arguments.getArray(4).toSeq[Any](StringType).map(String.valueOf)))
    val told = if (arguments.isNullAt(2)) Nil else Argument.texts(arguments, 2)
    val options = new CaseInsensitiveStringMap(told.toMap.asJava)
    if (options.size < told.size) throw Procedures.refused(
      s"An option of the changes of ${base.name} occurs twice.", "read-option", "Write it once.")
    val identifiers = Option.when(flag(3).getOrElse(asked.nonEmpty))(
      asked.getOrElse(ChangelogViews.identifiers(base.handle.table)))
    val form = ChangeForm(flag(5).getOrElse(false), identifiers)
    val view =
      if (arguments.isNullAt(1)) quoteIfNeeded(s"${table.name}_changes") else arguments.getUTF8String(1).toString
    create(view, base, options, form)
    new AnsweredRows(ChangelogViews.Schema, Array(InternalRow(UTF8String.fromString(view))))
  }

  private def create(view: String, base: GuardedTable, options: CaseInsensitiveStringMap, form: ChangeForm): Unit = {
    val handle = base.handle.on(options)
    val told = ReadOptions.of(
      options, handle.table.properties, handle.table.writeSettings.path("format").asText, changes = true)
    told.snapshots.requireChanges()
    val range = ChangeBounds.of(told.snapshots).of(handle.table)
    val changes = ChangesTable.of(base, ChangeColumns.Iceberg, Some(range))
    val raw = DataSourceV2Relation.create(changes, Some(catalog), None, options)
    val rows = new ChangeRows(base.name, changes.shown, form).of(raw)
    Dataset.ofRows(SparkSession.active, rows).createOrReplaceTempView(view)
  }
}

private[catalog] object ChangelogViews {
  private[catalog] val Schema = StructType(Seq(StructField("changelog_view", StringType, nullable = false)))

  /** The identifier fields of a table. Throws `RequestInvalid` if there are none. */
  def identifiers(table: LoadedTable): Seq[Seq[String]] = {
    val schema = PartitionTransforms.current(table.metadata, "schemas", "schema-id", "current-schema-id")
    val ids = schema.path("identifier-field-ids").elements.asScala.map(_.intValue).toSet
    val found = named(schema, Nil, ids)
    if (found.isEmpty) throw Procedures.refused(
      s"Updates of ${table.fullName} cannot be told, since nothing identifies its rows.", "identifier-columns",
      "Name columns that identify a row, or use ALTER TABLE … SET IDENTIFIER FIELDS.")
    found
  }

  /** Columns by their names in SQL. Throws `RequestInvalid` if there are none: every row would be identified alike. */
  def columns(names: Seq[String]): Seq[Seq[String]] =
    if (names.nonEmpty) names.map(column)
    else throw Procedures.refused(
      "identifier_columns names no column.", "identifier-columns", "Name columns that identify a row, or leave it out.")

  /** A column by its name in SQL. */
  private def column(text: String): Seq[String] =
    try CatalystSqlParser.parseMultipartIdentifier(text)
    catch {
      case _: ParseException => throw Procedures.refused(
          s"${text.take(80)} is not the name of a column.", "identifier-columns", "Name columns of the table.")
    }

  /** Fields in structs too: an identifier is in no list or map. */
  private def named(struct: JsonNode, above: Seq[String], ids: Set[Int]): Seq[Seq[String]] =
    struct.path("fields").elements.asScala.toSeq.flatMap { field =>
      val path = above :+ field.path("name").asText
      (if (ids(field.path("id").intValue)) Seq(path) else Nil) ++ named(field.path("type"), path, ids)
    }
}

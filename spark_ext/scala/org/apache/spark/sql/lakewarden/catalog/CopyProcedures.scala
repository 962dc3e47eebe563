package org.apache.spark.sql.lakewarden.catalog

import java.util

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.expressions.{Alias, Literal, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, LogicalPlan, Project}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability.BATCH_WRITE
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.connector.expressions.Expressions
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.{CopyTarget, CopyWriteBuilder, DataFormat}
import org.apache.spark.sql.types._

/** What brings rows in from files outside of Lakewarden. They are copied by an ordinary write, so the table's files are
  * its own, and encrypted as its properties say.
  */
private abstract class CopyProcedure(catalog: CatalogPlugin) extends TableProcedure(catalog.name) {

  protected def parallelism: Argument =
    Argument.refused("parallelism", IntegerType, "Spark's settings decide how many tasks copy the rows.")

  protected def append(table: Table, source: CopySource, rows: LogicalPlan): Unit = CopySource.told(source.text) {
    Dataset.ofRows(SparkSession.active, AppendData.byName(DataSourceV2Relation.create(table, Some(catalog), None), rows))
    ()
  }

  /** Makes a table of the rows. A failure leaves none.
    *
    * @param done
    *   makes the table appear
    */
  protected def created(
      tables: Tables, table: Identifier, source: CopySource, said: Map[String, String])(
      done: StagedGuardedTable => Unit): Int = {
    source.requireFiles()
    val properties = Map(DataFormat.Property -> source.format.name) ++
      source.definition.flatMap(_.comment).map(TableCatalog.PROP_COMMENT -> _) ++ said
    val partitions = source.partitionColumns.map(Expressions.identity)
    val staged = tables.stage(table, columns(source.rows.schema), partitions.toArray, properties)
    try {
      append(staged, source, source.rows)
      done(staged)
      staged.addedFiles
    } catch {
      case problem: Throwable =>
        try staged.abortStagedChanges()
        catch { case second: Exception => problem.addSuppressed(second) }
        throw problem
    }
  }

  /** As a new table has them. */
  private def columns(schema: StructType): Array[Column] = schema.map { each =>
    Column.create(each.name, each.dataType.asNullable, true, each.getComment().orNull, null)
  }.toArray

  /** Properties that a call gives. */
  protected def texts(arguments: InternalRow, at: Int): Map[String, String] =
    if (arguments.isNullAt(at)) Map.empty
    else {
      val said = Argument.texts(arguments, at).toMap
      said.keys.find(name => Reserved(name) || name.startsWith(TableCatalog.OPTION_PREFIX)).foreach { name =>
        throw Procedures.refused(s"The property ${name.take(80)} is reserved.", "property", "Remove it from the call.")
      }
      said
    }

  protected def text(arguments: InternalRow, at: Int): Option[String] =
    Option.when(!arguments.isNullAt(at))(arguments.getUTF8String(at).toString)

  protected def required(arguments: InternalRow, at: Int): String =
    text(arguments, at).getOrElse(throw Procedures.refused(
      s"${parameters.apply(at).name} is null.", "procedure-parameter", "Give it a value."))

  /** Refuses arguments that nothing here obeys. */
  protected def requireObeyed(arguments: InternalRow, at: Int): Unit =
    if (!arguments.isNullAt(at)) parallelism.refuse()

  private val Reserved = CatalogV2Util.TABLE_RESERVED_PROPERTIES.toSet - TableCatalog.PROP_COMMENT
}

/** `CALL <catalog>.system.add_files(table => '…', source_table => '…')`: copies rows into a table. */
private final class AddFilesProcedure(catalog: CatalogPlugin, tables: => Tables) extends CopyProcedure(catalog) {
  override def name: String = "add_files"
  override def description: String = "Copy the rows of Parquet or ORC files into a table."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Seq(
    Argument("source_table", StringType, "parquet.`PATH`, orc.`PATH`, or a table of Spark's own catalog.", required = true),
    Argument("partition_filter", Argument.Texts, "Values of partition columns of the source."),
    Argument("check_duplicate_files", BooleanType, "Whether files that were copied before are refused; by default they are."),
    parallelism).map(_.parameter)

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    requireObeyed(arguments, 4)
    val handle = tables.load(table).handle
    val all = CopySource.of(required(arguments, 1))
    val source = if (arguments.isNullAt(2)) all else all.only(Argument.texts(arguments, 2))
    source.requireFiles()
    val once = arguments.isNullAt(3) || arguments.getBoolean(3)
    val target = new CopyTarget(handle, source.files, once, () => source.requireUnchanged())
    append(new CopiedTable(handle, target), source, fitted(source, FieldIds.strip(handle.table.schema)))
    new AnsweredRows(AddFilesProcedure.Schema, Array(InternalRow(target.added.toLong, target.partitions.toLong)))
  }

  /** Columns that the files do not have are NULL. Spark compares all others with those of the table. */
  private def fitted(source: CopySource, table: StructType): LogicalPlan = {
    def same(name: String) = CopySource.resolver(name, _: String)
    val read: Seq[NamedExpression] = source.rows.output.map { column =>
      table.find(each => source.isUntyped(column.name) && same(column.name)(each.name)).fold[NamedExpression](column)(each =>
        Alias(CopySource.cast(column, each.dataType), column.name)())
    }
    source.rows.output.find(column => !table.exists(each => same(column.name)(each.name))).foreach(column => throw more(column.name))
    val absent = table.filter(each => each.nullable && !read.exists(column => same(column.name)(each.name)))
    Project(read ++ absent.map(each => Alias(Literal(null, each.dataType), each.name)()), source.rows)
  }

  private def more(column: String): LakewardenException = Procedures.refused(
    s"The source has the column ${column.take(80)}, which the table does not have.", "copy-columns",
    "Add the column with ALTER TABLE, or select the others with INSERT INTO … SELECT.")
}

private object AddFilesProcedure {
  private val Schema = StructType(Seq(
    StructField("added_files_count", LongType, nullable = false),
    StructField("changed_partition_count", LongType, nullable = true)))
}

/** A table that takes copied rows. */
private final class CopiedTable(handle: TableHandle, target: CopyTarget) extends ShownTable(handle) with SupportsWrite {
  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_WRITE)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new CopyWriteBuilder(handle, info, target)
}

/** `CALL <catalog>.system.snapshot(source_table => '…', table => '…')`: makes a table with the rows of another one. */
private final class SnapshotProcedure(catalog: CatalogPlugin, tables: => Tables) extends CopyProcedure(catalog) {
  override def name: String = "snapshot"
  override def description: String = "Create a table with the rows of a table in Spark's own catalog."
  override protected val tableAt = 1

  override def parameters: Array[ProcedureParameter] =
    Argument("source_table", StringType, "A Parquet or ORC table of Spark's own catalog.", required = true).parameter +:
      super.parameters ++: Seq(
        Argument("location", StringType, "Where the table lies; by default where the catalog says."),
        Argument("properties", Argument.Texts, "Table properties."),
        parallelism).map(_.parameter).toArray

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    requireObeyed(arguments, 4)
    val source = CopySource.of(required(arguments, 0))
    if (source.definition.isEmpty) throw LakewardenException.notSupportedYet(
      "The procedure snapshot takes tables, not paths.", "copy-source",
      "Use CREATE TABLE … AS SELECT, or create a table and call add_files.")
    val location = text(arguments, 2).map(TableCatalog.PROP_LOCATION -> _)
    val files = created(tables, table, source, texts(arguments, 3) ++ location) { staged =>
      source.requireUnchanged()
      staged.commitStagedChanges()
    }
    new AnsweredRows(
      StructType(Seq(StructField("imported_files_count", LongType, nullable = false))), Array(InternalRow(files.toLong)))
  }
}

/** `CALL <catalog>.system.migrate(table => '…')`: moves a table of Spark's own catalog into this one, under the same name.
  *
  * The old table keeps its files, under another name. It gets that name before the new table appears, so that nobody
  * writes to it unnoticed; if the new table cannot appear, it gets its name back.
  */
private final class MigrateProcedure(catalog: CatalogPlugin, tables: => Tables) extends CopyProcedure(catalog) {
  override def name: String = "migrate"
  override def description: String = "Move a table of Spark's own catalog into this catalog, and rename the old one."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Seq(
    Argument("properties", Argument.Texts, "Table properties."),
    Argument("drop_backup", BooleanType, "Whether the old table is dropped; by default it is not."),
    Argument("backup_table_name", StringType, "The new name of the old table; by default NAME_BACKUP_."),
    parallelism).map(_.parameter)

  override protected def answer(named: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    requireObeyed(arguments, 4)
    val table = named.namespace.toSeq match {
      case Seq(CatalogManager.SESSION_CATALOG_NAME, database) => Identifier.of(Array(database), named.name)
      case Seq(_)                                             => named
      case _ => throw Procedures.refused(
          s"$named is not a table of Spark's own catalog.", "copy-source", "Use the form 'DATABASE.TABLE'.")
    }
    val old = TableIdentifier(table.name, Some(table.namespace.head))
    val backup = old.copy(table = text(arguments, 3).getOrElse(s"${table.name}_BACKUP_"))
    val source = CopySource.table(table.toString, table.namespace.head, table.name)
    val files = created(tables, table, source, texts(arguments, 1)) { staged =>
      rename(old, backup)
      try {
        source.requireSame(CopySource.table(table.toString, table.namespace.head, backup.table))
        staged.commitStagedChanges()
      } catch {
        case problem: Throwable =>
          rename(backup, old)
          throw problem
      }
    }
    if (!arguments.isNullAt(2) && arguments.getBoolean(2)) session.dropTable(backup, ignoreIfNotExists = false, purge = false)
    new AnsweredRows(
      StructType(Seq(StructField("migrated_files_count", LongType, nullable = false))), Array(InternalRow(files.toLong)))
  }

  private def rename(from: TableIdentifier, to: TableIdentifier): Unit = {
    Seq(from, to).foreach(each => CachedRows.drop(CatalogManager.SESSION_CATALOG_NAME +: each.nameParts))
    session.refreshTable(from)
    session.renameTable(from, to)
  }

  private def session = SparkSession.active.sessionState.catalog
}

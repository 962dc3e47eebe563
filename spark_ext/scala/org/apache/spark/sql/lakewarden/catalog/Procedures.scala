package org.apache.spark.sql.lakewarden.catalog

import java.util
import java.util.{Collections, Locale}

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.parser.{CatalystSqlParser, ParseException}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.{LocalScan, Scan}
import org.apache.spark.sql.lakewarden.{LakewardenException, Untyped}
import org.apache.spark.sql.lakewarden.rest.{CatalogClient, CatalogPaths}
import org.apache.spark.sql.types._

/** What `CALL <catalog>.system.<procedure>(table => '…')` does: the catalog is asked, and its answer shown as rows.
  *
  * @param catalog
  *   the catalog that they belong to
  * @param client
  *   asks for the session that the catalog belongs to
  * @param tables
  *   its tables
  * @param sorting
  *   reads the sort order of a rewrite
  */
final class Procedures(catalog: CatalogPlugin, client: CatalogClient, tables: => Tables, sorting: SortArguments) {
  import Procedures._

  private def catalogName: String = catalog.name

  private lazy val all: Seq[TableProcedure] =
    (Operations ++ MaintenanceProcedures.All ++ SnapshotProcedures.All)
      .map(new CatalogProcedure(_, catalogName, client)) ++
      Seq(
        new RewriteProcedure(catalog, client, tables, sorting), new RewriteDeletesProcedure(catalog, client, tables),
        new RegisterProcedure(catalogName, client), new AddFilesProcedure(catalog, tables),
        new SnapshotProcedure(catalog, tables), new MigrateProcedure(catalog, tables),
        new ChangelogViewProcedure(catalog, tables),
        new StatisticsProcedure(catalogName, client, tables))

  def list(namespace: Array[String]): Array[Identifier] =
    if (isSystem(namespace)) all.map(each => Identifier.of(Array(System), each.name)).toArray else Array.empty

  def load(ident: Identifier): UnboundProcedure =
    all.find(each => isSystem(ident.namespace) && each.name == ident.name.toLowerCase(Locale.ROOT))
      .getOrElse(throw unsupported(ident).getOrElse(refused(
        s"The procedure $ident does not exist.", "procedure",
        s"Procedures: ${all.map(each => s"$catalogName.$System.${each.name}").mkString(", ")}.")))

  /** The refusal of a procedure that Iceberg has. */
  private def unsupported(ident: Identifier): Option[LakewardenException] =
    MaintenanceProcedures.Refused.get(ident.name.toLowerCase(Locale.ROOT)).filter(_ => isSystem(ident.namespace)).map(
      LakewardenException.notSupportedYet(s"The procedure ${ident.name} is not supported.", "procedure", _))
}

object Procedures {
  private val System = "system"

  private val Operations = Seq(
    CatalogOperation(
      "rotate_key", "Create a new version of each PEK of a table. New files use it.", Seq("keys", "rotate"),
      Some("keys"),
      Seq(
        Shown("id", StringType), Shown("master-key-id", StringType), Shown("version", IntegerType),
        Shown("previous-version", IntegerType))),
    CatalogOperation(
      "rewrap_keys", "Rewrap the data keys of a table's files under the latest PEK versions.", Seq("keys", "rewrap"),
      Some("branches"),
      Seq(
        Shown("branch", StringType), Shown("snapshot-id", nullable = true), Shown("manifests"), Shown("files"),
        Shown("lost"))))

  private def isSystem(namespace: Array[String]): Boolean = namespace.sameElements(Array(System))

  private[catalog] def refused(problem: String, rule: String, hint: String): LakewardenException =
    new LakewardenException("RequestInvalid", problem, Some(rule), Some(hint))
}

/** A procedure with the name of a table among its parameters. */
private abstract class TableProcedure(catalogName: String) extends UnboundProcedure {
  override def bind(arguments: StructType): BoundProcedure = new BoundTableProcedure(this)
  def parameters: Array[ProcedureParameter] = Array(
    ProcedureParameter.in("table", StringType).comment("NAMESPACE.TABLE, with or without the catalog.").build())

  /** The place of the parameter. */
  protected def tableAt: Int = 0

  def call(arguments: InternalRow): util.Iterator[Scan] = {
    val table =
      if (arguments.isNullAt(tableAt)) throw misnamed("null") else named(arguments.getUTF8String(tableAt).toString)
    val progress = new Progress(s"$name ${(catalogName +: table.namespace.toSeq :+ table.name).mkString(".")}")
    val answered = Untyped.told(s"The procedure $name", "Check the arguments of the call.")(
      progress.during(answer(table, arguments, progress)))
    Collections.singleton[Scan](answered).iterator
  }

  /** What it answers.
    *
    * @param progress
    *   is told how far it is
    */
  protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows

  /** Asks for an operation below that of the table. */
  protected def post(client: CatalogClient, table: Identifier, operation: Seq[String], body: JsonNode): JsonNode = {
    val path = CatalogPaths.engineTable(table.namespace.toSeq, table.name, operation.head) ++ operation.tail
    Refusals.ofTable(table)(client.post(path, Some(body)))
  }

  /** A table of this catalog, whichever is the current one. */
  private def named(text: String): Identifier = {
    val parts =
      try CatalystSqlParser.parseMultipartIdentifier(text)
      catch { case _: ParseException => throw misnamed(text) }
    val below = if (parts.length > 2 && parts.head == catalogName) parts.tail else parts
    if (below.length < 2) throw misnamed(text)
    Identifier.of(below.init.toArray, below.last)
  }

  private def misnamed(text: String): LakewardenException = Procedures.refused(
    s"${text.take(80)} is not a table name.", "identifier", "Use the form 'NAMESPACE.TABLE'.")
}

/** The same procedure, for a call with an argument for each parameter. It is a class of its own: Spark takes a procedure
  * that is one of these for bound from the beginning.
  */
private final class BoundTableProcedure(procedure: TableProcedure) extends BoundProcedure {
  override def name: String = procedure.name
  override def description: String = procedure.description
  override def isDeterministic: Boolean = false
  override def parameters: Array[ProcedureParameter] = procedure.parameters
  override def call(arguments: InternalRow): util.Iterator[Scan] = procedure.call(arguments)
}

/** Rows that are there already. */
private final class AnsweredRows(schema: StructType, answered: Array[InternalRow]) extends LocalScan {
  override def readSchema: StructType = schema
  override def rows: Array[InternalRow] = answered
}

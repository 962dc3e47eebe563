package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.{AppendData, LogicalPlan, Repartition}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient}
import org.apache.spark.sql.lakewarden.write.{Arrangement, GroupsTarget}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** `CALL <catalog>.system.rewrite_data_files(table => '…')`: writes files again that are too small or too large, that have
  * many deleted rows, or that are not encrypted as the table's properties say.
  *
  * Which files these are, and in what groups, the catalog says. Each group is read by a plan of its own, and written
  * like any rows (`Rewriting`).
  */
private final class RewriteProcedure(
    catalog: CatalogPlugin, client: CatalogClient, tables: => Tables, sorting: SortArguments)
    extends TableProcedure(catalog.name) {
  import RewriteProcedure._

  override def name: String = "rewrite_data_files"
  override def description: String = "Rewrite small files into larger ones, and files whose encryption differs from the table's properties."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Array(
    parameter("strategy", StringType, "NULL", "binpack (the default) or sort."),
    parameter("sort_order", StringType, "NULL", "What to sort by: fields, or zorder(a, b)."),
    parameter("options", Argument.Texts, "NULL", "Options of the rewrite."),
    parameter("where", StringType, "NULL", "A condition; only files that can have matching rows are rewritten."),
    parameter("branch", StringType, "NULL", "The branch; by default main, and all branches for old encryption."),
    parameter("max_groups", IntegerType, "NULL", "Maximum number of file groups to rewrite; 0 only counts them."),
    parameter("forbid_old", BooleanType, "false", "Refuse files of earlier encryption epochs, if none is left."))

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    def text(at: Int): Option[String] = Option.when(!arguments.isNullAt(at))(arguments.getUTF8String(at).toString)
    val request = JsonNodeFactory.instance.objectNode
    val arrangement = sorting.of(text(1), text(2), tables.load(table))
    sorting.put(request, arrangement)
    Argument.putOptions(request, arguments, 3)
    text(4).foreach(where =>
      request.set[JsonNode]("filter", new ProcedureFilter(catalog, tables.load(table).handle).parse(where)))
    text(5).foreach(request.put("branch", _))
    val most = if (arguments.isNullAt(6)) Int.MaxValue else arguments.getInt(6)
    val begun = ask(table, request, math.min(most, 0))
    request.set[JsonNode]("sequence-number", Answers.field(begun, "sequence-number"))
    val done = new Rewriting(new Files(table, request, arrangement), begun, progress, most).run()
    val removed = if (most > 0 && Answers.field(begun, "dangling").asBoolean) removeDangling(table, text(5)) else 0
    val forbidden = !arguments.isNullAt(7) && arguments.getBoolean(7) && forbid(table)
    new AnsweredRows(Schema, Array(row(done, ask(table, request, 0), removed, forbidden)))
  }

  /** Data files that are written again. */
  private final class Files(table: Identifier, request: ObjectNode, arrangement: Arrangement) extends RewriteSource {
    override def ask(done: Rewritten, groups: Int): JsonNode =
      RewriteProcedure.this.ask(table, done.without(request), groups)

    override def group(answered: JsonNode): RewriteGroup = FileGroup.of(answered)
    override def target(): GroupsTarget = new GroupsTarget(tables.load(table).handle)

    override def write(group: RewriteGroup, target: GroupsTarget): Unit = {
      val files = new GroupTable(target.handle, group.files, target.of(group.files), arrangement)
      Dataset.ofRows(SparkSession.active, AppendData.byPosition(relation(files), packed(relation(files), files)))
      ()
    }
  }

  /** A table of the catalog, as the check of plans in a shared engine wants it. It has no name there: Spark would
    * load the whole table by it.
    */
  private def relation(files: GroupTable): DataSourceV2Relation =
    DataSourceV2Relation.create(files, Some(catalog), None)

  /** As many tasks as files are to come; where rows are brought together by partition, Spark decides that. */
  private def packed(rows: LogicalPlan, files: GroupTable): LogicalPlan =
    if (files.partitioning.nonEmpty) rows else Repartition(files.group.outputs, shuffle = false, rows)

  private def ask(table: Identifier, request: ObjectNode, groups: Int): JsonNode =
    post(client, table, Seq("rewrites"), request.deepCopy.put("max-groups", groups))

  /** Removes delete files that apply to no file any more; how many. */
  private def removeDangling(table: Identifier, branch: Option[String]): Int = {
    val request = JsonNodeFactory.instance.objectNode
    branch.foreach(request.put("branch", _))
    Answers.field(post(client, table, Seq("rewrites", "dangling-deletes"), request), "removed-delete-files-count").intValue
  }

  private def forbid(table: Identifier): Boolean =
    Answers.field(post(client, table, Seq("regimes", "forbid-old"), JsonNodeFactory.instance.objectNode), "old-forbidden").asBoolean
}

private object RewriteProcedure {
  private val Schema = StructType(Seq(
    StructField("rewritten_data_files_count", IntegerType, nullable = false),
    StructField("added_data_files_count", IntegerType, nullable = false),
    StructField("rewritten_bytes_count", LongType, nullable = false),
    StructField("failed_data_files_count", IntegerType, nullable = false),
    StructField("removed_delete_files_count", IntegerType, nullable = false),
    StructField("failed_groups", LongType, nullable = false),
    StructField("left_files", LongType, nullable = false),
    StructField("left_bytes", LongType, nullable = false),
    StructField("old_forbidden", BooleanType, nullable = false),
    StructField("problem", StringType, nullable = true)))

  private def parameter(name: String, kind: DataType, default: String, about: String): ProcedureParameter =
    ProcedureParameter.in(name, kind).defaultValue(default).comment(about).build()

  private def row(done: Rewritten, left: JsonNode, removed: Int, forbidden: Boolean): InternalRow = {
    val problem = RewriteProblems.told(done.problems.map(_.getMessage))
    InternalRow(
      done.files.toInt, done.added.toInt, done.bytes, done.failedFiles + done.unread.size, removed,
      done.failed.size.toLong, Answers.field(left, "left-files").longValue, Answers.field(left, "left-bytes").longValue,
      forbidden, Option(problem).filter(_.nonEmpty).map(UTF8String.fromString).orNull)
  }
}

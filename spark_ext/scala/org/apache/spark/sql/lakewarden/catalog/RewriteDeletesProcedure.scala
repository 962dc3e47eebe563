package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.AppendData
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient}
import org.apache.spark.sql.lakewarden.write.GroupsTarget
import org.apache.spark.sql.types._

/** `CALL <catalog>.system.rewrite_position_delete_files(table => '…')`: writes position delete files again that are
  * small, delete nothing any more, or are not encrypted as the table's properties say.
  *
  * Which files these are, and in what groups, the catalog says (`Rewriting`).
  */
private final class RewriteDeletesProcedure(catalog: CatalogPlugin, client: CatalogClient, tables: => Tables)
    extends TableProcedure(catalog.name) {
  import RewriteDeletesProcedure._

  override def name: String = "rewrite_position_delete_files"
  override def description: String = "Rewrite position delete files into fewer ones, and drop those that delete nothing."

  override def parameters: Array[ProcedureParameter] = super.parameters ++ Array(
    ProcedureParameter.in("options", Argument.Texts).defaultValue("NULL").comment("Options of the rewrite.").build(),
    ProcedureParameter.in("where", StringType).defaultValue("NULL")
      .comment("A condition; only delete files of partitions with matching rows are rewritten.").build())

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    val request = JsonNodeFactory.instance.objectNode
    Argument.putOptions(request, arguments, 1)
    if (!arguments.isNullAt(2)) {
      val where = arguments.getUTF8String(2).toString
      request.set[JsonNode]("filter", new ProcedureFilter(catalog, tables.load(table).handle).parse(where))
    }
    val source = new DeleteFiles(table, request)
    val begun = source.ask(Rewritten(), 0)
    request.set[JsonNode]("sequence-number", Answers.field(begun, "sequence-number"))
    val done = new Rewriting(source, begun, progress, Int.MaxValue).run()
      .orProblem(" The other delete files were rewritten.")
    new AnsweredRows(Schema, Array(InternalRow(done.files.toInt, done.added.toInt, done.bytes, done.addedBytes)))
  }

  private final class DeleteFiles(table: Identifier, request: ObjectNode) extends RewriteSource {
    override def ask(done: Rewritten, groups: Int): JsonNode =
      post(client, table, Seq("rewrites", "position-deletes"), done.without(request).put("max-groups", groups))

    override def group(answered: JsonNode): RewriteGroup = DeleteGroup.of(answered)
    override def target(): GroupsTarget = new GroupsTarget(tables.load(table).handle)

    override def write(group: RewriteGroup, target: GroupsTarget): Unit = group match {
      case deletes: DeleteGroup =>
        val files = new DeleteGroupTable(target.handle, deletes, target.of(deletes.files))
        Dataset.ofRows(SparkSession.active, AppendData.byPosition(relation(files), relation(files)))
        ()
      case other => throw new IllegalArgumentException(s"A group of ${other.getClass.getName}.")
    }
  }

  /** See `RewriteProcedure`. */
  private def relation(files: DeleteGroupTable): DataSourceV2Relation =
    DataSourceV2Relation.create(files, Some(catalog), None)
}

private object RewriteDeletesProcedure {
  private val Schema = StructType(Seq(
    StructField("rewritten_delete_files_count", IntegerType, nullable = false),
    StructField("added_delete_files_count", IntegerType, nullable = false),
    StructField("rewritten_bytes_count", LongType, nullable = false),
    StructField("added_bytes_count", LongType, nullable = false)))
}

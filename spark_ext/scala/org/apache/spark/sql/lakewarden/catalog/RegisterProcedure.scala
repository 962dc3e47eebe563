package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.JsonNodeFactory

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}
import org.apache.spark.sql.types._

/** `CALL <catalog>.system.register_table(table => '…', metadata_file => '…')`: takes over a table of another catalog. */
private final class RegisterProcedure(catalogName: String, client: CatalogClient) extends TableProcedure(catalogName) {
  import RegisterProcedure._
  private lazy val paths = new CatalogPaths(client)

  override def name: String = "register_table"
  override def description: String = "Register a table by its metadata file."

  override def parameters: Array[ProcedureParameter] = super.parameters :+
    ProcedureParameter.in("metadata_file", StringType).comment("The location of its metadata.json.").build()

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    if (arguments.isNullAt(1)) throw Procedures.refused(
      "metadata_file is null.", "metadata-file", "Give the location of a metadata.json.")
    val body = JsonNodeFactory.instance.objectNode.put("name", table.name)
      .put("metadata-location", arguments.getUTF8String(1).toString)
    val path = paths.namespace(table.namespace.toSeq) :+ "register"
    val metadata = Answers.field(Refusals.ofNewTable(table)(client.post(path, Some(body))), "metadata")
    new AnsweredRows(Schema, Array(row(metadata)))
  }

  private def row(metadata: JsonNode): InternalRow = {
    val current = Option(metadata.get("current-snapshot-id")).filter(_.isIntegralNumber).map(_.longValue)
    val summary = metadata.path("snapshots").elements.asScala
      .find(each => current.contains(each.path("snapshot-id").longValue)).map(_.path("summary"))
    def total(name: String): Any = summary.flatMap(each => each.path(name).asText.toLongOption).getOrElse(null)
    InternalRow(current.getOrElse(null), total("total-records"), total("total-data-files"))
  }
}

private object RegisterProcedure {
  private val Schema = StructType(Seq("current_snapshot_id", "total_records_count", "total_data_files_count").map(
    StructField(_, LongType, nullable = true)))
}

package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.node.JsonNodeFactory

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.quoteIfNeeded
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** `CALL <catalog>.system.compute_table_stats(table => '…')`: counts the distinct values of columns, by sketches, and
  * gives the numbers to the catalog. No statistics file is written: it would be in plaintext.
  *
  * Spark reads the columns as in any query of the user. The catalog refuses the numbers of a column that the user does not
  * see as it is.
  *
  * Source: Apache Iceberg's `ComputeTableStatsProcedure`.
  */
private final class StatisticsProcedure(catalogName: String, client: CatalogClient, tables: => Tables)
    extends TableProcedure(catalogName) {
  import StatisticsProcedure._

  override def name: String = "compute_table_stats"
  override def description: String = "Count the distinct values of columns for Spark's optimizer."
  override def parameters: Array[ProcedureParameter] = super.parameters ++ Arguments.map(_.parameter)

  override protected def answer(table: Identifier, arguments: InternalRow, progress: Progress): AnsweredRows = {
    val loaded = tables.load(table).handle.table
    val snapshot = if (arguments.isNullAt(1)) loaded.snapshotId else Some(arguments.getLong(1))
    val past = snapshot.fold(loaded.schema)(id => tables.load(table, _.snapshot(id.toString)).handle.table.schema)
    val known = loaded.schema.fields.toSeq.filter(each => isCounted(each.dataType)).flatMap(each => in(past, each).map(each.name -> _))
    val columns = if (arguments.isNullAt(2)) known
      else arguments.getArray(2).toSeq[Any](StringType).map(each => column(known, String.valueOf(each), loaded)).distinct
    new AnsweredRows(Schema, snapshot.toArray.map { id =>
      val counts = if (columns.isEmpty) Nil else counted(loaded, id, columns.map(_._2))
      val body = JsonNodeFactory.instance.objectNode.put("snapshot-id", id)
      val told = body.putObject("distinct-counts")
      columns.zip(counts).foreach { case ((name, _), count) => told.put(name, count) }
      val file = Answers.field(post(client, table, Seq("statistics"), body), "statistics-file")
      InternalRow(if (file.isNull) null else UTF8String.fromString(file.asText))
    })
  }

  /** A snapshot is read with its own schema, where a column can have another name, or be missing. */
  private def in(past: StructType, column: StructField): Option[StructField] =
    past.find(each => FieldIds.of(each) == FieldIds.of(column)).filter(each => isCounted(each.dataType))

  private def counted(table: LoadedTable, snapshot: Long, columns: Seq[StructField]): Seq[Long] = {
    val sketches = columns.map(each => s"theta_sketch_estimate(theta_sketch_agg(${hashed(each)}))")
    val from = table.nameParts.map(quoteIfNeeded).mkString(".")
    val rows = SparkSession.active.sql(s"SELECT ${sketches.mkString(", ")} FROM $from VERSION AS OF $snapshot").collect()
    columns.indices.map(rows.head.getLong)
  }

  private def column(known: Seq[(String, StructField)], name: String, table: LoadedTable): (String, StructField) =
    known.find(_._1 == name).getOrElse(throw Procedures.refused(
      s"${name.take(80)} is not a column of ${table.fullName} in this snapshot whose values can be counted.", "column",
      "Name top-level columns that are not structs, arrays or maps, and that the snapshot has."))
}

private object StatisticsProcedure {
  private val Arguments = Seq(
    Argument("snapshot_id", LongType, "The snapshot; the current one by default."),
    Argument("columns", ArrayType(StringType), "The columns; all by default."))

  private val Schema = StructType(Seq(StructField("statistics_file", StringType)))

  private def isCounted(dataType: DataType): Boolean = dataType.isInstanceOf[AtomicType]

  /** A value as a type that sketches take. */
  private def hashed(field: StructField): String = {
    val name = s"`${field.name.replace("`", "``")}`"
    field.dataType match {
      case IntegerType | LongType | FloatType | DoubleType | StringType | BinaryType => name
      case _                                                                        => s"CAST($name AS STRING)"
    }
  }
}

package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ShowCreateTable}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.escapeSingleQuotedString
import org.apache.spark.sql.connector.catalog.{Column, Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.{ArrayType, DataType, MapType, StructField, StructType}

/** SHOW CREATE TABLE prints what its user can run: without the properties that the catalog sets itself, and with the
  * sort order and the identifier fields as properties (`LayoutProperties`).
  */
object ShowCreateRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case show: ShowCreateTable =>
      show.child match {
        case found @ ResolvedTable(_, _, table: ShownTable, _) =>
          show.withNewChildren(Seq(found.copy(table = new RecreatedTable(table))))
        case _ => show
      }
    case other => other
  }
}

/** A table as a statement would make it again. */
private final class RecreatedTable(table: ShownTable) extends Table {
  override def name: String = table.name
  override def columns: Array[Column] = table.columns.map { each =>
    val comment = Option(each.comment).map(LiteralText.of).orNull
    Column.create(each.name, LiteralText.of(each.dataType), each.nullable, comment, each.metadataInJSON)
  }

  /** Without what no value comes from any more. */
  override def partitioning: Array[Transform] = table.partitioning.filterNot(_.name == "void")
  override def capabilities: util.Set[TableCapability] = table.capabilities

  /** The location that the catalog chose for this table is not one of another. */
  override def properties: util.Map[String, String] = {
    val shown = table.properties.asScala.toMap
    val managed = shown.get(TableCatalog.PROP_IS_MANAGED_LOCATION).contains("true")
    val own = shown.get(TableCatalog.PROP_LOCATION).filter(_ => managed)
    val others = shown.get(RecreatedTable.Allowed).toSeq.flatMap(_.split(',')).filterNot(own.contains)
    val allowed = if (others.isEmpty) Map.empty else Map(RecreatedTable.Allowed -> others.mkString(","))
    val told = shown -- RecreatedTable.Set - RecreatedTable.Allowed ++ allowed ++ table.layout
    told.map { case (name, value) => LiteralText.of(name) -> LiteralText.of(value) }.asJava
  }
}

private object RecreatedTable {
  private val Allowed = "read.allowed.data.paths"

  /** Properties that only the catalog sets. */
  private val Set = Seq("encryption.pek-id")
}

/** Texts that Spark puts into literals. Before 4.3, it escapes their quotes, and leaves backslashes, so that a comment
  * would be another one in the statement, or end there.
  */
private object LiteralText {
  private val backslash = "\\"
  private val isLeft = escapeSingleQuotedString(backslash) == backslash

  def of(text: String): String = if (isLeft) text.replace(backslash, backslash * 2) else text

  /** With the comments of nested fields. */
  def of(dataType: DataType): DataType = dataType match {
    case StructType(fields)                => StructType(fields.map(of))
    case ArrayType(element, nullable)      => ArrayType(of(element), nullable)
    case MapType(key, value, nullable)     => MapType(of(key), of(value), nullable)
    case other                             => other
  }

  private def of(field: StructField): StructField = {
    val typed = field.copy(dataType = of(field.dataType))
    field.getComment().fold(typed)(comment => typed.withComment(of(comment)))
  }
}

package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ShowCreateTable}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{Column, Table, TableCapability, TableCatalog}
import org.apache.spark.sql.connector.expressions.Transform

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
  override def columns: Array[Column] = table.columns

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
    (shown -- RecreatedTable.Set - RecreatedTable.Allowed ++ allowed ++ table.layout).asJava
  }
}

private object RecreatedTable {
  private val Allowed = "read.allowed.data.paths"

  /** Properties that only the catalog sets. */
  private val Set = Seq("encryption.pek-id")
}

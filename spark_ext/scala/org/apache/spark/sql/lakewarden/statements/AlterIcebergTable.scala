package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.plans.logical.{AlterTableCommand, LogicalPlan}
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.connector.catalog.{CatalogV2Util, TableChange}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.catalog.IcebergChange

/** One of Iceberg's statements that change a table. Spark finds the table and hands the changes to its catalog, as with
  * its own statements: columns are found by the session's rule for upper and lower case.
  */
final case class AlterIcebergTable(table: LogicalPlan, wanted: Seq[TableChange]) extends AlterTableCommand {

  override def changes: Seq[TableChange] = table match {
    case ResolvedTable(_, _, known, _) =>
      val schema = CharVarcharUtils.getRawSchema(CatalogV2Util.v2ColumnsToStructType(known.columns))
      def spelled(path: Seq[String]): Seq[String] =
        schema.findNestedField(path, includeCollections = true, SQLConf.get.resolver)
          .fold(path) { case (parents, field) => parents :+ field.name }
      wanted.map {
        case change: IcebergChange => change.named(spelled)
        case other                 => other
      }
    case _ => wanted
  }

  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan = copy(table = newChild)
}

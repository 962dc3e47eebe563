package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.plans.logical.{DeleteFromTable, LogicalPlan, RowLevelWrite}
import org.apache.spark.sql.connector.write.RowLevelOperation.Command.DELETE
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.LakewardenException

/** Refuses options of DELETE (`DELETE FROM t WITH (…)`): where whole files are removed, Spark leaves them out. */
object DeleteRule extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan.foreach {
    case delete: DeleteFromTable                                 => check(delete.table)
    case rows: RowLevelWrite if rows.operation.command == DELETE => check(rows.originalTable)
    case _                                                       =>
  }

  private def check(target: LogicalPlan): Unit = target.foreach {
    case relation: DataSourceV2Relation if relation.table.isInstanceOf[GuardedTable] && !relation.options.isEmpty =>
      throw LakewardenException.notSupportedYet(
        s"DELETE has no option ${relation.options.keySet.asScala.toSeq.sorted.mkString(", ")}.", "write-option",
        "Remove it from the statement. Table properties say how rows are deleted.")
    case _ =>
  }
}

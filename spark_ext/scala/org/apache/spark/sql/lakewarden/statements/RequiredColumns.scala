package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.analysis.{ResolvedFieldName, ResolvedTable}
import org.apache.spark.sql.catalyst.plans.logical.{AlterColumns, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.GuardedTable

/** Refuses `ALTER COLUMN … SET NOT NULL`: rows that are there can have no value. Spark refuses it, too, by an error that
  * names no table and has no condition of its own.
  */
object RequiredColumns extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan match {
      case AlterColumnsOf(table, columns) => columns.headOption.foreach { column =>
          throw LakewardenException.notSupportedYet(
            s"ALTER COLUMN ... SET NOT NULL is not supported: rows of ${table.name} can be without a value in `$column`.",
            "set-not-null", "Make another table with a column that is NOT NULL, and insert the rows into it.")
        }
      case _ =>
    }
    plan
  }

  private object AlterColumnsOf {

    /** The table, and the columns without NOT NULL that are to have it. */
    def unapply(alter: AlterColumns): Option[(GuardedTable, Seq[String])] = alter.table match {
      case ResolvedTable(_, _, table: GuardedTable, _) =>
        val wanted = alter.specs.filter(_.newNullability.contains(false)).map(_.column)
        Some((table, wanted.collect { case column: ResolvedFieldName if column.field.nullable => column.name.mkString(".") }))
      case _ => None
    }
  }
}

package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.catalyst.plans.LeftAnti
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, Join, LogicalPlan, V2WriteCommand}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.catalog.{GuardedTable, InsertedTable}

/** Makes a MERGE a row-level operation that has only clauses `WHEN NOT MATCHED`.
  *
  * Spark makes it a write of the rows without a match in the table, which is read and appended to as by any INSERT. An
  * append is validated against no other commit, and its query can be masked: two of them at the same time would insert a
  * row twice. The one relation is on both sides of the write; in no other statement Spark reads the very relation that
  * it writes. `ON false` reads nothing.
  */
object InsertingMerge extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case write @ WriteOf(target, table) if reads(write.query, target) =>
      val inserted = target.copy(table = new InsertedTable(table, target.options))
      val query = AnalysisHelper.allowInvokingTransformsInAnalyzer {
        write.query.transform { case relation: DataSourceV2Relation if isSame(relation, target) => inserted }
      }
      write.withNewTable(inserted).withNewQuery(query)
  }

  private def reads(query: LogicalPlan, target: DataSourceV2Relation): Boolean = query.exists {
    case Join(_, relation: DataSourceV2Relation, LeftAnti, condition, _) =>
      isSame(relation, target) && !condition.contains(Literal.FalseLiteral)
    case _ => false
  }

  private def isSame(relation: DataSourceV2Relation, target: DataSourceV2Relation): Boolean =
    relation.outputSet == target.outputSet

  private object WriteOf {
    def unapply(write: V2WriteCommand): Option[(DataSourceV2Relation, GuardedTable)] = write.table match {
      case relation: DataSourceV2Relation => relation.table match {
          case _: InsertedTable    => None
          case table: GuardedTable => Some((relation, table))
          case _                   => None
        }
      case _ => None
    }
  }
}

package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.{LeafExpression, Literal, Unevaluable}
import org.apache.spark.sql.catalyst.plans.logical.{DeleteAction, LogicalPlan, MergeIntoTable}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.catalog.GuardedTable
import org.apache.spark.sql.lakewarden.options.AsStored
import org.apache.spark.sql.types.{BooleanType, DataType}

/** Makes Spark count the matches of rows that a MERGE keeps, and look for matches in all rows.
  *
  * Of a MERGE without WHEN MATCHED, but with WHEN NOT MATCHED BY SOURCE, Spark writes a row that has matches again, once
  * for each match, where files are written again. It counts matches only where a clause is for them. So there is one
  * here, which never applies: Spark refuses such a row with MERGE_CARDINALITY_VIOLATION.
  *
  * Of a MERGE that only inserts, Spark makes an append of the rows that match no row of a scan of the target. That scan
  * is of all rows, as they are stored; else rows would come twice.
  *
  * Spark rewrites a MERGE as soon as it is resolved, before rules of extensions run. So one rule adds the clause with a
  * condition that is not resolved, and the other, once the table is known, resolves it or takes the clause away.
  */
object KeptMatches {

  /** Before relations are looked up. */
  object Begun extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case merge: MergeIntoTable if merge.matchedActions.isEmpty =>
        merge.copy(matchedActions = Seq(DeleteAction(Some(Undecided))))
    }
  }

  /** @param rewrites
    *   whether MERGE writes the files of a table again
    */
  final class Decided(rewrites: DataSourceV2Relation => Boolean) extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case merge @ MergeTo(target) if merge.matchedActions == Seq(DeleteAction(Some(Undecided))) =>
        val inserts = merge.notMatchedBySourceActions.isEmpty
        val counted = if (!inserts && rewrites(target)) Seq(DeleteAction(Some(Literal.FalseLiteral))) else Nil
        merge.copy(matchedActions = counted, targetTable = if (inserts) stored(merge.targetTable) else merge.targetTable)
    }
  }

  private def stored(target: LogicalPlan): LogicalPlan = target.transform {
    case relation: DataSourceV2Relation if relation.table.isInstanceOf[GuardedTable] =>
      relation.copy(options = AsStored.put(relation.options))
  }

  private object MergeTo {
    def unapply(merge: MergeIntoTable): Option[DataSourceV2Relation] =
      merge.targetTable.collectFirst { case relation: DataSourceV2Relation => relation }
  }

  /** The condition that is not known yet. */
  case object Undecided extends LeafExpression with Unevaluable {
    override lazy val resolved: Boolean = false
    override def nullable: Boolean = false
    override def dataType: DataType = BooleanType
  }
}

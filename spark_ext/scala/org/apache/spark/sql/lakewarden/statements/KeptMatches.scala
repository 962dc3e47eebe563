package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.{LeafExpression, Literal, Unevaluable}
import org.apache.spark.sql.catalyst.plans.logical.{DeleteAction, LogicalPlan, MergeIntoTable}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{BooleanType, DataType}

/** Makes Spark count the matches of rows that a MERGE keeps.
  *
  * Of a MERGE without WHEN MATCHED, but with WHEN NOT MATCHED BY SOURCE, Spark writes a row that has matches again, once
  * for each match, where files are written again. It counts matches only where a clause is for them. So there is one
  * here, which never applies: Spark refuses such a row with MERGE_CARDINALITY_VIOLATION.
  *
  * Spark rewrites a MERGE as soon as it is resolved, before rules of extensions run. So one rule adds the clause with a
  * condition that is not resolved, and the other, once the table is known, resolves it or takes the clause away.
  */
object KeptMatches {

  /** Before relations are looked up. */
  object Begun extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case merge: MergeIntoTable if merge.matchedActions.isEmpty && merge.notMatchedBySourceActions.nonEmpty =>
        merge.copy(matchedActions = Seq(DeleteAction(Some(Undecided))))
    }
  }

  /** @param rewrites
    *   whether MERGE writes the files of a table again
    */
  final class Decided(rewrites: DataSourceV2Relation => Boolean) extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case merge @ MergeTo(target) if merge.matchedActions == Seq(DeleteAction(Some(Undecided))) =>
        val counted = if (rewrites(target)) Seq(DeleteAction(Some(Literal.FalseLiteral))) else Nil
        merge.copy(matchedActions = counted)
    }
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

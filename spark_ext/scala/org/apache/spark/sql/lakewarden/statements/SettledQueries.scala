package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.{Expression, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.write.RowLevelOperation.Command.MERGE
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.catalog.GuardedTable

/** Makes Spark run the query of a MERGE once, if it can have other rows when it runs again.
  *
  * Where files are written again, Spark runs the query twice: first to find the files with rows that match, then to
  * change their rows. A row that only the second run has would match nothing, because its file is not read, and would be
  * inserted beside the row of the table. So for such a query no files are searched: all are read, and written again.
  * Where delete files are written, all are read in any case.
  *
  * Spark refuses a search that is not deterministic. Without one, the MERGE runs. UPDATE is left to Spark: it runs a
  * subquery for rows that change, and again for those that stay.
  */
object SettledQueries extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case replace: ReplaceData if isUnsettled(plan, replace, replace.groupFilterCondition) =>
      replace.copy(groupFilterCondition = None)
    case delta: WriteDelta if isUnsettled(plan, delta, DeltaSearch.of(delta)) => DeltaSearch.without(delta)
  }

  private def isUnsettled(plan: LogicalPlan, write: RowLevelWrite, search: Option[Expression]): Boolean =
    write.originalTable match {
      case relation: DataSourceV2Relation if relation.table.isInstanceOf[GuardedTable] && write.operation.command == MERGE =>
        search.exists(new Definitions(plan).isUnsettled)
      case _ => false
    }

  /** @param plan
    *   the statement. What WITH defines before it is not below the queries that use it
    */
  private final class Definitions(plan: LogicalPlan) {
    private lazy val named = plan.collectWithSubqueries { case definition: CTERelationDef => definition }

    def isUnsettled(search: Expression): Boolean = search.exists {
      case subquery: SubqueryExpression => isUnsettled(subquery.plan)
      case other                        => !other.deterministic
    }

    private def isUnsettled(query: LogicalPlan): Boolean = {
      val uses = query.collectWithSubqueries { case reference: CTERelationRef => reference }.nonEmpty
      differs(query) || (uses && named.exists(differs))
    }

    private def differs(query: LogicalPlan): Boolean = query.collectWithSubqueries {
      case limit @ (_: GlobalLimit | _: LocalLimit | _: Offset | _: Tail | _: Sample) => limit
      case other if !other.deterministic => other
    }.nonEmpty
  }
}

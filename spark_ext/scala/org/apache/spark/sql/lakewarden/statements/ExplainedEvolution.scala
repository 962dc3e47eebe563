package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.lakewarden.LakewardenException

/** Refuses `EXPLAIN` of a statement `WITH SCHEMA EVOLUTION`: Spark adds its columns to the table to make the plan.
  *
  * @param isOurs
  *   whether a table of this name is in a Lakewarden catalog
  */
final class ExplainedEvolution(isOurs: Seq[String] => Boolean) extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan match {
    case ExplainCommand(explained, _) if explained.exists(evolves) => throw LakewardenException.notSupportedYet(
        "EXPLAIN of a statement WITH SCHEMA EVOLUTION is not supported: it would add the columns to the table.",
        "explain-evolution", "Explain the statement without WITH SCHEMA EVOLUTION.")
    case _ =>
  }

  /** The table that such a statement changes comes first in it. */
  private def evolves(statement: LogicalPlan): Boolean = {
    val named = statement.productElementNames.zip(statement.productIterator).toSeq
    named.contains("withSchemaEvolution" -> true) && named.map(_._2).collectFirst { case table: LogicalPlan => table }
      .exists(_.exists {
        case table: UnresolvedRelation => isOurs(table.multipartIdentifier)
        case _                         => false
      })
  }
}

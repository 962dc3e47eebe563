package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.Identifier

/** Spark does not read `CHANGES`. */
trait Changelogs {
  protected def changing(ident: Identifier): GuardedTable
}

object ChangelogRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}

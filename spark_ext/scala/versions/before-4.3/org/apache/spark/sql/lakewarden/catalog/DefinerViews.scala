package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}

/** There are none: views take PySpark 4.3. */
object DefinerViews {
  def relation(session: SparkSession): Option[LogicalPlan] = None

  object OptionsCheck extends (LogicalPlan => Unit) {
    override def apply(plan: LogicalPlan): Unit = ()
  }

  object Strategy extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = Nil
  }
}

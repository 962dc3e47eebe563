package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta

/** How Spark would search the files with matching rows where delete files are written. */
object DeltaSearch {
  def of(delta: WriteDelta): Option[Expression] = delta.groupFilterCondition
  def without(delta: WriteDelta): WriteDelta = delta.copy(groupFilterCondition = None)
}

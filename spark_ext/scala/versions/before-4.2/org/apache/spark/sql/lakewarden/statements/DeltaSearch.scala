package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta

/** Before 4.2, Spark searches no files where delete files are written. */
object DeltaSearch {
  def of(delta: WriteDelta): Option[Expression] = None
  def without(delta: WriteDelta): WriteDelta = delta
}

package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.types.StructField

/** What a footer that was judged tells of the rows of a split, column by column; none: it does not tell, or not
  * exactly.
  */
private[read] trait FooterSummary {
  def rows: Long

  /** How many values of a column are not NULL. */
  def values(column: StructField): Option[Long]

  /** The minimum or maximum of a column, as Spark has it; null if all are NULL. */
  def extreme(column: StructField, minimum: Boolean): Option[Any]
}

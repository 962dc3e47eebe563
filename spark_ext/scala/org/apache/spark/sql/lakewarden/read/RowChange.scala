package org.apache.spark.sql.lakewarden.read

/** What a plan's rows are of. */
private[read] sealed trait PlanContent

private[read] object PlanContent {

  /** Of the table. */
  case object Rows extends PlanContent

  /** Of position delete files. */
  case object PositionDeletes extends PlanContent

  /** Of the table, as snapshots added and removed them. */
  case object Changes extends PlanContent
}

/** What a snapshot did to rows of a file.
  *
  * @param inserted
  *   whether it added them; else it removed them
  * @param ordinal
  *   the number of the snapshot in the plan
  * @param millis
  *   when the snapshot was made, since 1970
  */
private[read] final case class RowChange(inserted: Boolean, ordinal: Int, snapshotId: Long, millis: Long)

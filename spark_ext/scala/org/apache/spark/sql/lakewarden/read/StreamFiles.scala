package org.apache.spark.sql.lakewarden.read

/** The files of a snapshot as a stream counts them.
  *
  * @param rows
  *   of each file, in the order of the files
  * @param counted
  *   whether offsets say how many files were read. Else they say only that all were, since some can have no row for the
  *   user
  */
private[read] final case class StreamFiles(rows: Seq[Long], counted: Boolean) {
  def size: Int = rows.size

  /** The position after all of them. */
  def end: Long = if (counted) size.toLong else StreamFiles.All

  /** The position after those that a budget has room for. Throws if it is not counted, and there is a limit. */
  def after(position: Long, budget: StreamBudget): Long =
    if (counted) position + budget.take(rows.drop(position.toInt))
    else {
      budget.requireUnlimited()
      StreamFiles.All
    }
}

private[read] object StreamFiles {

  /** More files than a snapshot has. */
  private val All = Int.MaxValue.toLong

  val None: StreamFiles = StreamFiles(Nil, counted = true)
}

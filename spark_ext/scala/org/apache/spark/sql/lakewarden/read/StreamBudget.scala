package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.lakewarden.LakewardenException

/** How much of what is there a micro-batch reads: files in order, one at least. */
private[read] final class StreamBudget(limit: ReadLimit) {
  private var (files, rows) = StreamBudget.of(limit)
  private var taken = false

  /** Whether all that is there is read. */
  val isUnlimited: Boolean = files == Long.MaxValue && rows == Long.MaxValue

  /** Throws if there is a limit: what it leaves out would tell of files with hidden rows alone. */
  def requireUnlimited(): Unit =
    if (!isUnlimited) throw LakewardenException.notSupportedYet(
      "A row filter applies to you, and the stream limits the files or rows of a micro-batch.", "stream-limit",
      "Remove the limit.")

  /** Takes files as long as there is room.
    *
    * @param records
    *   of each file, its rows
    * @return
    *   how many were taken
    */
  def take(records: Seq[Long]): Int = records.takeWhile { each =>
    val fits = !taken || (files > 0 && rows >= each)
    if (fits) {
      files -= 1
      rows -= each
      taken = true
    }
    fits
  }.size
}

private object StreamBudget {

  /** Files and rows. */
  private def of(limit: ReadLimit): (Long, Long) = limit match {
    case _: ReadAllAvailable     => (Long.MaxValue, Long.MaxValue)
    case files: ReadMaxFiles     => (files.maxFiles.toLong, Long.MaxValue)
    case rows: ReadMaxRows       => (Long.MaxValue, rows.maxRows)
    case all: CompositeReadLimit =>
      all.getReadLimits.map(of).reduce((one, other) => (one._1.min(other._1), one._2.min(other._2)))
    case other => throw LakewardenException.notSupportedYet(
        s"The read limit $other is not supported.", "stream-limit", "Limit files or rows.")
  }
}

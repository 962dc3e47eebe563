package org.apache.spark.sql.lakewarden.options

import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.apache.spark.sql.lakewarden.LakewardenException

/** Which snapshots a scan reads: in a batch the appends or changes after one, in a stream what comes after one.
  *
  * Options of a stream are refused in a batch, and the other way round, once it is known which of them the scan is.
  *
  * @param start
  *   the snapshot after which the scan begins, or
  * @param from
  *   of a stream, the time in milliseconds since 1970 at which the first snapshot that it reads was made, or a later
  *   one; with neither it begins with the whole table
  * @param end
  *   of a batch, the last snapshot that it reads; none: the one that was loaded
  * @param maxFiles
  *   most files of a micro-batch
  * @param maxRows
  *   most rows of a micro-batch of several files
  * @param startTime
  *   of changes, the time in milliseconds since 1970 after which the first snapshot was made
  * @param endTime
  *   of changes, the time until which the last snapshot was made
  */
final case class StreamOptions(
    start: Option[Long] = None, end: Option[Long] = None, from: Option[Long] = None, maxFiles: Option[Long] = None,
    maxRows: Option[Long] = None, skipOverwrites: Option[Boolean] = None, skipDeletes: Option[Boolean] = None,
    startTime: Option[Long] = None, endTime: Option[Long] = None) {
  import StreamOptions._

  /** Throws what refuses the options in a batch. */
  def requireBatch(): Unit = {
    val ofStreams = Seq(
      FromTimestamp -> from, MaxFiles -> maxFiles, MaxRows -> maxRows, SkipOverwrites -> skipOverwrites,
      SkipDeletes -> skipDeletes)
    ofStreams.find(_._2.nonEmpty).foreach { case (name, _) =>
      throw LakewardenException.notSupportedYet(
        s"The read option $name has no effect in a batch.", "read-option", "Remove it, or use spark.readStream.")
    }
  }

  /** Throws what refuses the options where appends are read. */
  def requireAppends(): Unit =
    if (end.nonEmpty && start.isEmpty) throw invalid(s"The read option $End needs $Start.", s"Add $Start.")

  /** Throws what refuses the options where changes are read. */
  def requireChanges(): Unit = {
    requireBatch()
    if (start.nonEmpty && startTime.nonEmpty) throw invalid(s"There are both $Start and $StartTime.", "Remove one of them.")
    if (end.nonEmpty && endTime.nonEmpty) throw invalid(s"There are both $End and $EndTime.", "Remove one of them.")
    for (first <- startTime; last <- endTime if first >= last)
      throw invalid(s"$StartTime is not before $EndTime.", "Give an earlier start.")
  }

  /** Throws what refuses the options where the statement names the range of changes. */
  def requireStatedRange(): Unit =
    if (Seq(start, end, startTime, endTime).exists(_.nonEmpty))
      throw invalid("The statement names a range of changes, and so do its read options.", "Remove the options.")

  /** Throws what refuses the options in a stream. */
  def requireStream(): Unit = {
    if (end.nonEmpty) throw LakewardenException.notSupportedYet(
      s"The read option $End has no effect in a stream.", "read-option", "Remove it, or use spark.read.")
    if (start.nonEmpty && from.nonEmpty)
      throw invalid(s"The stream has both $Start and $FromTimestamp.", "Remove one of them.")
  }

  def limit: ReadLimit =
    maxFiles.map(each => ReadLimit.maxFiles(each.min(Int.MaxValue).toInt)).toSeq ++ maxRows.map(ReadLimit.maxRows) match {
      case Nil      => ReadLimit.allAvailable
      case Seq(one) => one
      case both     => ReadLimit.compositeLimit(both.toArray)
    }

  private def invalid(problem: String, hint: String): LakewardenException =
    new LakewardenException("RequestInvalid", problem, Some("read-option"), Some(hint))
}

object StreamOptions {
  val Start = "start-snapshot-id"
  val SkipOverwrites = "streaming-skip-overwrite-snapshots"
  val SkipDeletes = "streaming-skip-delete-snapshots"
  private val End = "end-snapshot-id"
  private val FromTimestamp = "stream-from-timestamp"
  private val MaxFiles = "streaming-max-files-per-micro-batch"
  private val MaxRows = "streaming-max-rows-per-micro-batch"
  private val StartTime = "start-timestamp"
  private val EndTime = "end-timestamp"

  /** Options of changes alone. */
  private[options] val OfChanges: Set[String] = Set(StartTime, EndTime)

  private[options] def of(told: GivenOptions): StreamOptions = StreamOptions(
    told.number(Start), told.number(End), told.number(FromTimestamp), told.number(MaxFiles), told.number(MaxRows),
    told.flag(SkipOverwrites), told.flag(SkipDeletes), told.number(StartTime), told.number(EndTime))
}

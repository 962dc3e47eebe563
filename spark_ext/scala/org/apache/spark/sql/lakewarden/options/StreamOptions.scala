package org.apache.spark.sql.lakewarden.options

import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.apache.spark.sql.lakewarden.LakewardenException

/** Which snapshots a scan reads: in a batch the appends after one, in a stream what comes after one.
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
  */
final case class StreamOptions(
    start: Option[Long] = None, end: Option[Long] = None, from: Option[Long] = None, maxFiles: Option[Long] = None,
    maxRows: Option[Long] = None, skipOverwrites: Option[Boolean] = None, skipDeletes: Option[Boolean] = None) {
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
    if (end.nonEmpty && start.isEmpty) throw invalid(s"The read option $End needs $Start.", s"Add $Start.")
  }

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

  private[options] def of(told: GivenOptions): StreamOptions = StreamOptions(
    told.number(Start), told.number(End), told.number(FromTimestamp), told.number(MaxFiles), told.number(MaxRows),
    told.flag(SkipOverwrites), told.flag(SkipDeletes))
}

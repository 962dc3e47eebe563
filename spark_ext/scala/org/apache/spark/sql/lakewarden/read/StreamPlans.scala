package org.apache.spark.sql.lakewarden.read

import scala.collection.mutable

/** What a part of a stream reads: the appends of some snapshots, or a snapshot as a whole. */
private[read] sealed trait StreamPart

/** @param first
  *   the earliest of the snapshots
  */
private[read] final case class Appends(first: StreamSnapshot, last: StreamSnapshot) extends StreamPart

private[read] final case class WholeSnapshot(id: Long) extends StreamPart

/** The plans of a stream. The one that was asked for last is kept as long as it is valid, since a micro-batch often
  * reads what its end was found by.
  *
  * @param ask
  *   asks the catalog
  */
private[read] final class StreamPlans(ask: StreamPart => AskedPlan) {
  private var last = Option.empty[(StreamPart, AskedPlan)]

  /** By snapshot, and whether it is read as a whole, its files. */
  private val counts = new mutable.LinkedHashMap[(Long, Boolean), StreamFiles]

  def of(part: StreamPart): AskedPlan = synchronized {
    val kept = last.collect { case (`part`, asked) if System.nanoTime - asked.at < asked.get.validNanos => asked }
    kept.getOrElse {
      val asked = ask(part)
      last = Some(part -> asked)
      asked
    }
  }

  /** The files that a snapshot appended. */
  def appended(snapshot: StreamSnapshot): StreamFiles =
    if (snapshot.appends) counted(snapshot.id, whole = false)(Appends(snapshot, snapshot)) else StreamFiles.None

  /** The files of a snapshot. */
  def whole(id: Long): StreamFiles = counted(id, whole = true)(WholeSnapshot(id))

  /** Whether a stream that has read so far has nothing more to read of the snapshot, as far as is known. */
  def isComplete(offset: StreamOffset): Boolean =
    synchronized(counts.get(offset.snapshotId -> offset.whole)).exists(_.size <= offset.position)

  private def counted(id: Long, whole: Boolean)(part: => StreamPart): StreamFiles = synchronized {
    counts.getOrElse(id -> whole, {
      val plan = of(part).get
      val found = StreamFiles(StreamPlans.ordered(plan.files).map(_.records), plan.showsAllRows)
      if (counts.size >= StreamPlans.MostCounts) counts -= counts.head._1
      counts.put(id -> whole, found)
      found
    })
  }
}

private[read] object StreamPlans {
  private val MostCounts = 100

  /** Positions count in this order, each time that the files of a snapshot are planned. */
  def ordered(files: Seq[PlannedFile]): Seq[PlannedFile] = files.sortBy(_.path)
}

package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.TimeUnit.MILLISECONDS

import org.apache.spark.sql.lakewarden.catalog.LoadedTable
import org.apache.spark.sql.lakewarden.options.StreamOptions

/** Where a range of changes begins or ends. */
private[lakewarden] sealed trait ChangeBound

/** @param inclusive
  *   whether the changes of the snapshot itself are in the range
  */
private[lakewarden] final case class AtSnapshot(id: Long, inclusive: Boolean) extends ChangeBound

/** @param micros
  *   since 1970
  */
private[lakewarden] final case class AtTime(micros: Long, inclusive: Boolean) extends ChangeBound {
  def isBefore(snapshot: StreamSnapshot): Boolean = isNot(snapshot, micros < _)
  def isAfter(snapshot: StreamSnapshot): Boolean = isNot(snapshot, micros > _)

  private def isNot(snapshot: StreamSnapshot, apart: Long => Boolean): Boolean = {
    val made = MILLISECONDS.toMicros(snapshot.millis)
    apart(made) || (inclusive && made == micros)
  }
}

/** Which changes are read.
  *
  * @param start
  *   none: all up to the end
  * @param end
  *   none: up to the head of the branch
  */
private[lakewarden] final case class ChangeBounds(start: Option[ChangeBound] = None, end: Option[ChangeBound] = None) {

  /** The snapshots of a table that these are now, so that all scans of a query read the same. The catalog decides
    * whether they are a range.
    *
    * Throws `NoSuchSnapshot` where not all changes since a time are known.
    */
  def of(table: LoadedTable): Increment = table.snapshotId.fold(Increment(None, None, changes = true)) { head =>
    val history = new StreamHistory(table.fullName, table.metadata, None)
    val past = history.upTo(head)
    val first = start.map {
      case AtSnapshot(id, inclusive) => Some(id -> inclusive)
      case time: AtTime              => past.find(time.isBefore).map { found =>
          history.requireFirst(past, found, "Changes", "snapshot", "Give a later time, or a snapshot.")
          found.id -> true
        }
    }
    val last = end.fold[Option[Long]](Some(head)) {
      case AtSnapshot(id, true)  => Some(id)
      case AtSnapshot(id, false) => parent(history, id)
      case time: AtTime          => past.findLast(time.isAfter).map(_.id)
    }
    (first, last) match {
      case (Some(None), _) | (_, None)      => ChangeBounds.nothing(head)
      case _ if isBackwards(past)           => ChangeBounds.nothing(head)
      case (None, Some(id))                 => Increment(None, Some(id), changes = true)
      case (Some(Some((id, inclusive))), _) => Increment(Some(id), last, inclusive, changes = true)
    }
  }

  /** Whether there is no snapshot between times, or before a snapshot that is left out. */
  private def isBackwards(past: Seq[StreamSnapshot]): Boolean = (start, end) match {
    case (Some(from: AtTime), Some(to: AtTime))  => !past.exists(each => from.isBefore(each) && to.isAfter(each))
    case (Some(AtSnapshot(from, _)), Some(AtSnapshot(to, false))) => from == to
    case _                                       => false
  }

  private def parent(history: StreamHistory, id: Long): Option[Long] = history.upTo(id).dropRight(1).lastOption.map(_.id)
}

private[lakewarden] object ChangeBounds {

  /** By Iceberg's options: the start is left out, the end is read. */
  def of(options: StreamOptions): ChangeBounds = ChangeBounds(
    options.start.map(AtSnapshot(_, inclusive = false))
      .orElse(options.startTime.map(millis => AtTime(MILLISECONDS.toMicros(millis), inclusive = false))),
    options.end.map(AtSnapshot(_, inclusive = true))
      .orElse(options.endTime.map(millis => AtTime(MILLISECONDS.toMicros(millis), inclusive = true))))

  /** The user's permissions are checked for it, too. */
  private def nothing(head: Long): Increment = Increment(Some(head), Some(head), changes = true)
}

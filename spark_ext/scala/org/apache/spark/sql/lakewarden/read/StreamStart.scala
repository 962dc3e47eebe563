package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.options.StreamOptions

/** Where a stream begins: after a snapshot, with the first snapshot of a time, or with the whole table as it was at the
  * oldest snapshot that is not expired.
  */
private[read] final class StreamStart(table: String, options: StreamOptions, plans: StreamPlans) {

  def of(history: StreamHistory): StreamOffset = history.head.fold(withoutSnapshots) { head =>
    val snapshots = history.upTo(head.id)
    options.start.map(after(history, head, _)).orElse(options.from.map(since(history, snapshots, _)))
      .getOrElse(StreamOffset(snapshots.head.id, 0, whole = true))
  }

  private def withoutSnapshots: StreamOffset = {
    options.start.foreach(id => throw noSuch(s"$table has no snapshot $id."))
    StreamOffset.Start
  }

  private def after(history: StreamHistory, head: StreamSnapshot, id: Long): StreamOffset =
    StreamOffset(id, plans.appended(history.between(id, head.id).head).end)

  private def since(history: StreamHistory, snapshots: Seq[StreamSnapshot], millis: Long): StreamOffset =
    snapshots.find(_.millis >= millis).fold(StreamOffset.Start) { found =>
      history.requireFirst(snapshots, found, "Rows", Rule, Hint)
      StreamOffset(found.id, 0)
    }

  private def noSuch(problem: String): LakewardenException = new LakewardenException(
    "NoSuchSnapshot", problem, Some(Rule), Some(Hint))

  private val Rule = "stream-start"
  private val Hint = "Give a later time or another snapshot, or neither, to begin with the whole table."
}

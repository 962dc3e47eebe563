package org.apache.spark.sql.lakewarden.read

import com.fasterxml.jackson.databind.node.ObjectNode

/** The rows that were appended between two snapshots, or changed (docs/rest-api.md, "plan").
  *
  * @param start
  *   an ancestor of the end; of changes also none: all up to the end
  * @param end
  *   none: the table has no snapshot
  * @param inclusive
  *   whether what the start appended or changed is read, too
  * @param changes
  *   whether the rows are read that snapshots added and removed, in place of those that they appended
  */
private[lakewarden] final case class Increment(
    start: Option[Long], end: Option[Long], inclusive: Boolean = false, changes: Boolean = false) {

  /** Puts it into the body of a plan's request. */
  def put(body: ObjectNode): Unit = {
    start.foreach(body.put("start-snapshot-id", _))
    end.foreach(body.put("end-snapshot-id", _))
    if (inclusive) body.put("start-inclusive", true)
    if (changes) body.put("changes", true)
    ()
  }
}

package org.apache.spark.sql.lakewarden.read

import com.fasterxml.jackson.databind.node.ObjectNode

/** The rows that were appended between two snapshots (docs/rest-api.md, "plan").
  *
  * @param start
  *   an ancestor of the end
  * @param inclusive
  *   whether what the start appended is read, too
  */
private[lakewarden] final case class Increment(start: Long, end: Long, inclusive: Boolean = false) {

  /** Puts it into the body of a plan's request. */
  def put(body: ObjectNode): Unit = {
    body.put("start-snapshot-id", start).put("end-snapshot-id", end)
    if (inclusive) body.put("start-inclusive", true)
    ()
  }
}

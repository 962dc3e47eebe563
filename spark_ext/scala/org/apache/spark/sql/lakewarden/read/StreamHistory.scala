package org.apache.spark.sql.lakewarden.read

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers

/** A snapshot, as a stream sees it.
  *
  * @param sequence
  *   its sequence number, which is that of the files that it added
  * @param millis
  *   when it was made, since 1970
  */
private[read] final case class StreamSnapshot(
    id: Long, parent: Option[Long], sequence: Long, millis: Long, operation: String) {
  def appends: Boolean = operation == "append"

  /** Whether it is the first of its table: some clients remove the id of an expired parent. */
  def isFirst: Boolean = parent.isEmpty && sequence == 1
}

/** The snapshots of a table's branch, as its metadata has them at one time.
  *
  * @param branch
  *   none: main
  */
private[read] final class StreamHistory(table: String, metadata: JsonNode, branch: Option[String]) {
  private val known = metadata.path("snapshots").elements.asScala.map(StreamHistory.snapshot)
    .map(each => each.id -> each).toMap

  val head: Option[StreamSnapshot] = Plan.snapshotId(
    branch.fold(metadata.path("current-snapshot-id"))(metadata.path("refs").path(_).path("snapshot-id"))).flatMap(known.get)

  /** A snapshot and its ancestors, the oldest first. */
  def upTo(id: Long): Seq[StreamSnapshot] = ancestors(known.get(id), Nil)

  /** The snapshots from one to another, both included, the oldest first.
    *
    * Throws `NoSuchSnapshot` if the first is expired, or was dropped from the branch.
    */
  def between(first: Long, last: Long): Seq[StreamSnapshot] = {
    val found = upTo(last).dropWhile(_.id != first)
    if (found.isEmpty) throw new LakewardenException(
      "NoSuchSnapshot",
      s"The stream has read $table up to the snapshot $first, which expired, or is not an ancestor of $last.",
      Some("stream-offset"),
      Some("Start the query with another checkpoint location. Keep snapshots for as long as the query can stop."))
    val numbers = found.map(_.sequence)
    if (numbers.distinct.size < numbers.size) throw LakewardenException.notSupportedYet(
      s"$table has several snapshots of format version 1, whose files cannot be told apart.", "stream-format-version",
      "Start the query at a later snapshot, with start-snapshot-id.")
    found
  }

  /** Refuses rows or changes since a time that begin with the oldest snapshot that is known, unless it is the first of
    * the table. Whether earlier ones are expired or the table was replaced, metadata does not say.
    *
    * @param asked
    *   what is asked for, as people read it
    */
  def requireFirst(past: Seq[StreamSnapshot], found: StreamSnapshot, asked: String, rule: String, hint: String): Unit =
    if (found == past.head && !found.isFirst) throw new LakewardenException(
      "NoSuchSnapshot",
      s"$asked of $table since the time given are not all known. Its history begins with the snapshot ${found.id}: " +
        "earlier ones are expired, or the table was replaced.", Some(rule), Some(hint))

  /** Metadata can name a snapshot as its own ancestor. */
  @tailrec private def ancestors(at: Option[StreamSnapshot], found: List[StreamSnapshot]): List[StreamSnapshot] =
    at match {
      case Some(each) if found.size < known.size => ancestors(each.parent.flatMap(known.get), each :: found)
      case _                                     => found
    }
}

private object StreamHistory {
  private def snapshot(node: JsonNode): StreamSnapshot = StreamSnapshot(
    Answers.field(node, "snapshot-id").longValue,
    Plan.snapshotId(node.path("parent-snapshot-id")),
    node.path("sequence-number").longValue,
    Answers.field(node, "timestamp-ms").longValue,
    node.path("summary").path("operation").asText)
}

package org.apache.spark.sql.lakewarden.read

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.lakewarden.LakewardenException

/** How far a stream has read: all snapshots before one, and a number of files of that one, in the order of their paths.
  *
  * @param whole
  *   whether the files are all that the snapshot has, and not those that it appended
  */
private[read] final case class StreamOffset(snapshotId: Long, position: Long, whole: Boolean = false) extends Offset {

  /** As Iceberg's streams write it. */
  override def json: String = StreamOffset.mapper.createObjectNode()
    .put("version", StreamOffset.Version).put("snapshot_id", snapshotId).put("position", position)
    .put("scan_all_files", whole).toString
}

private[read] object StreamOffset {
  private val mapper = new ObjectMapper
  private val Version = 1

  /** Before the first snapshot of a table that has none, or none that is late enough. */
  val Start: StreamOffset = StreamOffset(-1, -1)

  def of(offset: Offset): StreamOffset = offset match {
    case own: StreamOffset => own
    case other             => parse(other.json)
  }

  /** Throws `RequestInvalid` for what is no offset of a table. */
  def parse(json: String): StreamOffset =
    try {
      val node = mapper.readTree(json)
      require(node.required("version").intValue == Version && node.required("position").isIntegralNumber)
      StreamOffset(
        node.required("snapshot_id").longValue, node.required("position").longValue,
        node.required("scan_all_files").booleanValue)
    } catch {
      case NonFatal(problem) => throw new LakewardenException(
          "RequestInvalid", "The checkpoint has an offset that is not one of this table's.", Some("stream-offset"),
          Some("Start the query with another checkpoint location."), problem)
    }
}

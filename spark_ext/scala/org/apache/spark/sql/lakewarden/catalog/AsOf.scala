package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException

/** An earlier state of a table: `VERSION AS OF`, `TIMESTAMP AS OF`.
  *
  * Names and times are resolved when the table is loaded, so that the schema and the plan of one query are of
  * the same snapshot.
  */
final case class AsOf(snapshotId: Long)

object AsOf {

  /** The snapshot of that id, or that a branch or tag of that name stands on. Digits are an id. */
  def version(metadata: JsonNode, text: String): AsOf =
    if (text.nonEmpty && text.forall(each => each >= '0' && each <= '9')) known(metadata, text)
    else
      Option(metadata.path("refs").get(text)) match {
        case Some(ref) => AsOf(ref.get("snapshot-id").longValue)
        case None      => throw noSuch(s"The table has no snapshot, branch or tag '$text'.")
      }

  /** The snapshot that was current at a time.
    *
    * @param micros
    *   since the epoch
    */
  def timestamp(metadata: JsonNode, micros: Long): AsOf = {
    val millis = Math.floorDiv(micros, 1000L)
    val earlier = metadata.path("snapshot-log").elements.asScala
      .filter(_.get("timestamp-ms").longValue <= millis)
      .toSeq
    val last = earlier.lastOption.getOrElse(throw noSuch("The table had no snapshot at that time."))
    AsOf(last.get("snapshot-id").longValue)
  }

  private def known(metadata: JsonNode, digits: String): AsOf =
    metadata.path("snapshots").elements.asScala
      .map(_.get("snapshot-id").longValue)
      .find(_.toString == digits)
      .map(AsOf(_))
      .getOrElse(throw noSuch(s"The table has no snapshot $digits."))

  private def noSuch(problem: String): LakewardenException = new LakewardenException(
    "NoSuchSnapshot", problem, Some("snapshot"), Some("Choose a snapshot that is not expired."))
}

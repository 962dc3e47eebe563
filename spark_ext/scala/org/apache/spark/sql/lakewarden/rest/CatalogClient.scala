package org.apache.spark.sql.lakewarden.rest

import java.io.InputStream

import com.fasterxml.jackson.databind.JsonNode

/** Asks the catalog.
  *
  * Paths are given as segments, which are encoded here. Every refusal of the catalog becomes a
  * `LakewardenException` of the same kind; what does not answer is `CatalogUnavailable`.
  */
trait CatalogClient {
  def get(path: Seq[String], query: Map[String, String] = Map.empty): JsonNode

  /** Whether there is something; none if this is not told, which another request then says why. */
  def exists(path: Seq[String]): Option[Boolean]

  /** @return the answer, or a missing node for an empty one */
  def post(path: Seq[String], body: Option[JsonNode] = None): JsonNode

  /** The answer as a stream, for plans. */
  def stream[T](path: Seq[String], body: JsonNode)(read: InputStream => T): T

  def delete(path: Seq[String], query: Map[String, String] = Map.empty): Unit
}

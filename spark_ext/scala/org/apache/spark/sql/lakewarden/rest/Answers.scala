package org.apache.spark.sql.lakewarden.rest

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lakewarden.LakewardenException

/** Reads what the catalog answered. */
object Answers {

  /** A field that every answer of the catalog has. Throws `CatalogUnavailable` if it is not there. */
  def field(answer: JsonNode, name: String): JsonNode = Option(answer.get(name)).getOrElse(
    throw new LakewardenException(
      "CatalogUnavailable", s"The response is not from a Lakewarden catalog: it has no $name.", Some("catalog"),
      Some("Check that the catalog's uri is the address of a Lakewarden service of this version.")))

  def text(answer: JsonNode, name: String): String = field(answer, name).asText

  /** The names and texts of an object, such as properties. */
  def texts(node: JsonNode): Map[String, String] =
    node.properties.asScala.map(each => each.getKey -> each.getValue.asText).toMap

  /** A list of tables or views. */
  def identifiers(node: JsonNode): Array[Identifier] =
    node.elements.asScala.map { each =>
      Identifier.of(each.required("namespace").elements.asScala.map(_.textValue).toArray, each.required("name").textValue)
    }.toArray
}

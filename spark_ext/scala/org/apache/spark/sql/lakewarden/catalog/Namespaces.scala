package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NonEmptyNamespaceException}
import org.apache.spark.sql.connector.catalog.{Identifier, NamespaceChange, SupportsNamespaces}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}

/** The namespaces of a catalog, as its user may see and change them. */
final class Namespaces(client: CatalogClient, paths: CatalogPaths) {
  private val json = JsonNodeFactory.instance

  /** Those directly below a namespace; below none, the outermost. */
  def list(parent: Array[String]): Array[Array[String]] = Refusals.ofNamespace(parent) {
    val joined = parent.mkString(CatalogPaths.Separator)
    val below = if (parent.isEmpty) Map.empty[String, String] else Map("parent" -> joined)
    Answers.field(client.get(paths.namespaces, below), "namespaces").elements.asScala.map(levels).toArray
  }

  def load(namespace: Array[String]): Map[String, String] = {
    requireLevels(namespace)
    Refusals.ofNamespace(namespace) {
      Answers.texts(Answers.field(client.get(paths.namespace(namespace.toSeq)), "properties"))
    }
  }

  /** The owner that Spark fills in is left out: it is the user of the driver's operating system. */
  def create(namespace: Array[String], properties: Map[String, String]): Unit = Refusals.ofNamespace(namespace) {
    val body = json.objectNode.set[ObjectNode]("namespace", names(namespace))
    body.set[ObjectNode]("properties", TableRequests.texts(properties - SupportsNamespaces.PROP_OWNER))
    client.post(paths.namespaces, Some(body))
  }

  def alter(namespace: Array[String], changes: Seq[NamespaceChange]): Unit = Refusals.ofNamespace(namespace) {
    val set = changes.collect { case each: NamespaceChange.SetProperty => each.property -> each.value }
    val removed = changes.collect { case each: NamespaceChange.RemoveProperty => each.property }
    val body = json.objectNode.set[ObjectNode]("removals", names(removed.toArray))
    body.set[ObjectNode]("updates", TableRequests.texts(set.toMap))
    client.post(paths.namespaceProperties(namespace.toSeq), Some(body))
  }

  /** Drops an empty namespace; with CASCADE too, since dropping tables is each table's own decision. */
  def drop(namespace: Array[String], cascade: Boolean): Boolean =
    try {
      requireLevels(namespace)
      Refusals.ofNamespace(namespace)(client.delete(paths.namespace(namespace.toSeq)))
      true
    } catch {
      case _: NonEmptyNamespaceException if cascade =>
        throw LakewardenException.notSupportedYet(
          s"The namespace ${namespace.mkString(".")} is not empty, and CASCADE is not supported.",
          "cascade", "Drop the tables in it first.")
    }

  /** The tables that the user has some right on; outside of namespaces there are none. */
  def tables(namespace: Array[String]): Array[Identifier] =
    if (namespace.isEmpty) Array.empty
    else
      Refusals.ofNamespace(namespace) {
        Answers.identifiers(Answers.field(client.get(paths.tables(namespace.toSeq)), "identifiers"))
      }

  /** There is nothing directly below the catalog's name but namespaces. */
  private def requireLevels(namespace: Array[String]): Unit =
    if (namespace.isEmpty) throw new NoSuchNamespaceException(namespace)

  private def levels(node: JsonNode): Array[String] = node.elements.asScala.map(_.textValue).toArray

  private def names(texts: Array[String]): JsonNode = {
    val node = json.arrayNode
    texts.foreach(node.add(_))
    node
  }
}

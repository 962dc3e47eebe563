package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient, CatalogPaths}

/** What is asked of the catalog about views (docs/rest-api.md, "Views"). */
final class ViewRequests(client: CatalogClient) {
  private val json = JsonNodeFactory.instance

  /** None if there is no such view. */
  def load(ident: Identifier): Option[JsonNode] =
    try Some(client.get(path(ident)))
    catch { case absent: LakewardenException if absent.kind == "NoSuchView" => None }

  /** Who can load a view with the client's token. */
  def principal(ident: Identifier): String = Answers.text(client.get(path(ident)), "principal")

  /** Told to those with any right on the name. */
  def exists(ident: Identifier): Boolean = client.exists(path(ident)).getOrElse(load(ident).nonEmpty)

  def list(namespace: Array[String]): Array[Identifier] =
    if (namespace.isEmpty) Array.empty
    else
      Refusals.ofNamespace(namespace) {
        Answers.identifiers(Answers.field(client.get(CatalogPaths.engineViews(namespace.toSeq)), "identifiers"))
      }

  def create(ident: Identifier, definition: ObjectNode): Unit =
    client.post(CatalogPaths.engineViews(ident.namespace.toSeq), Some(definition.put("name", ident.name)))

  /** @param expected
    *   the state of the view that it was changed from, if it was
    */
  def replace(ident: Identifier, definition: ObjectNode, expected: Option[Int]): Unit = {
    expected.foreach(definition.put("expected-version", _))
    client.post(path(ident), Some(definition))
  }

  def drop(ident: Identifier): Unit = client.delete(path(ident))

  def rename(source: Identifier, target: Identifier): Unit = {
    val body = json.objectNode.set[ObjectNode]("source", named(source))
    client.post(CatalogPaths.renameView, Some(body.set[ObjectNode]("destination", named(target))))
  }

  private def path(ident: Identifier): Seq[String] = CatalogPaths.engineView(ident.namespace.toSeq, ident.name)

  private def named(ident: Identifier): JsonNode = {
    val namespace = json.arrayNode
    ident.namespace.foreach(namespace.add(_))
    json.objectNode.put("name", ident.name).set[ObjectNode]("namespace", namespace)
  }
}

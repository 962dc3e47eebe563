package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.lakewarden.rest.CatalogPaths

/** A definer view, through which tables are read (docs/rest-api.md, "Definer views").
  *
  * @param uuid
  *   the view's; another view can come to have its name
  * @param version
  *   the state of the view whose text is read
  */
final case class ThroughView(ident: Identifier, uuid: String, version: Int) {

  /** The address of what is asked about a table. */
  def segments(operation: String): Seq[String] =
    CatalogPaths.engineView(ident.namespace.toSeq, ident.name) ++ Seq("tables", operation)

  /** Names the table in a request. */
  def put(body: ObjectNode, namespace: Seq[String], name: String): ObjectNode = {
    val table = body.put("view-uuid", uuid).put("version", version).putObject("table").put("name", name)
    val levels = table.putArray("namespace")
    namespace.foreach(levels.add(_))
    body
  }
}

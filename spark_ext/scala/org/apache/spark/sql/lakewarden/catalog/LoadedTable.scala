package org.apache.spark.sql.lakewarden.catalog

import java.util.UUID

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.rest.CatalogClient
import org.apache.spark.sql.types.StructType

/** A table as the catalog answered it, for one user.
  *
  * @param namespace
  *   its levels
  * @param schema
  *   the schema to read or write with, field ids in the metadata (`IcebergSchema`)
  * @param metadata
  *   Iceberg's table metadata, governed properties in force among the properties
  * @param principal
  *   whom the catalog answered
  * @param policyVersion
  *   the policies by which it did; with `principal` part of the equality of tables and scans, so that nothing
  *   cached crosses users
  */
final case class LoadedTable(
    catalogName: String,
    namespace: Seq[String],
    name: String,
    uuid: UUID,
    metadataLocation: String,
    schema: StructType,
    metadata: JsonNode,
    principal: String,
    policyVersion: String) {

  /** As users write it. */
  def fullName: String = (catalogName +: namespace :+ name).mkString(".")

  /** The address of this table's operations for engines. */
  def engineSegments(operation: String): Seq[String] =
    Seq("engine", "v1", "tables", namespace.mkString("\u001f"), name, operation)
}

/** A table and the way to the catalog as its user. */
final case class TableHandle(table: LoadedTable, client: CatalogClient)

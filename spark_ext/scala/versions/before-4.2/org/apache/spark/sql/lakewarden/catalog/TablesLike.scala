package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog, TableInfo}

/** `CREATE TABLE … LIKE`, which Spark takes for a statement of its own catalog. */
trait TablesLike extends TableCatalog {
  protected def createLike(ident: Identifier, info: TableInfo, source: Table): Table
}

object TablesLike {
  val isSupported = false
}

package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog, TableInfo}

/** `CREATE TABLE … LIKE`. */
trait TablesLike extends TableCatalog {

  /** @param info
    *   columns and partitioning of the source, and what the statement says itself
    */
  protected def createLike(ident: Identifier, info: TableInfo, source: Table): Table

  override def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table =
    createLike(ident, info, source)
}

object TablesLike {

  /** Whether Spark hands the statement to catalogs. */
  val isSupported = true
}

package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.{Table, TableChange}

/** A table that `MERGE WITH SCHEMA EVOLUTION` alters before it writes. Spark asks for every change, and the catalog
  * refuses those that it cannot make.
  */
trait EvolvingTable extends Table {
  protected def canEvolve(change: TableChange.ColumnChange): Boolean
}

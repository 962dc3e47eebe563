package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.{SupportsSchemaEvolution, TableChange}

/** A table that statements `WITH SCHEMA EVOLUTION` alter before they write. */
trait EvolvingTable extends SupportsSchemaEvolution {

  /** Whether Spark is to make a change. Else the rows are cast to the columns that are there. */
  protected def canEvolve(change: TableChange.ColumnChange): Boolean

  override def supportsColumnChange(change: TableChange.ColumnChange): Boolean = canEvolve(change)
}

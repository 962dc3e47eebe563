package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.TableCatalog

/** Views take the interfaces of PySpark 4.3; before, Spark refuses statements about them itself. */
trait WithViews extends TableCatalog {
  protected def viewRequests: ViewRequests
  protected def viewSettings(stored: Map[String, String]): Map[String, String]

  /** The definer view whose text is read in this session; none: statements of a user are. */
  protected def through: Option[ThroughView]
}

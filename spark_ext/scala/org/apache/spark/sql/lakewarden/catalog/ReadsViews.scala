package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}

/** A catalog that reads tables for definer views. */
trait ReadsViews extends CatalogPlugin {

  /** From now on it reads the text of this view, and tables through it.
    *
    * @param reader
    *   the session with whose token it asks
    */
  def readThrough(view: ThroughView, reader: SparkSession): Unit

  /** The session that reads the text of a view for this catalog's session, and does nothing else. */
  def viewSession(view: ThroughView)(make: => SparkSession): SparkSession

  /** For whose session a view was loaded.
    *
    * @param principal
    *   as the catalog says
    */
  def viewUser(view: Identifier, principal: String): SessionUser
}

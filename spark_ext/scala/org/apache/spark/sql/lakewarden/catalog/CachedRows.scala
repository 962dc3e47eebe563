package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.classic.SparkSession

/** What Spark has cached of a table, for all of its users.
  *
  * After a change Spark would build every user's cached results again, in the session of the one who made the
  * change. It finds them by the table's name, and where it cannot read for another user, the statement would
  * fail although the change is there. Results of the state before serve no user any more, so they are dropped.
  */
object CachedRows {

  /** Drops the results that hold rows of a table.
    *
    * @param name
    *   with the catalog's name before it
    */
  def drop(name: Seq[String]): Unit = {
    val session = SparkSession.active
    session.sharedState.cacheManager.uncacheTableOrView(session, name, cascade = true)
  }
}

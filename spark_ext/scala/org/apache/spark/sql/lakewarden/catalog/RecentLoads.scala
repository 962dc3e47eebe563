package org.apache.spark.sql.lakewarden.catalog

import java.time.Duration

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.lakewarden.rest.{CatalogClient, TokenDigest}

/** Tables as they were loaded a moment ago, in one session.
  *
  * Spark loads the tables of a query when it resolves their names, and once more when it begins to run the query.
  * The second load asks again unless all of this holds: the first was a moment ago, for the same token and settings,
  * and this JVM has changed nothing in the catalog since. A query is never resolved by a load that is remembered. What the
  * user may read is decided by the plan, which is asked for each time.
  */
private[catalog] final class RecentLoads {
  import RecentLoads._

  private var known = Map.empty[Identifier, Load]

  /** The table that was loaded a moment ago for the query that begins to run, or else what `load` answers. */
  def reuse(ident: Identifier, user: TokenDigest, wap: Wap)(load: => GuardedTable): GuardedTable = {
    val now = Moment(System.nanoTime, CatalogClient.changes, user, wap)
    val found = synchronized(known.get(ident)).filter(each => isRunning && each.moment.serves(now))
    found.map(_.table).getOrElse {
      val table = load
      synchronized { known = known.filter(_._2.moment.serves(now)) + (ident -> Load(table, now)) }
      table
    }
  }
}

private object RecentLoads {
  private val ForNanos = Duration.ofMillis(200).toNanos

  private final case class Moment(nanos: Long, changes: Long, user: TokenDigest, wap: Wap) {
    def serves(now: Moment): Boolean = now.nanos - nanos < ForNanos && now.copy(nanos = nanos) == this
  }

  private final case class Load(table: GuardedTable, moment: Moment)

  /** Whether this thread runs a query, and does not merely resolve one. */
  private def isRunning: Boolean =
    SparkContext.getActive.exists(_.getLocalProperty(SQLExecution.EXECUTION_ID_KEY) != null)
}

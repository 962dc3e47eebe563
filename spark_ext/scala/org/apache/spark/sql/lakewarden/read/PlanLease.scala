package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.TimeoutException

import org.apache.spark.sql.lakewarden.LakewardenException

/** For how long what a plan allowed may be begun with.
  *
  * Spark keeps the plan of a DataFrame and runs it as often as it is asked to. A scan that begins later than the
  * catalog said asks once more, as the user of the session that planned it: what was taken away meanwhile (a
  * right, a location, a key, the user's token) refuses it, and so does a column that is shown through a mask now,
  * since the plan shows it in plaintext, another row filter or mask, and files that are checked against their digests at other times than the plan
  * says. What has begun goes on.
  *
  * @param read
  *   ids of the columns that the scan reads
  * @param askedAt
  *   when it was asked for the plan, by `clock`; Spark may make a plan long before it first runs it
  * @param askAgain
  *   asks for the same plan
  */
private[read] final class PlanLease(
    table: String,
    plan: Plan,
    read: Set[Int],
    askedAt: Long,
    askAgain: () => AskedPlan,
    clock: () => Long = System.nanoTime) {
  private var asked = askedAt

  /** Whether no row filter hides rows. */
  def showsAllRows: Boolean = plan.showsAllRows

  /** Throws what refuses the scan now. */
  def require(): Unit = synchronized {
    val now = clock()
    if (now - asked >= plan.validNanos) {
      val again = answered(askAgain())
      plan.allFiles.foreach(each => again.allowed.check(each.location, table))
      if (again.masked.exists(each => read(each) && !plan.masked(each)))
        throw changed("A column in its result is masked for you now.")
      if (again.restrictions != plan.restrictions) throw changed("The row filter or a mask changed for you.")
      if (again.verification != plan.verification) throw changed("The setting encryption.verify-digest changed.")
      asked = now
    }
  }

  /** Jobs are begun one after the other, so none waits for long. */
  private def answered(plan: AskedPlan): Plan =
    try plan.getWithin(PlanLease.WithinSeconds)
    catch {
      case _: TimeoutException =>
        throw new LakewardenException(
          "CatalogUnavailable",
            s"The catalog did not confirm within ${PlanLease.WithinSeconds} seconds that you can still read $table.",
          Some("plan-expired"), Some("Check that the service is running, and try again."))
    }

  private def changed(what: String): LakewardenException = new LakewardenException(
    "TableChanged", s"The table $table was changed after this query was planned. $what",
    Some("table-changed"), Some("Create the DataFrame again, and run the query again."))
}

private object PlanLease {
  private val WithinSeconds = 20L
}

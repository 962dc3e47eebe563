package org.apache.spark.sql.lakewarden.catalog

import java.util.concurrent.TimeUnit

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.util.ThreadUtils

/** Shows how far a procedure is: in Spark's log, and as the description of its Spark jobs.
  *
  * @param about
  *   what is done, such as `rewrite_data_files lake.sales.orders`
  */
private[catalog] final class Progress(about: String) extends Logging {
  @volatile private var state = "started"

  /** Notes what was reached. It is logged now. */
  def reached(what: String): Unit = {
    state = what
    logInfo(s"$about: $what")
  }

  /** Runs jobs under a description, such as `group 3 of 12`. */
  def described[T](what: String)(jobs: => T): T = {
    reached(what)
    val context = SparkContext.getOrCreate()
    val before = context.getLocalProperty(SparkContext.SPARK_JOB_DESCRIPTION)
    context.setJobDescription(s"$about: $what")
    try jobs
    finally context.setJobDescription(before)
  }

  /** Logs every few seconds what was reached last, as long as the work takes. */
  def during[T](work: => T): T = {
    val started = System.nanoTime
    def seconds: Long = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime - started)
    val reports = Progress.Reports.scheduleWithFixedDelay(
      () => logWarning(s"$about: still running after $seconds s ($state)"), Progress.FirstS, Progress.NextS,
      TimeUnit.SECONDS)
    try work
    finally reports.cancel(false)
  }
}

private object Progress {
  private val FirstS = 2L
  private val NextS = 10L
  private lazy val Reports = ThreadUtils.newDaemonSingleThreadScheduledExecutor("lakewarden-progress")
}

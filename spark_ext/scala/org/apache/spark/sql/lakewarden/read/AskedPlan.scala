package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit}

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.util.ThreadUtils

/** A plan that the catalog is being asked for, as the user of a session, while Spark goes on with its own work.
  *
  * @param ask
  *   asks for it; what it throws is thrown to every caller
  */
private[read] final class AskedPlan(session: SparkSession)(ask: => Plan) {

  /** When it was asked for, by `System.nanoTime`. */
  val at: Long = System.nanoTime

  // A thread serves many queries: it takes the session and the number of this one.
  private val answer: CompletableFuture[Plan] =
    SQLExecution.withThreadLocalCaptured(session, AskedPlan.Threads)(ask)

  /** The plan, or what refused it. */
  def get: Plan = unwrapped(answer.get)

  /** The same, or a `TimeoutException`. */
  def getWithin(seconds: Long): Plan = unwrapped(answer.get(seconds, TimeUnit.SECONDS))

  private def unwrapped(plan: => Plan): Plan =
    try plan
    catch { case failed: ExecutionException => throw failed.getCause }
}

private object AskedPlan {

  /** A catalog that hangs holds these, and none of Spark's own. */
  private lazy val Threads = ThreadUtils.newDaemonCachedThreadPool("lakewarden-plan", 32)
}

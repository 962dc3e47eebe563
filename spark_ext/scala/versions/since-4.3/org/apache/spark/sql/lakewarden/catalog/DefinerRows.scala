package org.apache.spark.sql.lakewarden.catalog

import java.io.IOException

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.{Partition, SparkThrowable, TaskContext, TaskKilledException}
import org.apache.spark.internal.Logging
import org.apache.spark.rdd.RDD
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException

/** A query of a view. What statements of the engine's sessions have cached is not used for it: in the text, the cached
  * row of a `SELECT current_date()` would be a date of another user's choice.
  */
private[catalog] final class DefinerExecution(session: SparkSession, plan: LogicalPlan)
    extends QueryExecution(session, plan) {
  override def withCachedData: LogicalPlan = normalized
}

/** The rows of a query of a view.
  *
  * Stages before the last one run at once (Spark's adaptive execution), when the reader's settings were looked at. The
  * last one runs with the reader's statement, or much later: Spark computes cached rows when a query needs them.
  */
final class DefinerRows(name: String, session: SparkSession, execution: QueryExecution) {

  /** @param reader
    *   the settings of the statement, which its tasks go by
    */
  def rdd(reader: SQLConf): RDD[InternalRow] = {
    requireSettings(reader)
    DefinerQuery.in(session) {
      val failures = new DefinerFailures(name)
      val rows = failures.hidden(begun(execution.executedPlan).execute())
      new DefinerRdd(rows, failures, session.sessionState.conf.getAllConfs.filter(_._1.startsWith("spark.sql.")))
    }
  }

  /** Some functions look for these settings in the tasks. Refuses other values than the engine's. */
  private def requireSettings(reader: SQLConf): Unit = {
    val tasks = session.sparkContext.getLocalProperties.asScala.toSeq ++ reader.getAllConfs
    val own = session.sessionState.conf.settings
    tasks.find { case (key, value) => DefinerRows.isOfFunctions(key) && own.get(key) != value }.foreach { case (key, _) =>
      throw LakewardenException.notSupportedYet(
        s"A definer view is not read in a session that sets $key, since functions in it could mean something else.",
        "view-setting", s"Unset it: RESET $key.")
    }
  }

  /** A plan of one stage, or one whose other stages do not wait for the reader's statement. */
  private def begun(plan: SparkPlan): SparkPlan = plan match {
    case adaptive: AdaptiveSparkPlanExec => adaptive
    case other if other.exists(_.isInstanceOf[Exchange]) || other.subqueriesAll.nonEmpty =>
      throw LakewardenException.notSupportedYet(
        s"Spark does not run the text of the definer view $name by adaptive execution.", "view-text",
        "Ask its definer to simplify it.")
    case other => other
  }

  override def toString: String = "DefinerRows"
}

private object DefinerRows {
  private val Prefixes =
    Seq("legacy.", "json.", "csv.", "xml.", "avro.", "variant.", "columnNameOfCorruptRecord").map("spark.sql." + _)

  def isOfFunctions(setting: String): Boolean = Prefixes.exists(setting.startsWith(_))
}

/** Rows whose tasks go by settings of their own, whichever user runs the job, and when. */
private final class DefinerRdd(rows: RDD[InternalRow], failures: DefinerFailures, settings: Map[String, String])
    extends RDD[InternalRow](rows) {
  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def compute(split: Partition, context: TaskContext): Iterator[InternalRow] = {
    val conf = new SQLConf
    settings.foreach { case (key, value) => conf.settings.put(key, value) }
    def own[T](work: => T): T = failures.hidden(SQLConf.withExistingConf(conf)(work))
    val computed = own(firstParent[InternalRow].iterator(split, context))
    new Iterator[InternalRow] {
      override def hasNext: Boolean = own(computed.hasNext)
      override def next(): InternalRow = own(computed.next())
    }
  }
}

/** What goes wrong where rows of a view are computed, as its reader sees it.
  *
  * Spark's errors show values, and it evaluates expressions of a text on rows that the text leaves out in another place.
  * Errors of data files name the files. The engine's log has both; the reader is told of which kind they are.
  */
private final class DefinerFailures(view: String) extends Logging with Serializable {
  def hidden[T](work: => T): T =
    try work
    catch {
      case stopped @ (_: FetchFailedException | _: TaskKilledException) => throw stopped
      case NonFatal(stopped) if Option(TaskContext.get()).exists(_.isInterrupted()) => throw stopped
      case NonFatal(failure) => throw shown(failure)
    }

  private def shown(failure: Throwable): Throwable = {
    val causes = Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(DefinerFailures.MostCauses).toSeq
    val conditions = causes.collect { case known: SparkThrowable if known.getCondition != null => known }
    conditions.lastOption match {
      case Some(refused: LakewardenException) if refused.file.isEmpty && !DefinerFailures.OfPaths(refused.kind) => refused
      case Some(stopped) if DefinerFailures.OfNoRow.exists(String.valueOf(stopped.getSqlState).startsWith) => failure
      case found =>
        logWarning(s"Rows of the definer view $view could not be computed", failure)
        found match {
          case Some(known: LakewardenException) => told(known.kind, known.rule.getOrElse("data-file"))
          case Some(known)                      => told("MetadataInvalid", "view-text", s" (${known.getCondition})")
          case None if causes.exists(_.isInstanceOf[IOException]) => told("StorageUnavailable", "storage")
          case None => told("MetadataInvalid", "view-text")
        }
    }
  }

  private def told(kind: String, rule: String, condition: String = ""): LakewardenException = new LakewardenException(
    kind, s"Rows of the view $view, which is a definer view, could not be computed$condition.", Some(rule),
    Some("Ask its definer to query it, or an administrator: the log of the engine has the details."))
}

private object DefinerFailures {
  private val MostCauses = 20

  /** Errors that name a path in their messages alone. */
  private val OfPaths = Set("LocationNotAllowed", "StorageUnavailable")

  /** SQLSTATEs of what tells of no row: resources, limits, interruption, systems, cancelled jobs. */
  private val OfNoRow = Seq("53", "54", "57", "58", "XXKDA")
}

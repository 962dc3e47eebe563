package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.AllowedPaths

/** Why files could not be rewritten, and whether one file is the reason. */
private object RewriteProblems {
  private val MostCauses = 20

  /** Problems that a call tells. */
  private val MostTold = 10

  /** What is said of a group as a whole, though one of its files may be the reason. */
  private val FilesKinds = Set(
    "RewriteFailed", "StorageUnavailable", "DataFileDamaged", "DataFileMissing", "DecryptionRefused", "KeyNotUsable",
    "LocationNotAllowed", "LocationInvalid", "NotSupportedYet")

  /** What the catalog or the guard refused, below what Spark says of it; else what failed in Spark. A job that was
    * cancelled is thrown: it cancels the whole rewrite.
    */
  def refusal(problem: Throwable): LakewardenException = {
    if (causes(problem).exists(isCancelled)) throw problem
    causes(problem).collectFirst { case refused: LakewardenException => refused }.getOrElse(
      new LakewardenException(
        "RewriteFailed", s"Files could not be rewritten: ${problem.getMessage}", Some("rewrite"),
        Some("See Spark's log. Call the procedure again to continue with the remaining files."), problem))
  }

  def mayBeAFiles(why: LakewardenException): Boolean = (FilesKinds.contains(why.kind) || isCount(why)) && !isLoss(why)

  /** Whether a job ended since its tasks ended their executors, or lost them, as often as Spark tries a task. */
  def isLoss(why: LakewardenException): Boolean =
    causes(why).flatMap(each => Option(each.getMessage)).exists(_.contains("ExecutorLostFailure"))

  /** What is said of a group after others that lost their executors. */
  def notTried: LakewardenException = new LakewardenException(
    "RewriteFailed", "Files were not tried, since the groups before them lost their executors.", Some("rewrite"),
    Some("See Spark's log why executors ended, such as for lack of memory. Set max-file-group-size-bytes to a smaller " +
      "number, or call the procedure again."))

  /** What the catalog says of a commit with more or fewer rows than go: of one file, that its manifest lies. */
  private def isCount(why: LakewardenException): Boolean = why.rule.contains("replaced-rows")

  /** The same, which is known by now to be said of one file. */
  def ofFile(path: String, why: LakewardenException): LakewardenException = {
    val (said, shown) = (why.getMessage.stripPrefix(s"${why.kind}: "), AllowedPaths.shown(path))
    if (isCount(why)) new LakewardenException(
      "DataFileDamaged", s"The number of rows in the file differs from its manifest. [file=$shown]",
        Some("record-count"),
      Some("Write the file again with its engine, or copy the rows into another table."), why, Some(path))
    else new LakewardenException(
      why.kind, if (said.contains(shown)) said else s"$said [file=$shown]", cause = why, file = Some(path))
  }

  /** A line each. */
  def told(problems: Seq[String]): String = {
    val more = problems.size - MostTold
    (problems.take(MostTold) ++ Option.when(more > 0)(s"And $more more.")).mkString("\n")
  }

  private def isCancelled(problem: Throwable): Boolean = problem match {
    case spark: SparkThrowable => Option(spark.getCondition).exists(_.startsWith("SPARK_JOB_CANCELLED"))
    case _                     => false
  }

  private def causes(problem: Throwable): Iterator[Throwable] =
    Iterator.iterate(problem)(_.getCause).takeWhile(_ != null).take(MostCauses)
}

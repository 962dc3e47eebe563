package org.apache.spark.sql.lakewarden

import java.io.IOException

import scala.util.control.NonFatal

import org.apache.spark.SparkThrowable

/** Failures that have no condition, of Spark's and Hadoop's code that is given what a user wrote: `IllegalArgumentException`,
  * `AssertionError` and the like. Users get an error with a type in their place.
  */
private[lakewarden] object Untyped {
  private val MostCauses = 20

  /** @param what
    *   is done, as the beginning of a sentence
    */
  def told[T](what: String, hint: String)(work: => T): T =
    try work
    catch { case NonFatal(failure) if !causes(failure).exists(hasCondition) => throw typed(failure, what, hint) }

  private def typed(failure: Throwable, what: String, hint: String): LakewardenException = {
    val kind = if (causes(failure).exists(_.isInstanceOf[IOException])) "StorageUnavailable" else "RequestInvalid"
    val why = s"${failure.getClass.getSimpleName}: ${String.valueOf(failure.getMessage).take(300)}"
    new LakewardenException(kind, s"$what failed ($why).", Some("arguments"), Some(hint), failure)
  }

  private def causes(failure: Throwable): Seq[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(MostCauses).toSeq

  private def hasCondition(failure: Throwable): Boolean = failure match {
    case known: SparkThrowable => known.getCondition != null
    case _                     => false
  }
}

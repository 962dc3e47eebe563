package org.apache.spark.sql.lakewarden.write

import java.io.IOException

import org.apache.spark.TaskContext
import org.apache.spark.sql.lakewarden.LakewardenException

/** What goes wrong with a file that is written becomes an error that users understand. */
private[write] object WriteErrors {
  private val depth = 20

  /** Runs a part of writing a file. Throws `StorageUnavailable` if the storage did not take it.
    *
    * @param directory
    *   of the write
    */
  def translated[T](directory: String)(part: => T): T =
    try part
    catch {
      case known: LakewardenException => throw known
      case stopped: Exception if Option(TaskContext.get()).exists(_.isInterrupted()) => throw stopped
      case failure: Exception if causes(failure).exists(_.isInstanceOf[IOException]) =>
        val name = causes(failure).toSeq.last.getClass.getSimpleName
        throw new LakewardenException(
          "StorageUnavailable", s"The storage did not take a file ($name). [directory=$directory]", Some("storage"),
          Some("Check that the engine's credentials can write there, and try again."), failure)
    }

  private def causes(failure: Throwable): Iterator[Throwable] =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(depth)
}

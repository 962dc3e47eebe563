package org.apache.spark.sql.lakewarden.read

import java.io.{FileNotFoundException, IOException}
import java.net.{SocketException, SocketTimeoutException, UnknownHostException}
import java.nio.channels.ClosedByInterruptException
import java.nio.file.{AccessDeniedException, NoSuchFileException}

import scala.util.control.NonFatal

import org.apache.hadoop.security.AccessControlException

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.internal.Logging
import org.apache.spark.memory.SparkOutOfMemoryError
import org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException
import org.apache.spark.sql.lakewarden.LakewardenException

/** The one place where what goes wrong with a data file becomes an error that users understand.
  *
  * A file that cannot be read as its table says is never skipped. Of an encrypted file everything but a missing
  * file or an unreachable storage counts as refused decryption: an attacker who changed it can choose how it fails.
  *
  * @param table
  *   its full name
  * @param path
  *   the file's, as it is shown
  */
private[read] final class ReadErrors(table: String, path: String, encrypted: Boolean) extends Logging {

  /** Runs a part of reading the file. */
  def translated[T](part: => T): T =
    try part
    catch {
      case known: LakewardenException => throw known
      case stopped @ (_: ClosedByInterruptException | _: TaskKilledException) => throw stopped
      case NonFatal(stopped) if Option(TaskContext.get()).exists(_.isInterrupted()) => throw stopped
      case full: SparkOutOfMemoryError => throw full
      // Left alone, these two would end the executor, of a local Spark the driver. A page may claim any size; what
      // could not be made leaves the memory as it was.
      case _: OutOfMemoryError => throw damaged("Reading the file needs more memory than this executor has.",
        "file-memory")
      case _: StackOverflowError => throw refused("The file's types are nested too deeply.", "nesting")
      case NonFatal(failure) =>
        logInfo(s"A data file of $table failed", failure)
        throw error(failure)
    }

  /** The file is not what the table says. */
  def refused(problem: String, rule: String): LakewardenException =
    if (encrypted) ofFile("DecryptionRefused", problem, rule, Some(ReadErrors.Restore))
    else damaged(problem, rule)

  /** The file cannot be read as a part of this table. */
  def damaged(problem: String, rule: String): LakewardenException =
    ofFile("DataFileDamaged", problem, rule, Some(ReadErrors.Restore))

  /** The file asks for what is not there yet. */
  def unsupported(problem: String, rule: String): LakewardenException =
    ofFile("NotSupportedYet", problem, rule)

  /** A column that must not be NULL, and of which the file has nothing that may be shown. */
  def required(column: String, masked: Boolean): LakewardenException =
    if (!masked) damaged(s"The required column $column is missing in the file.", "required-column")
    else ofFile(
      "NotSupportedYet", s"The file has no masked values of $column, and the column is required.", "mask-type",
      Some("Run ALTER COLUMN … DROP NOT NULL, or rewrite the table's files."))

  /** The deletes of a file do not fit into the memory. */
  def tooManyDeletes: LakewardenException = ofFile(
    ReadErrors.DeletesTooLarge, "The deleted rows of a file take more memory than this executor has for them.",
    "delete-memory", Some("Give executors more memory, or compact the table."))

  /** Runs a part of keeping a copy of the file on this executor, whose failures are not the file's. */
  def kept[T](part: => T): T =
    try part
    catch {
      case stopped: ClosedByInterruptException => throw stopped
      case failure: IOException =>
        logWarning(s"A copy of a data file of $table could not be kept", failure)
        throw new LakewardenException(
          "StorageUnavailable", said(s"Cannot write the local copy of the file that is verified (${name(failure)})."),
          Some("local-directory"), Some("Free space in the executor's local directories (spark.local.dir)."))
    }

  /** The path may be allowed, but what lies there is another file or none. */
  def linked(problem: String): LakewardenException = ofFile(
    "LocationNotAllowed", problem, "no-links",
    Some("Store the file itself below the table's location, or use the path that the link points to."))

  private def error(failure: Throwable): LakewardenException = failure match {
    case _: FileNotFoundException | _: NoSuchFileException =>
      ofFile("DataFileMissing", "The data file does not exist.", "data-file", Some(ReadErrors.Restore))
    case _: AccessDeniedException | _: AccessControlException | _: SocketException | _: SocketTimeoutException |
        _: UnknownHostException => new LakewardenException(
        "StorageUnavailable", said(s"The storage cannot be reached or denies access to the file (${name(failure)})."),
        Some("storage"),
        Some("Check that the engine's credentials can read the file, and try again."))
    case _: SchemaColumnConvertNotSupportedException =>
      damaged("A column has a different type in the file than in the table's schema.", "column-type")
    case _ => refused(s"The file is damaged, or was replaced by another one (${name(failure)}).",
        if (encrypted) "file-authentic" else "data-file")
  }

  private def ofFile(kind: String, problem: String, rule: String, hint: Option[String] = None): LakewardenException =
    new LakewardenException(kind, said(problem), Some(rule), hint, file = Some(path))

  private def said(problem: String): String =
    s"$problem [table=$table, file=${AllowedPaths.shown(path)}]"

  /** The class of what went wrong at first. */
  private def name(failure: Throwable): String =
    Iterator.iterate(failure)(_.getCause).takeWhile(_ != null).take(ReadErrors.Depth).toSeq.last.getClass.getSimpleName
}

private[read] object ReadErrors {
  val DeletesTooLarge = "DeletesTooLarge"

  def of(table: String, file: PlannedFile): ReadErrors = new ReadErrors(table, file.shownPath, file.algorithm.nonEmpty)

  private val Depth = 20
  private val Restore = "Restore the original file, and find out who changed it."
}

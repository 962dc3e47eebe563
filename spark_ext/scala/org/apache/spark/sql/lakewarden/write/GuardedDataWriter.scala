package org.apache.spark.sql.lakewarden.write

import scala.collection.mutable
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write.{DataWriter, DataWriterFactory, WriterCommitMessage}
import org.apache.spark.sql.lakewarden.crypto.DataKeys

/** The files of one committed task attempt, each as JSON; its data key is wrapped. */
final class FilesWritten(val files: Seq[String]) extends WriterCommitMessage {
  override def toString: String = s"FilesWritten(${files.length})"
}

/** Makes the writers of tasks. It carries the write's transport key and prints none of it. */
final class GuardedWriterFactory(template: FileTemplate) extends DataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long): DataWriter[InternalRow] =
    new GuardedDataWriter(template)

  override def toString: String = s"GuardedWriterFactory(${template.write.id})"
}

/** Writes the rows of one task attempt.
  *
  * Every attempt has files of its own, since every file has an id of its own. The id is the file's name: the number of
  * the task would show the place of its rows in the table's sort order, which encrypted columns can make. Rows come sorted by partition, so
  * that one file is open at a time; where the table asks for `write.spark.fanout.enabled`, they come as they are
  * and several are. Either way a row goes into a file of its partition.
  */
final class GuardedDataWriter(template: FileTemplate) extends DataWriter[InternalRow] with Logging {
  private val layout = template.layout
  private val mostOpen = if (template.settings.fanOut) GuardedDataWriter.FanOut else 1

  /** Least recently used first. */
  private val open = mutable.LinkedHashMap.empty[Seq[Any], DataFile]
  private val finished = mutable.ArrayBuffer.empty[JsonNode]
  private val locations = mutable.ArrayBuffer.empty[String]
  private var current: Option[(Seq[Any], DataFile)] = None

  override def write(row: InternalRow): Unit = {
    val key = layout.keyOf(row)
    WriteErrors.translated(template.write.location) {
      val file = fileOf(key)
      file.write(row)
      if (file.isFull) finish(key)
    }
  }

  override def commit(): FilesWritten = {
    WriteErrors.translated(template.write.location)(open.keys.toSeq.foreach(finish))
    new FilesWritten(finished.map(_.toString).toSeq)
  }

  /** Deletes what this attempt wrote. What cannot be deleted lies under the write's id, for garbage collection. */
  override def abort(): Unit = {
    open.values.foreach(file => quietly(file.abandon()))
    open.clear()
    locations.foreach(each => quietly(StoredPath.delete(each, template.conf.value)))
  }

  override def close(): Unit = ()

  private def fileOf(key: Seq[Any]): DataFile = current match {
    case Some((here, file)) if here == key => file
    case _ =>
      val file = open.remove(key).getOrElse(start(key))
      open.put(key, file)
      current = Some((key, file))
      file
  }

  private def start(key: Seq[Any]): DataFile = {
    val format = template.settings.format
    if (open.size >= mostOpen) finish(open.head._1)
    val name = s"${DataKeys.newFileId()}.${format.name}"
    val location = (template.write.location +: layout.directories(key) :+ name).mkString("/")
    locations += location
    format.start(template, location)
  }

  private def finish(key: Seq[Any]): Unit = {
    val entry = open(key).close()
    entry.put("spec-id", layout.specId).set[JsonNode]("partition", layout.toJson(key))
    if (layout.sortOrderId != 0) entry.put("sort-order-id", layout.sortOrderId)
    open.remove(key)
    finished += entry
    current = None
  }

  private def quietly(action: => Unit): Unit =
    try action
    catch { case NonFatal(problem) => logWarning(
      s"A file is left for garbage collection: ${problem.getClass.getName}") }
}

private object GuardedDataWriter {

  /** Files that may be open at a time where rows are not sorted; each holds a row group or stripe in memory. */
  private val FanOut = 32
}

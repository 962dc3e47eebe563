package org.apache.spark.sql.lakewarden.read

import scala.annotation.nowarn
import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.FileSystem

import org.apache.spark.sql.connector.read.PartitionReader

/** Reads rows, and takes the bytes that it reads out of Hadoop's statistics of its thread, so that Spark's metrics do not
  * tell of rows that are not shown.
  */
private[read] final class UncountedReader[T](reader: PartitionReader[T]) extends PartitionReader[T] {
  override def next(): Boolean = uncounted(reader.next())
  override def get(): T = uncounted(reader.get())
  override def close(): Unit = uncounted(reader.close())

  private def uncounted[R](part: => R): R = {
    val before = statistics.map(each => each -> each.getThreadStatistics.getBytesRead).toMap
    try part
    finally statistics.foreach { each =>
      val more = each.getThreadStatistics.getBytesRead - before.getOrElse(each, 0L)
      if (more > 0) each.incrementBytesRead(-more)
    }
  }

  /** Those that Spark's metrics are taken from. */
  @nowarn("cat=deprecation")
  private def statistics: Seq[FileSystem.Statistics] = FileSystem.getAllStatistics.asScala.toSeq
}

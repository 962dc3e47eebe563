package org.apache.spark.sql.lakewarden.read

import scala.annotation.nowarn
import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.FileSystem

import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Reads batches, and takes the bytes that it reads out of Hadoop's statistics of its thread, so that Spark's metrics do
  * not tell of rows that are not shown.
  */
private[read] final class UncountedBatches(source: BatchReader) extends BatchReader {
  override def next(): Boolean = UncountedBatches.uncounted(source.next())
  override def close(): Unit = UncountedBatches.uncounted(source.close())
  override def batch: ColumnarBatch = source.batch
  override def positions: ColumnVector = source.positions
}

private[read] object UncountedBatches {

  /** Reads what is not counted. */
  def uncounted[R](part: => R): R = {
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

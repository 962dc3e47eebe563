package org.apache.spark.sql.lakewarden.read

import java.nio.ByteBuffer
import java.nio.channels.SeekableByteChannel

import scala.annotation.nowarn

import org.apache.hadoop.fs.{FileSystem, LocalFileSystem}

/** A local file that is open. What is read of it counts in Hadoop's statistics of the thread, as for a file that Hadoop
  * opened: Spark takes the metrics of tasks from there.
  */
private[read] final class CountedChannel(file: SeekableByteChannel) extends SeekableByteChannel {
  override def read(buffer: ByteBuffer): Int = {
    val count = file.read(buffer)
    if (count > 0) CountedChannel.statistics.incrementBytesRead(count)
    count
  }

  override def write(buffer: ByteBuffer): Int = file.write(buffer)
  override def position(): Long = file.position()
  override def position(at: Long): SeekableByteChannel = {
    file.position(at)
    this
  }
  override def size(): Long = file.size()
  override def truncate(size: Long): SeekableByteChannel = file.truncate(size)
  override def isOpen: Boolean = file.isOpen
  override def close(): Unit = file.close()
}

private object CountedChannel {

  /** Those that Spark's metrics are taken from, which Hadoop keeps as long as the JVM. */
  @nowarn("cat=deprecation")
  private val statistics: FileSystem.Statistics = FileSystem.getStatistics("file", classOf[LocalFileSystem])
}

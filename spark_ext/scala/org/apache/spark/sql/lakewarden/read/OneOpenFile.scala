package org.apache.spark.sql.lakewarden.read

import java.nio.ByteBuffer
import java.nio.channels.SeekableByteChannel

import org.apache.hadoop.fs.{FileStatus, FileSystem, FilterFileSystem, FSDataInputStream, FSInputStream, Path}

/** The file system as the reader of one file sees it: whatever it opens is the stream that has been opened.
  *
  * @param size
  *   as the table says
  */
private[read] final class OneOpenFile(storage: FileSystem, stream: FSDataInputStream, size: Long)
    extends FilterFileSystem(storage) {
  override def open(path: Path, bufferSize: Int): FSDataInputStream = stream
  override def open(path: Path): FSDataInputStream = stream
  override def getFileStatus(path: Path): FileStatus = new FileStatus(size, false, 1, 0, 0, path)
}

/** An open local file as Hadoop's readers take it. */
private[read] final class ChannelInput(channel: SeekableByteChannel) extends FSInputStream {
  override def seek(position: Long): Unit = channel.position(position)
  override def getPos: Long = channel.position()
  override def seekToNewSource(position: Long): Boolean = false

  override def read(): Int = {
    val one = new Array[Byte](1)
    if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
  }

  /** In parts: the channel copies through a direct buffer as large as what is asked for, which it keeps per thread. */
  override def read(bytes: Array[Byte], offset: Int, length: Int): Int =
    if (length == 0) 0
    else channel.read(ByteBuffer.wrap(bytes, offset, math.min(length, ChannelStream.ChunkBytes)))

  override def close(): Unit = channel.close()
}

package org.apache.spark.sql.lakewarden.write

import java.io.{ByteArrayOutputStream, FilterOutputStream, OutputStream}
import java.security.MessageDigest

import org.apache.hadoop.fs.{FileSystem, FilterFileSystem, FSDataOutputStream, Path}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** The file system as the writer of one file sees it: its bytes are counted, and hashed on their way.
  *
  * @param hashed
  *   whether the hash is needed, which takes time
  */
private[write] final class OneNewFile(storage: FileSystem, hashed: Boolean) extends FilterFileSystem(storage) {
  private val sha256 = MessageDigest.getInstance("SHA-256")
  private var written = 0L
  private var kept: Option[ByteArrayOutputStream] = None

  /** Bytes so far. */
  def length: Long = written

  /** The SHA-256 of all bytes, once the file is closed. */
  lazy val digest: Array[Byte] = sha256.digest()

  /** Keeps a copy of the bytes that are written from now on. */
  def keep(): Unit = kept = Some(new ByteArrayOutputStream)

  /** The bytes since `keep`. */
  def end: Array[Byte] = kept.fold(Array.emptyByteArray)(_.toByteArray)

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream = {
    val stream = super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress)
    new FSDataOutputStream(new Counted(stream), null)
  }

  private final class Counted(stream: OutputStream) extends FilterOutputStream(stream) {
    override def write(byte: Int): Unit = {
      out.write(byte)
      if (hashed) sha256.update(byte.toByte)
      kept.foreach(_.write(byte))
      written += 1
    }

    override def write(bytes: Array[Byte], offset: Int, count: Int): Unit = {
      out.write(bytes, offset, count)
      if (hashed) sha256.update(bytes, offset, count)
      kept.foreach(_.write(bytes, offset, count))
      written += count
    }
  }
}

package org.apache.spark.sql.lakewarden.read

import java.nio.channels.{FileChannel, SeekableByteChannel}
import java.nio.file.{Files, OpenOption, Path}
import java.nio.file.StandardOpenOption.{CREATE_NEW, READ, WRITE}
import java.nio.file.attribute.PosixFilePermissions
import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.commons.compress.utils.SeekableInMemoryByteChannel

import org.apache.spark.SparkEnv
import org.apache.spark.util.Utils

/** Room for a copy of a data file that only its reader can reach, gone when it is closed: in memory, or for a larger
  * one a file below Spark's local directory that only this system user may open, and that has no name any more.
  *
  * What the file has in plaintext, the copy has in plaintext.
  */
private[read] object PrivateCopy {
  private val MostInMemory = 8L << 20

  /** @param length
    *   in bytes, of the whole copy
    */
  def empty(length: Long): SeekableByteChannel =
    if (length <= MostInMemory) new SeekableInMemoryByteChannel(new Array[Byte](length.toInt)) else nameless()

  private def nameless(): SeekableByteChannel = {
    val path = Path.of(Utils.getLocalDir(SparkEnv.get.conf), s"lakewarden-${UUID.randomUUID()}")
    val owners = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))
    val channel = FileChannel.open(path, Set[OpenOption](CREATE_NEW, READ, WRITE).asJava, owners)
    try Files.delete(path)
    catch {
      case failure: Throwable =>
        channel.close()
        throw failure
    }
    channel
  }
}

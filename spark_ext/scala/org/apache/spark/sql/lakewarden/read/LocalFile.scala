package org.apache.spark.sql.lakewarden.read

import java.io.{EOFException, IOException}
import java.nio.ByteBuffer
import java.nio.channels.{Channels, SeekableByteChannel}
import java.nio.file._
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardOpenOption.READ
import java.nio.file.attribute.{BasicFileAttributes, BasicFileAttributeView}

import scala.jdk.CollectionConverters._

import org.apache.parquet.io.DelegatingSeekableInputStream

import org.apache.spark.sql.lakewarden.LakewardenException

/** Opens a local file without following a link anywhere, so that nobody who may write a directory can turn a
  * checked path into another file.
  *
  * Every segment from `/` on is opened relative to the directory before it; only regular files are read, and what
  * was opened is what is read. A table whose own path leads through a link is refused as well. Needs a system
  * with relative opens (Linux); elsewhere nothing is read. Java cannot open a file without waiting: a pipe that is
  * put in the file's place between look and open makes the task wait for a writer.
  *
  * Source: catalog/storage/local.py, whose rules these are.
  */
private[read] final class LocalFile(errors: ReadErrors) {

  /** The open file at a local location that has been checked.
    *
    * Throws `LocationNotAllowed` for links and what is no regular file, and the system's own exceptions.
    */
  def open(location: Location): SeekableByteChannel = {
    val names = location.segments.map(Path.of(_))
    val directory = names.init.foldLeft(root())(step)
    try regularFile(directory, names.last)
    finally directory.close()
  }

  private type Directory = SecureDirectoryStream[Path]

  private def root(): Directory = Files.newDirectoryStream(Path.of("/")) match {
    case secure: SecureDirectoryStream[Path @unchecked] => secure
    case other =>
      other.close()
      throw errors.linked("This system has no relative opens, without which links cannot be told.")
  }

  private def step(directory: Directory, name: Path): Directory =
    try {
      val seen = attributes(directory, name)
      if (!seen.isDirectory) throw notRegular
      // `name/.` is no pipe that could be waited for; were `name` a link by now, another directory would be open.
      same(unlinked(directory.newDirectoryStream(name.resolve("."))), seen)
    } finally directory.close()

  /** The directory that was opened, if it is the one that was seen. */
  private def same(opened: Directory, seen: BasicFileAttributes): Directory =
    try {
      val key = opened.getFileAttributeView(classOf[BasicFileAttributeView]).readAttributes().fileKey
      if (key == null || key != seen.fileKey) throw notRegular
      opened
    } catch {
      case failure: Throwable =>
        opened.close()
        throw failure
    }

  private def regularFile(directory: Directory, name: Path): SeekableByteChannel = {
    if (!attributes(directory, name).isRegularFile) throw notRegular
    unlinked(directory.newByteChannel(name, Set[OpenOption](READ, NOFOLLOW_LINKS).asJava))
  }

  private def attributes(directory: Directory, name: Path): BasicFileAttributes =
    directory.getFileAttributeView(name, classOf[BasicFileAttributeView], NOFOLLOW_LINKS).readAttributes()

  /** A link met without following it is a failure that has no class of its own. */
  private def unlinked[T](open: => T): T =
    try open
    catch {
      case failure @ (_: NoSuchFileException | _: AccessDeniedException) => throw failure
      case _: FileSystemException => throw notRegular
      case failure: IOException if String.valueOf(failure.getMessage).contains("symbolic link") => throw notRegular
    }

  private def notRegular: LakewardenException =
    errors.linked("The path leads through a link, or to something that is no regular file.")
}

/** An open file as Parquet reads it. */
private[read] final class ChannelStream(channel: SeekableByteChannel)
    extends DelegatingSeekableInputStream(Channels.newInputStream(channel)) {
  override def getPos: Long = channel.position()
  override def seek(position: Long): Unit = channel.position(position)

  override def read(buffer: ByteBuffer): Int = {
    // The channel copies through a direct buffer as large as what is asked for, which it keeps per thread.
    val end = buffer.limit()
    buffer.limit(math.min(end, buffer.position() + ChannelStream.ChunkBytes))
    try channel.read(buffer)
    finally buffer.limit(end)
  }

  override def readFully(buffer: ByteBuffer): Unit =
    while (buffer.hasRemaining)
      if (read(buffer) < 0) throw new EOFException("The file ends before what its footer promises.")

  override def readFully(bytes: Array[Byte], start: Int, length: Int): Unit =
    readFully(ByteBuffer.wrap(bytes, start, length))
}

private[read] object ChannelStream {
  private val ChunkBytes = 1 << 20
}

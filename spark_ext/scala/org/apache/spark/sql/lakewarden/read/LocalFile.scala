package org.apache.spark.sql.lakewarden.read

import java.io.{EOFException, IOException}
import java.nio.ByteBuffer
import java.nio.channels.{Channels, ClosedByInterruptException, SeekableByteChannel}
import java.nio.file._
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardOpenOption.READ
import java.nio.file.attribute.{BasicFileAttributes, BasicFileAttributeView}
import java.time.Duration
import java.util.concurrent.{
  CompletableFuture, CompletionException, ExecutionException, ExecutorService, Executors, TimeoutException}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.jdk.CollectionConverters._

import org.apache.parquet.io.DelegatingSeekableInputStream

import org.apache.spark.sql.lakewarden.LakewardenException

/** Opens a local file without following a link anywhere, so that nobody who may write a directory can turn a
  * checked path into another file.
  *
  * Every segment from `/` on is opened relative to the directory before it; only regular files are read, and what
  * was opened is what is read. A table whose own path leads through a link is refused as well. Needs a system
  * with relative opens (Linux); elsewhere nothing is read.
  *
  * What is no regular file is refused when it is looked at. Java cannot open without waiting, so a pipe that is put
  * in the file's place between look and open would hold the task for ever: the file is opened in a thread beside,
  * for which the task waits a while only. That thread stays until the pipe's other end is opened.
  *
  * Source: catalog/storage/local.py, whose rules these are.
  *
  * @param patience
  *   how long to wait for the system to open a file
  */
private[read] final class LocalFile(errors: ReadErrors, patience: Duration = LocalFile.Patience) {

  /** The open file at a local location that has been checked.
    *
    * Throws `LocationNotAllowed` for links and what is no regular file, and the system's own exceptions.
    */
  def open(location: Location): SeekableByteChannel = {
    val names = location.segments.map(Path.of(_))
    regularFile(names.init.foldLeft(root())(step), names.last)
  }

  private type Directory = SecureDirectoryStream[Path]

  private def root(): Directory = Files.newDirectoryStream(Path.of("/")) match {
    case secure: SecureDirectoryStream[Path @unchecked] => secure
    case other =>
      other.close()
      throw errors.linked(
        "This system cannot open files relative to a directory, so symbolic links cannot be detected.")
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

  /** The open file in a directory, which is closed. */
  private def regularFile(directory: Directory, name: Path): SeekableByteChannel = {
    try if (!attributes(directory, name).isRegularFile) throw notRegular
    catch {
      case failure: Throwable =>
        directory.close()
        throw failure
    }
    val opened = new CompletableFuture[SeekableByteChannel]
    LocalFile.openers.execute { () =>
      try {
        val channel = directory.newByteChannel(name, Set[OpenOption](READ, NOFOLLOW_LINKS).asJava)
        if (!opened.complete(channel)) channel.close()
      } catch { case failure: Throwable => opened.completeExceptionally(failure) }
      finally directory.close()
    }
    unlinked(awaited(opened))
  }

  /** What comes of opening a file; one that comes too late is closed by the thread that opened it. */
  private def awaited(opened: CompletableFuture[SeekableByteChannel]): SeekableByteChannel =
    try opened.get(patience.toMillis, MILLISECONDS)
    catch {
      case failed: ExecutionException => throw failed.getCause
      case _: TimeoutException =>
        opened.completeExceptionally(notRegular)
        finished(opened)
      case _: InterruptedException =>
        if (!opened.completeExceptionally(new ClosedByInterruptException)) opened.thenAccept(_.close())
        Thread.currentThread().interrupt()
        throw new ClosedByInterruptException
    }

  private def finished(opened: CompletableFuture[SeekableByteChannel]): SeekableByteChannel =
    try opened.join()
    catch { case failed: CompletionException => throw failed.getCause }

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
    errors.linked("The path contains a symbolic link, or is not a regular file.")
}

private object LocalFile {
  private val Patience = Duration.ofSeconds(10)

  private val openers: ExecutorService = Executors.newCachedThreadPool { task =>
    val thread = new Thread(task, "lakewarden-open")
    thread.setDaemon(true)
    thread
  }
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
      if (read(buffer) < 0) throw new EOFException("The file ends before the data that its footer lists.")

  override def readFully(bytes: Array[Byte], start: Int, length: Int): Unit =
    readFully(ByteBuffer.wrap(bytes, start, length))
}

private[read] object ChannelStream {
  val ChunkBytes: Int = 1 << 20
}

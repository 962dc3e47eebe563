package org.apache.spark.sql.lakewarden.write

import java.nio.file.InvalidPathException
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.parquet.hadoop.util.HadoopStreams
import org.apache.parquet.io.{OutputFile, PositionOutputStream}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.FooterDigest

/** Locations as Hadoop opens them.
  *
  * A location is literal: `%20` in it is three characters of a name. What Hadoop would make another location of
  * is refused.
  */
private[lakewarden] object StoredPath {
  private val fileSystems = new ConcurrentHashMap[String, FileSystem]

  /** The path of a canonical location. Throws `LocationInvalid` if Hadoop understands another one. */
  def of(location: String, conf: Configuration): Path = {
    val spelling = spelled(location, conf)
    val path = new Path(spelling)
    if (path.toString != spelling.replaceFirst("^file://", "file:")) throw new LakewardenException(
      "LocationInvalid", "Hadoop would open a different location than the catalog named.",
      Some("location-invalid"), Some("Use a table location of letters, digits, slashes, hyphens and underscores."))
    if (location.startsWith("file:") && !isNameable(path)) throw new LakewardenException(
      "LocationInvalid", "The location contains characters that Java cannot encode in the locale of this process.",
      Some("location-locale"),
      Some("Start the Spark driver and executors with a UTF-8 locale, such as LC_ALL=C.UTF-8."))
    path
  }

  /** The file system of a path under the launch configuration.
    *
    * It is not out of Hadoop's own cache, which holds what any session made first, with whatever end point its
    * settings named.
    */
  def fileSystem(path: Path, conf: Configuration): FileSystem = {
    val uri = path.toUri
    fileSystems.computeIfAbsent(s"${uri.getScheme}://${uri.getAuthority}", _ => FileSystem.newInstance(uri, conf))
  }

  /** Deletes one file; one that is not there is no error. */
  def delete(location: String, conf: Configuration): Unit = {
    val path = of(location, conf)
    fileSystem(path, conf).delete(path, false)
  }

  /** In a locale without UTF-8 Java writes `?` for such characters: different locations would be one. */
  private def isNameable(path: Path): Boolean =
    try {
      java.nio.file.Path.of(path.toUri.getPath)
      true
    } catch { case _: InvalidPathException => false }

  /** Where no file system is configured for `s3`, Hadoop's own is `s3a`. */
  private def spelled(location: String, conf: Configuration): String =
    if (location.startsWith("s3://") && conf.get("fs.s3.impl") == null) "s3a" + location.stripPrefix("s3")
    else location
}

/** A new Parquet file that knows how many bytes were written to it, and their hash; a file that is there is not written
  * over.
  *
  * @param hashed
  *   whether the hash of all bytes is wanted
  * @param footerHashed
  *   whether that of the footer is
  */
private final class CountedOutput(path: Path, conf: Configuration, hashed: Boolean, footerHashed: Boolean)
    extends OutputFile {
  private val storage = new OneNewFile(StoredPath.fileSystem(path, conf), hashed)

  /** Bytes, once the file is closed. */
  def length: Long = storage.length

  /** The SHA-256 of all of them, once the file is closed. */
  def digest: Array[Byte] = storage.digest

  /** Says that all rows have been written. What follows, Parquet's writer has in memory as well: indexes, bloom filters
    * and the footer, whose length is not known until it is written.
    */
  def endRows(): Unit = if (footerHashed) storage.keep()

  /** The digest of the footer, once the file is closed. */
  def footerDigest: FooterDigest = FooterDigest.of(storage.end)

  override def create(blockSizeHint: Long): PositionOutputStream = HadoopStreams.wrap(storage.create(path, false))

  override def createOrOverwrite(blockSizeHint: Long): PositionOutputStream = create(blockSizeHint)
  override def supportsBlockSize(): Boolean = false
  override def defaultBlockSize(): Long = 0
  override def getPath(): String = path.toString
}

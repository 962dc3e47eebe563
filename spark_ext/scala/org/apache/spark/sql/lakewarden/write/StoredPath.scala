package org.apache.spark.sql.lakewarden.write

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.parquet.hadoop.util.HadoopOutputFile
import org.apache.parquet.io.{OutputFile, PositionOutputStream}

import org.apache.spark.sql.lakewarden.LakewardenException

/** Locations as Hadoop opens them.
  *
  * A location is literal: `%20` in it is three characters of a name. What Hadoop would make another location of
  * is refused.
  */
private[lakewarden] object StoredPath {

  /** Throws `LocationInvalid` if Hadoop understands another location. */
  def of(location: String, conf: Configuration): Path = {
    val path = new Path(spelled(location, conf))
    if (bare(path.toString) != bare(location)) throw new LakewardenException(
      "LocationInvalid", "Hadoop would open another location than the one that was named.",
      Some("location-invalid"), Some("Give the table a location without odd characters."))
    path
  }

  /** Deletes one file; one that is not there is no error. */
  def delete(location: String, conf: Configuration): Unit = {
    val path = of(location, conf)
    path.getFileSystem(conf).delete(path, false)
  }

  /** Where no file system is configured for `s3`, Hadoop's own is `s3a`. */
  private def spelled(location: String, conf: Configuration): String =
    if (location.startsWith("s3://") && conf.get("fs.s3.impl") == null) "s3a" + location.stripPrefix("s3")
    else location

  /** The location without its scheme's spelling: `file:/x` is `file:///x`, `s3` is `s3a`. */
  private def bare(location: String): String =
    location.replaceFirst("^file:(//)?(?=/)", "file:").replaceFirst("^s3[an]?:", "s3:")
}

/** A new file that knows how many bytes were written to it; a file that is there is not written over. */
private final class CountedOutput(path: Path, conf: Configuration) extends OutputFile {
  private val file = HadoopOutputFile.fromPath(path, conf)
  private var stream: Option[PositionOutputStream] = None
  private var closedAt = 0L

  /** Bytes, once the file is closed. */
  def length: Long = closedAt

  override def create(blockSizeHint: Long): PositionOutputStream = counted(file.create(blockSizeHint))
  override def createOrOverwrite(blockSizeHint: Long): PositionOutputStream = create(blockSizeHint)
  override def supportsBlockSize(): Boolean = file.supportsBlockSize()
  override def defaultBlockSize(): Long = file.defaultBlockSize()
  override def getPath(): String = file.getPath

  private def counted(stream: PositionOutputStream): PositionOutputStream = new PositionOutputStream {
    override def getPos: Long = stream.getPos
    override def write(byte: Int): Unit = stream.write(byte)
    override def write(bytes: Array[Byte], offset: Int, count: Int): Unit = stream.write(bytes, offset, count)
    override def flush(): Unit = stream.flush()
    override def close(): Unit = {
      if (closedAt == 0) closedAt = stream.getPos
      stream.close()
    }
  }
}

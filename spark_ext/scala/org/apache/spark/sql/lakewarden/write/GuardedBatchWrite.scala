package org.apache.spark.sql.lakewarden.write

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.io.compress.zlib.ZlibCompressor.CompressionLevel
import org.apache.hadoop.mapreduce.Job

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.write.{BatchWrite, DataWriterFactory, PhysicalWriteInfo, WriterCommitMessage}
import org.apache.spark.sql.execution.datasources.parquet.{ParquetOptions, ParquetUtils}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.catalog.LoadedTable
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/** One write job: begun when it is carried out; its files are committed together or not at all.
  *
  * Spark's commit coordinator lets one attempt of a task commit. Only the files that such attempts name reach
  * the catalog, whatever other attempts have left in the write's directory.
  */
class GuardedBatchWrite(
    table: LoadedTable, layout: PartitionLayout, settings: WriteSettings, target: CommitTarget)
    extends BatchWrite with Logging {

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
    begun(write => new GuardedWriterFactory(template(write)))

  /** Begins the write, and gives it up if its writers cannot be made: Spark aborts it for what fails later. */
  protected def begun[F](writers: BegunWrite => F): F =
    try writers(target.begin())
    catch { case problem: Throwable =>
      abort(Array.empty)
      throw problem
    }

  protected def template(write: BegunWrite): FileTemplate = {
    val conf = WriterConfiguration.of(table.schema, settings)
    new FileTemplate(write, table.schema, layout, settings, new SerializableConfiguration(conf))
  }

  override def useCommitCoordinator: Boolean = true

  override def commit(messages: Array[WriterCommitMessage]): Unit = {
    val json = new ObjectMapper
    val files = messages.toSeq.collect { case written: FilesWritten => written.files }.flatten
    target.commit(files.map(json.readTree))
  }

  /** Gives the write up. If the catalog does not take that, its garbage collection deletes the expired write. */
  override def abort(messages: Array[WriterCommitMessage]): Unit =
    try target.abort()
    catch { case NonFatal(problem) => logWarning(
      s"A write is left for garbage collection: ${problem.getClass.getName}") }

  override def toString: String = s"${target.name} ${table.fullName}"
}

/** Hadoop's configuration for writing the files: that of the launch, which a session cannot change. */
private[write] object WriterConfiguration {
  private val (zstd, gzip) = ("parquet.compression.codec.zstd.level", "zlib.compress.level")

  /** The names of Hadoop's levels. */
  private val GzipLevels = CompressionLevel.values.toSeq.filter(_ != CompressionLevel.DEFAULT_COMPRESSION)

  def of(schema: StructType, settings: WriteSettings): Configuration = {
    val launch = SparkSession.active.sparkContext.hadoopConfiguration
    val job = Job.getInstance(new Configuration(launch))
    ParquetUtils.prepareWrite(sqlConf, job, schema, new ParquetOptions(Map.empty[String, String], sqlConf))
    val conf = job.getConfiguration
    // Files are encrypted as the catalog says, by no other means.
    conf.unset("parquet.crypto.factory.class")
    settings.codecLevel.foreach { level =>
      conf.setInt(zstd, level)
      conf.setEnum(gzip, GzipLevels(math.min(level, GzipLevels.size - 1)))
    }
    conf
  }

  /** Spark's defaults, but for what makes the files true Iceberg files. */
  private def sqlConf: SQLConf = {
    val conf = new SQLConf
    conf.setConfString(SQLConf.PARQUET_OUTPUT_TIMESTAMP_TYPE.key, "TIMESTAMP_MICROS")
    conf.setConfString(SQLConf.PARQUET_WRITE_LEGACY_FORMAT.key, "false")
    conf.setConfString(SQLConf.PARQUET_FIELD_ID_WRITE_ENABLED.key, "true")
    conf
  }
}

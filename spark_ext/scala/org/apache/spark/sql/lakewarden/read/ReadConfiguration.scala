package org.apache.spark.sql.lakewarden.read

import java.util

import org.apache.hadoop.conf.Configuration
import org.apache.parquet.hadoop.ParquetInputFormat

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.datasources.parquet.ParquetReadSupport
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.SerializableConfiguration

/** The Hadoop configuration of guarded reads.
  *
  * It is the launch configuration alone: a session's settings could name another end point of a storage, another
  * file system, or how Parquet's types are understood. What the reader asks for is all set here.
  */
private[read] object ReadConfiguration {
  val Corrected = "CORRECTED"

  def of(launch: Configuration): Configuration = {
    val conf = new Configuration(launch)
    // Keys are given to the footer's reader directly; another factory would have no part in it.
    conf.unset("parquet.crypto.factory.class")
    conf.set(ParquetInputFormat.READ_SUPPORT_CLASS, classOf[ParquetReadSupport].getName)
    conf.set(SQLConf.SESSION_LOCAL_TIMEZONE.key, "UTC")
    Switches.foreach { case (name, value) => conf.setBoolean(name, value) }
    conf
  }

  private val Switches = Seq(
    SQLConf.CASE_SENSITIVE.key -> true,
    SQLConf.NESTED_SCHEMA_PRUNING_ENABLED.key -> true,
    SQLConf.PARQUET_BINARY_AS_STRING.key -> false,
    SQLConf.PARQUET_INT96_AS_TIMESTAMP.key -> true,
    SQLConf.PARQUET_INFER_TIMESTAMP_NTZ_ENABLED.key -> true,
    SQLConf.LEGACY_PARQUET_NANOS_AS_LONG.key -> false,
    SQLConf.PARQUET_FIELD_ID_READ_ENABLED.key -> false, // columns are renamed per file by field id
    SQLConf.IGNORE_MISSING_PARQUET_FIELD_ID.key -> false,
    SQLConf.LEGACY_PARQUET_RETURN_NULL_STRUCT_IF_ALL_FIELDS_MISSING.key -> false)
}

/** The configuration of guarded reads, as the executors have it.
  *
  * To make and send it takes longer than a small scan, so this is done again only when the launch configuration has
  * changed.
  */
private[read] object SentConfiguration {
  private type Entries = util.Map[String, String]
  private final case class Sent(application: String, entries: Entries, broadcast: Broadcast[SerializableConfiguration])

  private var last: Option[Sent] = None

  def of(context: SparkContext): Broadcast[SerializableConfiguration] = synchronized {
    val entries = entriesOf(context.hadoopConfiguration)
    val same = last.filter(sent => sent.application == context.applicationId && sent.entries == entries)
    val sent = same.getOrElse(send(context))
    last = Some(sent)
    sent.broadcast
  }

  /** Anybody can change the launch configuration at any time: what is remembered is what was sent. */
  private def send(context: SparkContext): Sent = {
    val launch = new Configuration(context.hadoopConfiguration)
    val conf = new SerializableConfiguration(ReadConfiguration.of(launch))
    Sent(context.applicationId, entriesOf(launch), context.broadcast(conf))
  }

  private def entriesOf(conf: Configuration): Entries = {
    val entries = new util.HashMap[String, String]
    conf.forEach(each => entries.put(each.getKey, each.getValue))
    entries
  }
}

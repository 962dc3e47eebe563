package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.orc.CompressionKind
import org.apache.parquet.hadoop.metadata.CompressionCodecName

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.options.GivenOptions
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Iceberg's write options, and the settings of the session that stand for them. */
private[write] object WriteOptions {
  private val (codec, level) = ("compression-codec", "compression-level")
  private val Summary = "snapshot-property."
  private val Levelled = Map(CompressionCodecName.ZSTD -> 22, CompressionCodecName.GZIP -> 9)

  /** The settings of the table, but for what options and session say. Throws `RequestInvalid` for their values. */
  def applied(own: WriteSettings, told: GivenOptions): WriteSettings = compressed(own, told).copy(
    targetFileSize = told.number("target-file-size-bytes").getOrElse(own.targetFileSize),
    distribution = told.choice(Seq("none", "hash", "range"), "distribution-mode", session("distribution-mode"))
      .getOrElse(own.distribution),
    fanOut = told.flag("fanout-enabled").getOrElse(own.fanOut),
    partitionSize = told.number(
      "advisory-partition-size", session("advisory-partition-size"), "write.spark.advisory-partition-size-bytes")
      .getOrElse(0L))

  /** Entries for the snapshot's summary; an option goes before a setting. Case matters in their names. */
  def summary(told: GivenOptions, options: CaseInsensitiveStringMap): Map[String, String] =
    told.below(session(Summary)) ++ options.asCaseSensitiveMap.asScala.collect {
      case (name, value) if name.toLowerCase(Locale.ROOT).startsWith(Summary) => name.drop(Summary.length) -> value
    }

  private def compressed(own: WriteSettings, told: GivenOptions): WriteSettings = own.format match {
    case DataFormat.Orc =>
      told.text(level, session(level)).foreach(value => throw told.invalid(level, value, "it for Parquet files only"))
      val kinds = Seq("zstd", "snappy", "zlib", "lz4", "none")
      told.choice(kinds, codec, session(codec)).fold(own)(kind => own.copy(orcCodec = CompressionKind.valueOf(upper(kind))))
    case DataFormat.Parquet =>
      val names = Seq("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")
      val chosen = told.choice(names, codec, session(codec)).map(name => CompressionCodecName.valueOf(upper(name)))
      val wanted = chosen.filter(_ != own.codec).fold(own)(each => own.copy(codec = each, codecLevel = None))
      told.number(level, session(level)).fold(wanted)(at => wanted.copy(codecLevel = Some(within(wanted.codec, at, told))))
  }

  private def within(codec: CompressionCodecName, at: Long, told: GivenOptions): Int = {
    val most = Levelled.getOrElse(codec, throw new LakewardenException(
      "RequestInvalid", s"The codec ${codec.name} has no levels.", Some("write-option"), Some(s"Remove $level.")))
    if (at <= most) at.toInt else throw told.invalid(level, at.toString, s"a level from 1 to $most")
  }

  private def session(name: String): String = s"spark.sql.iceberg.$name"
  private def upper(name: String): String = name.toUpperCase(Locale.ROOT)
}

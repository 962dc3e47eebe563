package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import scala.util.Try

import org.apache.orc.CompressionKind
import org.apache.parquet.hadoop.metadata.CompressionCodecName

import org.apache.spark.sql.lakewarden.LakewardenException

/** How a table wants its files, by the table properties that Iceberg's writers know.
  *
  * Sizes are in bytes. Source: Iceberg documentation, "Configuration", "Write properties".
  */
final case class WriteSettings(
    format: DataFormat,
    targetFileSize: Long,
    rowGroupSize: Long,
    pageSize: Int,
    pageRowLimit: Int,
    dictionarySize: Int,
    codec: CompressionCodecName,
    codecLevel: Option[Int],
    bloomFilters: BloomFilters,
    orc: OrcSettings,
    distribution: String,
    fanOut: Boolean)

/** Of which columns, by dotted name, a table wants bloom filters in its Parquet files.
  *
  * @param maxBytes
  *   of one filter
  */
final case class BloomFilters(columns: Map[String, BloomFilter], maxBytes: Int)

/** How often a filter may take a value for one that is there, and how many distinct values it is made for. */
final case class BloomFilter(falsePositives: Double, distinct: Option[Long])

/** How a table wants its ORC files. */
final case class OrcSettings(stripeSize: Long, codec: CompressionKind)

object WriteSettings {
  private val Megabyte = 1024L * 1024
  private val Codec = "write.parquet.compression-codec"
  private val Bloom = "write.parquet.bloom-filter"

  /** Parquet's readers take no larger one. */
  private val MostBloomBytes = 128 * Megabyte
  private val Level = "write.parquet.compression-level"

  /** Those whose libraries come with PySpark. */
  private val Codecs = Set("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")
  private val OrcCodec = "write.orc.compression-codec"
  private val OrcCodecs = Set("zstd", "snappy", "zlib", "lz4", "none")
  private val Distributions = Set("none", "hash", "range")

  /** Throws `PropertyInvalid` for a value without a meaning. */
  def of(properties: Map[String, String]): WriteSettings = {
    val table = new Properties(properties)
    val format = table.one(DataFormat.Property, DataFormat.All.map(_.name).toSet, DataFormat.Parquet.name)
    WriteSettings(
      DataFormat.All.find(_.name == format).get,
      table.number("write.target-file-size-bytes", 512 * Megabyte, Long.MaxValue),
      table.number("write.parquet.row-group-size-bytes", 128 * Megabyte, Long.MaxValue),
      table.number("write.parquet.page-size-bytes", Megabyte, Int.MaxValue).toInt,
      table.number("write.parquet.page-row-limit", 50000, Int.MaxValue).toInt,
      table.number("write.parquet.dict-size-bytes", 2 * Megabyte, Int.MaxValue).toInt,
      CompressionCodecName.valueOf(table.one(Codec, Codecs, "zstd").toUpperCase(Locale.ROOT)),
      properties.get(Level).map(_ => table.number(Level, 0, 22).toInt),
      bloomFilters(table),
      OrcSettings(
        table.number("write.orc.stripe-size-bytes", 64 * Megabyte, Long.MaxValue),
        CompressionKind.valueOf(table.one(OrcCodec, OrcCodecs, "zstd").toUpperCase(Locale.ROOT))),
      table.one("write.distribution-mode", Distributions, "hash"),
      table.flag("write.spark.fanout.enabled"))
  }

  private def bloomFilters(table: Properties): BloomFilters = {
    val columns = for (name <- table.below(s"$Bloom-enabled.column.") if table.flag(s"$Bloom-enabled.column.$name"))
      yield {
        val distinct = table.whereGiven(s"$Bloom-ndv.column.$name", table.number(_, 1, Long.MaxValue))
        name -> BloomFilter(table.share(s"$Bloom-fpp.column.$name", 0.01), distinct)
      }
    BloomFilters(columns.toMap, table.number(s"$Bloom-max-bytes", Megabyte, MostBloomBytes).toInt)
  }

  private final class Properties(properties: Map[String, String]) {
    def number(name: String, default: Long, most: Long): Long = properties.get(name).fold(default) { text =>
      Try(text.trim.toLong).toOption.filter(each => each > 0 && each <= most)
        .getOrElse(throw invalid(name, text, s"a number from 1 to $most"))
    }

    /** What stands behind the beginning of names. */
    def below(beginning: String): Seq[String] =
      properties.keys.toSeq.filter(_.startsWith(beginning)).map(_.substring(beginning.length))

    def whereGiven[T](name: String, read: String => T): Option[T] = properties.get(name).map(_ => read(name))

    def flag(name: String): Boolean = one(name, Set("true", "false"), "false").toBoolean

    def share(name: String, default: Double): Double = properties.get(name).fold(default) { text =>
      Try(text.trim.toDouble).toOption.filter(each => each > 0 && each < 1)
        .getOrElse(throw invalid(name, text, "a number between 0 and 1"))
    }

    def one(name: String, allowed: Set[String], default: String): String = {
      val value = properties.getOrElse(name, default).toLowerCase(Locale.ROOT)
      if (allowed(value)) value else throw invalid(name, value, allowed.toSeq.sorted.mkString("one of ", ", ", ""))
    }

    private def invalid(name: String, value: String, expected: String): LakewardenException = new LakewardenException(
      "PropertyInvalid", s"The table property $name is '${value.take(80)}'. It must be $expected.",
        Some("write-settings"),
      Some(s"Run ALTER TABLE … SET TBLPROPERTIES ('$name' = …)."))
  }
}

package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.orc.CompressionKind
import org.apache.parquet.hadoop.metadata.CompressionCodecName

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers

/** How the catalog wants the files of a table. Sizes are in bytes.
  *
  * @param codecLevel
  *   of Parquet's codec; none: its own
  * @param bloomFilters
  *   of Parquet files, by the dotted name of the column
  * @param distribution
  *   how rows are brought together by partition
  * @param fanOut
  *   whether files of many partitions are open at a time, instead of sorting the rows
  * @param partitionSize
  *   of the rows that one task gets, where they are brought together; 0: as Spark's settings say
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
    bloomFilters: Map[String, BloomFilter],
    bloomFilterSize: Int,
    orcStripeSize: Long,
    orcCodec: CompressionKind,
    distribution: String,
    fanOut: Boolean,
    partitionSize: Long = 0)

/** How often a filter may take a value for one that is there, and how many distinct values it is made for. */
final case class BloomFilter(falsePositives: Double, distinct: Option[Long])

object WriteSettings {

  /** Reads `write-settings` of a loaded table (docs/plan-format.md).
    *
    * Throws `PropertyInvalid` where the table has a property that no writer could follow.
    */
  def of(answer: JsonNode): WriteSettings = {
    Option(answer.get("error")).foreach(error => throw LakewardenException.of(error))
    def number(name: String): Long = Answers.field(answer, name).longValue
    def name(field: String): String = Answers.text(answer, field).toUpperCase(Locale.ROOT)
    WriteSettings(
      DataFormat.named(Answers.text(answer, "format")),
      number("target-file-size"),
      number("row-group-size"),
      number("page-size").toInt,
      number("page-rows").toInt,
      number("dictionary-size").toInt,
      CompressionCodecName.valueOf(name("codec")),
      Option(answer.get("codec-level")).filter(_.isInt).map(_.intValue),
      Answers.field(answer, "bloom-filters").elements.asScala.map(bloomFilter).toMap,
      number("bloom-filter-size").toInt,
      number("orc-stripe-size"),
      CompressionKind.valueOf(name("orc-codec")),
      Answers.text(answer, "distribution"),
      Answers.field(answer, "fan-out").booleanValue)
  }

  private def bloomFilter(node: JsonNode): (String, BloomFilter) = {
    val distinct = Option(node.get("distinct")).filter(_.isNumber).map(_.longValue)
    Answers.text(node, "column") -> BloomFilter(Answers.field(node, "false-positives").doubleValue, distinct)
  }
}

package org.apache.spark.sql.lakewarden.write

import java.math.{BigDecimal => JavaDecimal}
import java.time.{LocalDate, LocalDateTime, OffsetDateTime, ZoneOffset}
import java.time.format.DateTimeFormatter
import java.util.HexFormat

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory => Json}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Partition values in Iceberg's JSON form.
  *
  * Source: Iceberg table specification, "JSON single-value serialization".
  */
object SingleValue {
  private val Micros = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS")
  private val PerSecond = 1000000L

  /** A value of Spark's, or null, as JSON. Throws `NotSupportedYet` for what JSON has no number for. */
  def toJson(value: Any, kind: DataType): JsonNode = (value, kind) match {
    case (null, _) => Json.instance.nullNode
    case (each: Boolean, _) => Json.instance.booleanNode(each)
    case (each: Int, DateType) => Json.instance.textNode(LocalDate.ofEpochDay(each.toLong).toString)
    case (each: Int, _) => Json.instance.numberNode(each)
    case (each: Long, TimestampType) => Json.instance.textNode(timestamp(each) + "+00:00")
    case (each: Long, TimestampNTZType) => Json.instance.textNode(timestamp(each))
    case (each: Long, _) => Json.instance.numberNode(each)
    case (each: Float, _) => finite(each.toDouble)
    case (each: Double, _) => finite(each)
    case (each: Decimal, of: DecimalType) => decimal(each, of)
    case (each: Array[Byte], _) => Json.instance.textNode(HexFormat.of.formatHex(each))
    case (each, _) => Json.instance.textNode(each.toString)
  }

  /** A value of Spark's out of JSON that is not null. */
  def fromJson(value: JsonNode, kind: DataType): Any = kind match {
    case BooleanType          => value.booleanValue
    case IntegerType          => value.intValue
    case LongType             => value.longValue
    case FloatType            => number(value).toFloat
    case DoubleType           => number(value)
    case DateType             => LocalDate.parse(value.textValue).toEpochDay.toInt
    case TimestampType        => micros(OffsetDateTime.parse(value.textValue).toLocalDateTime)
    case TimestampNTZType     => micros(LocalDateTime.parse(value.textValue))
    case BinaryType           => HexFormat.of.parseHex(value.textValue)
    case decimal: DecimalType => Decimal(new JavaDecimal(value.textValue), decimal.precision, decimal.scale)
    case _                    => UTF8String.fromString(value.textValue)
  }

  /** The catalog writes NaN and infinity as texts. */
  private def number(value: JsonNode): Double =
    if (value.isTextual) value.textValue.toDouble else value.doubleValue

  private def micros(moment: LocalDateTime): Long =
    moment.toEpochSecond(ZoneOffset.UTC) * PerSecond + moment.getNano / 1000

  private def decimal(value: Decimal, kind: DecimalType): JsonNode =
    Json.instance.textNode(value.toJavaBigDecimal.setScale(kind.scale).toPlainString)

  private def timestamp(micros: Long): String = {
    val nanos = Math.floorMod(micros, PerSecond).toInt * 1000
    Micros.format(LocalDateTime.ofEpochSecond(Math.floorDiv(micros, PerSecond), nanos, ZoneOffset.UTC))
  }

  private def finite(value: Double): JsonNode =
    if (value.isNaN || value.isInfinite) throw new LakewardenException(
      "NotSupportedYet", "NaN and infinity cannot be partition values.", Some("partition-value"), None)
    else Json.instance.numberNode(value)
}

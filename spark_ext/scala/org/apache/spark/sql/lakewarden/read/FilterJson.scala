package org.apache.spark.sql.lakewarden.read

import java.math.BigDecimal
import java.time.{Instant, LocalDate, LocalDateTime, ZoneOffset}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.util.DateTimeUtils.microsToInstant
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._

/** Filters for the catalog, which leaves out files without a wanted row.
  *
  * Only what means the same there is said: the catalog compares numbers as Iceberg does, to which NaN is in no
  * order, and has no like of a negation over NULL. Spark filters again after the scan.
  *
  * Source: Iceberg REST specification, `Expression`.
  *
  * @param schema
  *   the table's
  * @param exact
  *   whether what is said has to match the same rows; else it can match more
  */
private[lakewarden] final class FilterJson(schema: StructType, exact: Boolean = false) {
  import FilterJson._
  private val json = JsonNodeFactory.instance
  private val MaxValues = 200

  /** All filters together; none if there is nothing to say, or it cannot be said exactly. */
  def of(filters: Seq[Filter]): Option[JsonNode] = both(filters)

  /** Whether something of the filter is said. */
  def says(filter: Filter): Boolean = one(filter).nonEmpty

  private def one(filter: Filter): Option[JsonNode] = filter match {
    case And(left, right)                => both(Seq(left, right))
    case Or(left, right) => for (first <- one(left); second <- one(right)) yield either(first, second)
    case AlwaysTrue()                    => Some(part("true"))
    case AlwaysFalse()                   => Some(part("false"))
    case IsNull(name)                    => column(name).map(unary("is-null"))
    case IsNotNull(name)                 => column(name).map(unary("not-null"))
    case EqualNullSafe(name, null)       => column(name).map(unary("is-null"))
    case EqualNullSafe(name, value)      => compared("eq", name, value)
    case EqualTo(name, value)            => compared("eq", name, value)
    case LessThan(name, value)           => compared("lt", name, value)
    case LessThanOrEqual(name, value)    => compared("lt-eq", name, value)
    case GreaterThan(name, value)        => above("gt", name, value)
    case GreaterThanOrEqual(name, value) => above("gt-eq", name, value)
    case StringStartsWith(name, prefix) if prefix.nonEmpty => compared("starts-with", name, prefix)
    case In(name, values) if values.length <= MaxValues    => oneOf(name, values.toSeq.filter(_ != null))
    case In(name, values) if !exact                        => between(name, values.toSeq.filter(_ != null))
    case _                                                 => None
  }

  private def both(filters: Seq[Filter]): Option[JsonNode] = {
    val said = filters.map(one)
    if (exact && said.exists(_.isEmpty)) None else said.flatten.reduceOption(joined("and"))
  }

  private def unary(kind: String)(column: WantedColumn): JsonNode = part(kind).put("term", term(column))

  private def compared(kind: String, name: String, value: Any): Option[JsonNode] =
    for (found <- column(name); literal <- literal(found.dataType, value))
      yield part(kind).put("term", term(found)).set[ObjectNode]("value", literal)

  /** NaN, which no bound tells of, is above every number to Spark. */
  private def above(kind: String, name: String, value: Any): Option[JsonNode] =
    column(name).map(_.dataType).filter(each => each != FloatType && each != DoubleType)
      .flatMap(_ => compared(kind, name, value))

  private def oneOf(name: String, values: Seq[Any]): Option[JsonNode] =
    column(name).flatMap { found =>
      val literals = values.map(literal(found.dataType, _))
      Option.when(values.nonEmpty && literals.forall(_.nonEmpty)) {
        val all = json.arrayNode
        literals.flatten.foreach(all.add)
        part("in").put("term", term(found)).set[ObjectNode]("values", all)
      }
    }

  /** All that is between the smallest and the largest of many values. */
  private def between(name: String, values: Seq[Any]): Option[JsonNode] = {
    val ordered = column(name).map(_.dataType).toSeq.flatMap {
      case IntegerType | LongType => values.map(each => each -> each.asInstanceOf[Number].longValue)
      case DateType               => values.flatMap(each => Moments.days(each).map(each -> _.toLong))
      case _                      => Nil
    }
    Option.when(values.nonEmpty && ordered.length == values.length) {
      Seq(GreaterThanOrEqual(name, ordered.minBy(_._2)._1), LessThanOrEqual(name, ordered.maxBy(_._2)._1))
    }.flatMap(both)
  }

  /** A name with a dot could be taken for a nested one. */
  private def column(name: String): Option[WantedColumn] =
    WantedColumn.find(schema, name, SQLConf.get.resolver).filter(_.path.forall(!_.contains('.')))

  private def term(column: WantedColumn): String = column.path.mkString(".")

  private def part(kind: String): ObjectNode = json.objectNode.put("type", kind)

  private def literal(dataType: DataType, value: Any): Option[JsonNode] = (dataType, value) match {
    case (BooleanType, flag: Boolean)                   => Some(json.booleanNode(flag))
    case (IntegerType, number: Int)                     => Some(json.numberNode(number))
    case (LongType, number: Long)                       => Some(json.numberNode(number))
    case (FloatType, number: Float) if isOrdered(number.toDouble) => Some(json.numberNode(number.toDouble))
    case (DoubleType, number: Double) if isOrdered(number)        => Some(json.numberNode(number))
    case (decimal: DecimalType, number: BigDecimal) if number.scale <= decimal.scale =>
      Some(json.textNode(number.setScale(decimal.scale).toPlainString))
    case (StringType, text: String)           => Some(json.textNode(text)).filter(_ => isText(text))
    case (DateType, _)                        => Moments.days(value).flatMap(each => year(LocalDate.ofEpochDay(each)))
    case (TimestampType, _)                   => Moments.micros(value).flatMap(each => zoned(microsToInstant(each)))
    case (TimestampNTZType, time: LocalDateTime) => local(time)
    case _                                    => None
  }

  private def isOrdered(number: Double): Boolean = !number.isNaN && !number.isInfinite && number != 0

  /** JSON carries no half of a surrogate pair and, here, no NUL. */
  private def isText(text: String): Boolean =
    !text.codePoints().anyMatch(each => each == 0 || each >= 0xd800 && each <= 0xdfff)

  private def year(date: LocalDate): Option[JsonNode] =
    Some(json.textNode(date.toString)).filter(_ => isCommon(date))

  private def zoned(time: Instant): Option[JsonNode] =
    local(LocalDateTime.ofInstant(time, ZoneOffset.UTC)).map(each => json.textNode(each.textValue + "+00:00"))

  private def local(time: LocalDateTime): Option[JsonNode] =
    Some(json.textNode(Format.format(time))).filter(_ => isCommon(time.toLocalDate))

  /** The years that Python's calendar has. */
  private def isCommon(date: LocalDate): Boolean = date.getYear >= 1 && date.getYear <= 9999
}

private[lakewarden] object FilterJson {
  private val Format = java.time.format.DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS")

  /** One of two filters. */
  def either(left: JsonNode, right: JsonNode): JsonNode = joined("or")(left, right)

  private def joined(kind: String)(left: JsonNode, right: JsonNode): JsonNode =
    JsonNodeFactory.instance.objectNode.put("type", kind).set[ObjectNode]("left", left).set[ObjectNode]("right", right)
}

package org.apache.spark.sql.lakewarden.read

import java.time.{LocalDate, LocalDateTime, ZoneOffset}

import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.lakewarden.restrictions.{Either => AnyOf, _}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.sources
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A row filter as Spark says filters, to leave out parts of files that have no row for which it is true. What is not
  * said leaves out nothing.
  *
  * @param schema
  *   of what is read of a file, with ids
  */
private[read] final class SkippingFilters(schema: StructType) {
  private val columns: Map[Int, (String, DataType)] = schema.filter(_.dataType.isInstanceOf[AtomicType])
    .map(field => FieldIds.of(field) -> ((SkippingFilters.quoted(field.name), field.dataType))).toMap

  def of(predicate: RowPredicate): Option[Filter] = predicate match {
    case Always(false)                  => Some(sources.AlwaysFalse())
    case Both(left, right)              => Seq(left, right).flatMap(of).reduceOption(sources.And(_, _))
    case AnyOf(left, right)                  => for (one <- of(left); two <- of(right)) yield sources.Or(one, two)
    case IsNull(column)                 => named(column).map { case (name, _) => sources.IsNull(name) }
    case Not(IsNull(column))            => named(column).map { case (name, _) => sources.IsNotNull(name) }
    case Compared(comparison, column, value) => compared(comparison, column, value)
    case OneOf(column, values) => named(column).flatMap { case (name, kind) =>
        Option.when(values.nonEmpty)(sources.In(name, values.map(SkippingFilters.external(_, kind)).toArray))
      }
    case _ => None
  }

  private def compared(comparison: Comparison, column: Int, value: Any): Option[Filter] =
    named(column).map { case (name, kind) =>
      val literal = SkippingFilters.external(value, kind)
      comparison match {
        case Comparison.Equal          => sources.EqualTo(name, literal)
        case Comparison.Less           => sources.LessThan(name, literal)
        case Comparison.LessOrEqual    => sources.LessThanOrEqual(name, literal)
        case Comparison.Greater        => sources.GreaterThan(name, literal)
        case Comparison.GreaterOrEqual => sources.GreaterThanOrEqual(name, literal)
        case Comparison.StartsWith     => sources.StringStartsWith(name, literal.toString)
      }
    }

  /** A top-level column. Nothing is said of floating point, with its NaN. */
  private def named(column: Int): Option[(String, DataType)] = columns.get(column).filter { case (_, kind) =>
    kind != FloatType && kind != DoubleType && kind != BinaryType
  }
}

private object SkippingFilters {

  /** As filters name a column. */
  private def quoted(name: String): String = s"`${name.replace("`", "``")}`"

  /** A value as filters have it. */
  private def external(value: Any, kind: DataType): Any = (value, kind) match {
    case (days: Int, DateType)             => LocalDate.ofEpochDay(days.toLong)
    case (micros: Long, TimestampType)     => DateTimeUtils.microsToInstant(micros)
    case (micros: Long, TimestampNTZType)  => LocalDateTime.ofInstant(DateTimeUtils.microsToInstant(micros), ZoneOffset.UTC)
    case (number: Decimal, _)              => number.toJavaBigDecimal
    case (text: UTF8String, _)             => text.toString
    case (other, _)                        => other
  }
}

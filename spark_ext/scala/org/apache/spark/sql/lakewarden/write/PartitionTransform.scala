package org.apache.spark.sql.lakewarden.write

import java.time.{LocalDate, Period}
import java.util.concurrent.TimeUnit

import org.apache.spark.sql.connector.expressions.{Expression, FieldReference, LiteralValue, LogicalExpressions}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32
import org.apache.spark.unsafe.types.UTF8String

/** How a partition value is made from a column's value.
  *
  * Values are Spark's internal ones (days, microseconds, `UTF8String`, …) and never null: null stays null.
  *
  * Source: Iceberg table specification, "Partition Transforms" and "Appendix B: 32-bit Hash Requirements".
  */
sealed abstract class PartitionTransform extends Serializable {

  /** The type of the partition values. */
  def resultType(source: DataType): DataType = IntegerType

  /** The function for columns of a type. Throws `NotSupportedYet` if there is none. */
  def on(source: DataType): Any => Any

  /** What Spark clusters and sorts by; none if all rows have the same value. */
  def expression(column: Seq[String]): Option[Expression]

  protected def unsupported(source: DataType): Nothing = throw new LakewardenException(
    "NotSupportedYet", s"The partition transform $this does not support values of the type ${source.sql}.",
    Some("partition-transform"), None)
}

object PartitionTransform {
  private val WithNumber = """(bucket|truncate)\[(\d+)\]""".r

  /** A transform by its name in a partition spec. */
  def parse(text: String): PartitionTransform = known(text).getOrElse(throw new LakewardenException(
    "NotSupportedYet", s"The partition transform $text is not supported.", Some("partition-transform"), None))

  /** The same; none if it is not supported. */
  def known(text: String): Option[PartitionTransform] = text match {
    case "identity"                        => Some(Identity)
    case "void"                            => Some(Void)
    case "year" | "month" | "day" | "hour" => Some(TimeTransform(text))
    case WithNumber("bucket", number)      => Some(Bucket(number.toInt))
    case WithNumber("truncate", number)    => Some(Truncate(number.toInt))
    case _                                 => None
  }
}

/** The value itself. */
case object Identity extends PartitionTransform {
  override def resultType(source: DataType): DataType = source
  override def on(source: DataType): Any => Any = source match {
    case _: AtomicType => value => value
    case _ => unsupported(source)
  }
  override def expression(column: Seq[String]): Option[Expression] = Some(FieldReference(column))
}

/** Always null: what is left of a partition field that was removed. */
case object Void extends PartitionTransform {
  override def resultType(source: DataType): DataType = source
  override def on(source: DataType): Any => Any = _ => null
  override def expression(column: Seq[String]): Option[Expression] = None
}

/** The hash of the value, modulo a number of buckets. */
final case class Bucket(count: Int) extends PartitionTransform {
  override def on(source: DataType): Any => Any = {
    val hash = Bucket.hash(source).getOrElse(unsupported(source))
    value => (hash(value) & Int.MaxValue) % count
  }

  override def expression(column: Seq[String]): Option[Expression] =
    Some(LogicalExpressions.bucket(count, Array(FieldReference(column))))
}

object Bucket {

  /** The 32-bit Murmur3 hash, seed 0, of values of a type; none for types that are not hashed. */
  def hash(source: DataType): Option[Any => Int] = source match {
    case IntegerType | DateType => Some(value => Murmur3_x86_32.hashLong(value.asInstanceOf[Int].toLong, 0))
    case LongType | TimestampType | TimestampNTZType =>
      Some(value => Murmur3_x86_32.hashLong(value.asInstanceOf[Long], 0))
    case _: DecimalType =>
      Some(value => hashBytes(value.asInstanceOf[Decimal].toJavaBigDecimal.unscaledValue.toByteArray))
    case StringType => Some(value => hashBytes(value.asInstanceOf[UTF8String].getBytes))
    case BinaryType => Some(value => hashBytes(value.asInstanceOf[Array[Byte]]))
    case _ => None
  }

  private def hashBytes(bytes: Array[Byte]): Int =
    Murmur3_x86_32.hashUnsafeBytes2(bytes, Platform.BYTE_ARRAY_OFFSET.toLong, bytes.length, 0)
}

/** The value cut to a width: numbers to a multiple of it, texts to so many code points, bytes to so many. */
final case class Truncate(width: Int) extends PartitionTransform {
  override def resultType(source: DataType): DataType = source

  override def on(source: DataType): Any => Any = source match {
    // The smallest numbers wrap around, as in Iceberg's own writers.
    case IntegerType => value => intOf(value) - Math.floorMod(intOf(value), width)
    case LongType => value => longOf(value) - Math.floorMod(longOf(value), width.toLong)
    case kind: DecimalType => value => cut(value.asInstanceOf[Decimal], kind)
    case StringType => value => value.asInstanceOf[UTF8String].substring(0, width)
    case BinaryType => value => value.asInstanceOf[Array[Byte]].take(width)
    case _ => unsupported(source)
  }

  override def expression(column: Seq[String]): Option[Expression] =
    Some(LogicalExpressions.apply("truncate", LiteralValue(width, IntegerType), FieldReference(column)))

  private def intOf(value: Any): Int = value.asInstanceOf[Int]

  private def longOf(value: Any): Long = value.asInstanceOf[Long]

  /** The width counts in the last digit that the type has. */
  private def cut(value: Decimal, kind: DecimalType): Decimal = {
    val unscaled = value.toJavaBigDecimal.setScale(kind.scale).unscaledValue
    val rest = unscaled.mod(java.math.BigInteger.valueOf(width.toLong))
    Decimal(new java.math.BigDecimal(unscaled.subtract(rest), kind.scale), DecimalType.MAX_PRECISION, kind.scale)
  }
}

/** Years, months, days or hours since 1970, rounded down; days are a date. */
final case class TimeTransform(unit: String) extends PartitionTransform {
  override def resultType(source: DataType): DataType = if (unit == "day") DateType else IntegerType

  override def on(source: DataType): Any => Any = (source, unit) match {
    case (TimestampType | TimestampNTZType, "hour") => value => hours(value.asInstanceOf[Long])
    case (TimestampType | TimestampNTZType, _) => value => ofDay(days(value.asInstanceOf[Long]))
    case (DateType, "year" | "month" | "day") => value => ofDay(value.asInstanceOf[Int])
    case _ => unsupported(source)
  }

  override def expression(column: Seq[String]): Option[Expression] =
    Some(LogicalExpressions.apply(s"${unit}s", FieldReference(column)))

  private def ofDay(day: Int): Int = unit match {
    case "day" => day
    case "month" => monthsOf(day)
    case _ => Math.floorDiv(monthsOf(day), 12)
  }

  private def monthsOf(day: Int): Int = {
    val date = LocalDate.ofEpochDay(day.toLong)
    Math.toIntExact(Period.between(LocalDate.EPOCH, date.withDayOfMonth(1)).toTotalMonths)
  }

  private def days(micros: Long): Int = Math.floorDiv(micros, TimeUnit.DAYS.toMicros(1)).toInt

  private def hours(micros: Long): Int = {
    val hour = Math.floorDiv(micros, TimeUnit.HOURS.toMicros(1))
    if (hour.isValidInt) hour.toInt
    else throw new LakewardenException(
      "NotSupportedYet", s"A partition by hour cannot have the value $hour, which does not fit in 32 bits.",
      Some("partition-value"), None)
  }
}

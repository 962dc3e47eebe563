package org.apache.spark.sql.lakewarden.restrictions

import java.util

import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.types.{ByteArray, UTF8String}

/** Whether a value that is not NULL is one that a condition asks for. */
private[restrictions] abstract class ValueMatch {
  def apply(values: ColumnVector, row: Int): Boolean

  /** Whether it takes longer than to look up what is known of a value. */
  def isSlow: Boolean = false
}

/** A match of texts, which are taken out of the vector first. */
private[restrictions] final class TextMatch(matches: UTF8String => Boolean) extends ValueMatch {
  override def apply(values: ColumnVector, row: Int): Boolean = matches(values.getUTF8String(row))
  override def isSlow: Boolean = true
}

/** Values are compared as Spark does: NaN equals itself and is above every number, the two zeros are equal, texts and
  * bytes are in the order of their unsigned bytes.
  */
private[restrictions] object ValueMatch {
  import Comparison._

  /** @param value
    *   of that type, in Spark's internal form
    */
  def of(comparison: Comparison, kind: DataType, value: Any): ValueMatch = kind match {
    case _: StringType if comparison == StartsWith => new TextMatch(_.startsWith(value.asInstanceOf[UTF8String]))
    case _: StringType if comparison == Equal      => new TextMatch(_ == value.asInstanceOf[UTF8String])
    case _ =>
      val order = compared(kind, value)
      comparison match {
        case Equal          => (values, row) => order.of(values, row) == 0
        case Less           => (values, row) => order.of(values, row) < 0
        case LessOrEqual    => (values, row) => order.of(values, row) <= 0
        case Greater        => (values, row) => order.of(values, row) > 0
        case GreaterOrEqual => (values, row) => order.of(values, row) >= 0
        case StartsWith     => throw new IllegalArgumentException(s"a prefix of ${kind.sql}")
      }
  }

  def oneOf(kind: DataType, wanted: Seq[Any]): ValueMatch = kind match {
    case _: StringType =>
      val texts = new util.HashSet[UTF8String](2 * wanted.size)
      wanted.foreach(each => texts.add(each.asInstanceOf[UTF8String]))
      new TextMatch(texts.contains(_))
    case IntegerType | DateType =>
      val sorted = wanted.map(_.asInstanceOf[Int]).toArray.sorted
      (values, row) => util.Arrays.binarySearch(sorted, values.getInt(row)) >= 0
    case LongType | TimestampType | TimestampNTZType =>
      val sorted = wanted.map(_.asInstanceOf[Long]).toArray.sorted
      (values, row) => util.Arrays.binarySearch(sorted, values.getLong(row)) >= 0
    case _ =>
      val each = wanted.map(of(Equal, kind, _)).toArray
      (values, row) => each.exists(_(values, row))
  }

  def isNaN(kind: DataType): ValueMatch = kind match {
    case FloatType  => (values, row) => values.getFloat(row).isNaN
    case DoubleType => (values, row) => values.getDouble(row).isNaN
    case _          => (_, _) => false
  }

  /** How a value is to a constant: below, equal, or above. */
  private abstract class Order {
    def of(values: ColumnVector, row: Int): Int
  }

  private def compared(kind: DataType, constant: Any): Order = (kind, constant) match {
    case (BooleanType, flag: Boolean) => (values, row) => java.lang.Boolean.compare(values.getBoolean(row), flag)
    case (FloatType, number: Float) =>
      // The sum makes one of the two zeros.
      (values, row) => java.lang.Float.compare(values.getFloat(row) + 0f, number + 0f)
    case (DoubleType, number: Double) => (values, row) => java.lang.Double.compare(values.getDouble(row) + 0d, number + 0d)
    case (decimal: DecimalType, number: Decimal) =>
      (values, row) => values.getDecimal(row, decimal.precision, decimal.scale).compare(number)
    case (_: StringType, text: UTF8String)  => (values, row) => values.getUTF8String(row).binaryCompare(text)
    case (BinaryType, bytes: Array[Byte])   => (values, row) => ByteArray.compareBinary(values.getBinary(row), bytes)
    case (other, _) => throw new IllegalArgumentException(s"a comparison of ${other.sql}")
  }
}

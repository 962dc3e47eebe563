package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector

/** Comparisons of numbers with a constant. Each type has its own loop, which the JVM compiles without calls for a row. */
private[restrictions] object NumberTests {

  /** @param wanted
    *   whether the rows are wanted for which the comparison is true; else those for which it is false
    * @param value
    *   of that type, in Spark's internal form
    * @return
    *   none for another type
    */
  def of(path: Array[Int], wanted: Boolean, comparison: Comparison, kind: DataType, value: Any): Option[RowTest] = {
    def signs = if (wanted) signsOf(comparison) else ~signsOf(comparison)
    (kind, value) match {
      case (IntegerType | DateType, number: Int)                         => Some(new IntsTest(path, signs, number))
      case (LongType | TimestampType | TimestampNTZType, number: Long)   => Some(new LongsTest(path, signs, number))
      case (DoubleType, number: Double)                                  => Some(new DoublesTest(path, signs, number))
      case _                                                             => None
    }
  }

  /** In bits 0, 1 and 2, whether values below the constant, equal to it and above it are meant. */
  private def signsOf(comparison: Comparison): Int = comparison match {
    case Comparison.Less           => 1
    case Comparison.Equal          => 2
    case Comparison.LessOrEqual    => 3
    case Comparison.Greater        => 4
    case Comparison.GreaterOrEqual => 6
    case Comparison.StartsWith     => throw new IllegalArgumentException("a prefix of a number")
  }

  /** 1 for an order that is meant, else 0. */
  private[restrictions] def in(signs: Int, order: Int): Int = (signs >> (Integer.signum(order) + 1)) & 1
}

private final class IntsTest(path: Array[Int], signs: Int, constant: Int) extends ColumnTest(path) {
  override protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int = {
    val nulls = canBeNull(column)
    var at = 0
    var left = 0
    while (at < count) {
      val row = rows(at)
      rows(left) = row
      if (!nulls || !isNull(column, row)) left += NumberTests.in(signs, Integer.compare(column.getInt(row), constant))
      at += 1
    }
    left
  }
}

private final class LongsTest(path: Array[Int], signs: Int, constant: Long) extends ColumnTest(path) {
  override protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int = {
    val nulls = canBeNull(column)
    var at = 0
    var left = 0
    while (at < count) {
      val row = rows(at)
      rows(left) = row
      if (!nulls || !isNull(column, row)) {
        left += NumberTests.in(signs, java.lang.Long.compare(column.getLong(row), constant))
      }
      at += 1
    }
    left
  }
}

/** NaN equals itself and is above every number, the two zeros are equal. */
private final class DoublesTest(path: Array[Int], signs: Int, number: Double) extends ColumnTest(path) {
  // The sum makes one of the two zeros.
  private val constant = number + 0d

  override val keepsNaN: Boolean = NumberTests.in(signs, 1) == 1

  override protected def kept(column: ColumnVector, rows: Array[Int], count: Int): Int = {
    val nulls = canBeNull(column)
    var at = 0
    var left = 0
    while (at < count) {
      val row = rows(at)
      rows(left) = row
      if (!nulls || !isNull(column, row)) {
        left += NumberTests.in(signs, java.lang.Double.compare(column.getDouble(row) + 0d, constant))
      }
      at += 1
    }
    left
  }
}

package org.apache.spark.sql.lakewarden.restrictions

import java.time.LocalDate

import org.apache.spark.unsafe.types.UTF8String

/** Hive's masks, by units of UTF-16 and by decimal digits, with the arguments that Ranger gives them.
  *
  * Source: Apache Hive, `GenericUDFMask`, `GenericUDFMaskShowFirstN`, `GenericUDFMaskShowLastN`; Apache Ranger's service
  * definition of Hive, `maskTypes`.
  *
  * @param upper
  *   what stands for a capital letter
  * @param digit
  *   what stands for a digit of a text
  * @param first
  *   how many characters or digits at the beginning are shown
  * @param last
  *   how many at the end are
  */
private[restrictions] final class HiveMasks(upper: Char, digit: Char, first: Int = 0, last: Int = 0) {
  private val Lower = 'x'
  private val shown = first + last

  def text(value: UTF8String): UTF8String = {
    val units = value.toString
    if (shown > 0 && units.length <= shown) value
    else {
      val (from, until) = (first, units.length - last)
      val masked = new java.lang.StringBuilder(units.length).append(units)
      (from until until).foreach(at => masked.setCharAt(at, char(units.charAt(at))))
      UTF8String.fromString(masked.toString)
    }
  }

  private def char(each: Char): Char = Character.getType(each) match {
    case Character.UPPERCASE_LETTER     => upper
    case Character.LOWERCASE_LETTER     => Lower
    case Character.DECIMAL_DIGIT_NUMBER => digit
    case _                              => each
  }

  /** Of the digits, those that are not shown become 1. */
  def int(value: Int): Int =
    if (value == 0) (if (shown > 0) 0 else 1)
    else {
      val hidden = math.max(HiveMasks.digits(value.toLong) - first, 0)
      // The absolute value of the least number is itself.
      var (left, place, masked, at) = (if (value < 0) -value else value, 1, 0, 0)
      while (left != 0) {
        masked += (if (at >= last && at < hidden) place else (left % 10) * place)
        left /= 10
        place *= 10
        at += 1
      }
      if (value < 0) -masked else masked
    }

  def long(value: Long): Long =
    if (value == 0) (if (shown > 0) 0 else 1)
    else {
      val hidden = math.max(HiveMasks.digits(value) - first, 0)
      var (left, place, masked, at) = (if (value < 0) -value else value, 1L, 0L, 0)
      while (left != 0) {
        masked += (if (at >= last && at < hidden) place else (left % 10) * place)
        left /= 10
        place *= 10
        at += 1
      }
      if (value < 0) -masked else masked
    }
}

private[restrictions] object HiveMasks {
  val Mask = new HiveMasks('X', 'n')
  val First4 = new HiveMasks('x', 'x', first = 4)
  val Last4 = new HiveMasks('x', 'x', last = 4)
  val Year = new HiveMasks('x', 'x')

  /** The first day of the year 0. */
  val Day: Int = Math.toIntExact(LocalDate.of(0, 1, 1).toEpochDay)

  private def digits(value: Long): Int = {
    var (left, count) = (value, 0)
    while (left != 0) {
      left /= 10
      count += 1
    }
    count
  }
}

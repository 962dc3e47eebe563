package org.apache.spark.sql.lakewarden.restrictions

import java.time.LocalDate
import java.util.concurrent.TimeUnit.DAYS

/** Masks of days, and of moments by their day in UTC.
  *
  * Source: Iceberg REST specification, `TruncateToYear`, `TruncateToMonth`.
  */
private[restrictions] object MomentMasks {
  private val MicrosPerDay = DAYS.toMicros(1)

  /** The first day of a day's year. */
  def year(day: Int): Int = first(day, LocalDate.ofEpochDay(day.toLong).getDayOfYear)

  /** The first day of a day's month. */
  def month(day: Int): Int = first(day, LocalDate.ofEpochDay(day.toLong).getDayOfMonth)

  /** Before the first day that is a number of days, this.
    *
    * @param place
    *   of the day, from 1
    */
  private def first(day: Int, place: Int): Int = math.max(day.toLong - (place - 1), Int.MinValue.toLong).toInt

  /** @param first
    *   of a day
    */
  def micros(value: Long)(first: Int => Int): Long = {
    val day = first(Math.floorDiv(value, MicrosPerDay).toInt)
    // The first moment of the first year is not a number of microseconds.
    if (day < Math.floorDiv(Long.MinValue, MicrosPerDay) + 1) Long.MinValue else day * MicrosPerDay
  }
}

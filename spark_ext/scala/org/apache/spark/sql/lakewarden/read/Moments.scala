package org.apache.spark.sql.lakewarden.read

import java.sql.{Date, Timestamp}
import java.time.{LocalDate, LocalDateTime, ZoneOffset}
import java.util.concurrent.TimeUnit.SECONDS

import org.apache.spark.sql.catalyst.util.DateTimeUtils.{anyToDays, anyToMicros, localDateTimeToMicros}

/** Days and instants of a filter, where it is certain which are meant.
  *
  * Spark hands them over as `java.sql.Date` and `java.sql.Timestamp`, unless `spark.sql.datetime.java8API.enabled` is
  * set. Those have the calendar in which 1582-10-04 was followed by 1582-10-15: a day in between becomes the 15th, and
  * an instant one of the ten days from there on.
  */
private[read] object Moments {
  private val Changed = LocalDate.of(1582, 10, 15)

  /** A day more on both sides, since the time zone is the session's. */
  private val (doubtfulFrom, doubtfulUntil) = (startOf(Changed.minusDays(1)), startOf(Changed.plusDays(11)))

  /** Days since 1970-01-01. */
  def days(value: Any): Option[Int] = Some(anyToDays(value))
    .filterNot(found => value.isInstanceOf[Date] && found == Changed.toEpochDay)

  /** Microseconds since 1970-01-01, UTC. */
  def micros(value: Any): Option[Long] = Some(anyToMicros(value))
    .filterNot(found => value.isInstanceOf[Timestamp] && found >= doubtfulFrom && found < doubtfulUntil)

  /** Microseconds since 1970-01-01, in no time zone; none for what is no such time. */
  def localMicros(value: Any): Option[Long] = value match {
    case time: LocalDateTime => Some(localDateTimeToMicros(time))
    case _                   => None
  }

  private def startOf(day: LocalDate): Long = SECONDS.toMicros(day.atStartOfDay.toEpochSecond(ZoneOffset.UTC))
}

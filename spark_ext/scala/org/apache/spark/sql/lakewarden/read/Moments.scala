package org.apache.spark.sql.lakewarden.read

import java.sql.{Date, Timestamp}
import java.time.{LocalDate, ZoneOffset}
import java.util.concurrent.TimeUnit.SECONDS

import org.apache.spark.sql.catalyst.util.DateTimeUtils.{anyToDays, anyToMicros}

/** Days and instants of a filter, where it is certain which are meant.
  *
  * Spark hands them over as `java.sql.Date` and `java.sql.Timestamp`, unless `spark.sql.datetime.java8API.enabled` is
  * set. Those have the calendar in which 1582-10-04 was followed by 1582-10-15: a day in between becomes the 15th, and
  * an instant one of the ten days from there on.
  */
private[read] object Moments {
  private val Changed = LocalDate.of(1582, 10, 15)
  private val Doubtful = {
    // A day more on both sides, since the time zone is the session's.
    val micros = (day: LocalDate) => SECONDS.toMicros(day.atStartOfDay.toEpochSecond(ZoneOffset.UTC))
    (micros(Changed.minusDays(1)), micros(Changed.plusDays(11)))
  }

  /** Days since 1970-01-01. */
  def days(value: Any): Option[Int] = Some(anyToDays(value))
    .filterNot(found => value.isInstanceOf[Date] && found == Changed.toEpochDay)

  /** Microseconds since 1970-01-01, UTC. */
  def micros(value: Any): Option[Long] = Some(anyToMicros(value))
    .filterNot(found => value.isInstanceOf[Timestamp] && found >= Doubtful._1 && found < Doubtful._2)
}

package org.apache.spark.sql.lakewarden.catalog

import java.util

import org.apache.spark.sql.classic.SparkSession

/** The sessions that read the texts of definer views for one session. Spark keeps something of each new session until
  * the driver's memory is cleaned, so that a view that is read again has the same one.
  */
final class ViewSessions {
  private val known = new util.LinkedHashMap[ThroughView, SparkSession](16, 0.75f, true) {
    override protected def removeEldestEntry(eldest: util.Map.Entry[ThroughView, SparkSession]): Boolean =
      size > ViewSessions.Most
  }

  def of(view: ThroughView)(make: => SparkSession): SparkSession =
    synchronized(Option(known.get(view))).getOrElse {
      val made = make
      synchronized(Option(known.putIfAbsent(view, made)).getOrElse(made))
    }
}

private object ViewSessions {
  private val Most = 32
}

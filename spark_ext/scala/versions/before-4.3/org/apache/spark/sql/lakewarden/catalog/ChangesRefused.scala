package org.apache.spark.sql.lakewarden.catalog

/** Spark does not read `CHANGES`. */
trait ChangesRefused

package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}

/** There are none: Spark before 4.3 refuses them for all tables, or has no syntax for them. */
object ReplacingInserts {
  def inject(extensions: SparkSessionExtensions, isOurs: SparkSession => Seq[String] => Boolean): Unit = ()
}

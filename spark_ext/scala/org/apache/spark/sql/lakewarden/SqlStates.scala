package org.apache.spark.sql.lakewarden

/** The SQLSTATE of each error: `resources/lakewarden/sql-states.txt`. */
object SqlStates {

  /** A system error (class 58), for an error of a catalog that is newer than this plugin. */
  private val Other = "58000"

  /** Of an error of Spark that has none: a general error (ISO/IEC 9075-3, CLI). */
  val General = "HY000"

  /** What Spark writes in JSON for the condition that an error does not have (`SparkThrowableHelper.getMessage`). */
  val Legacy = "LEGACY"

  private lazy val states: Map[String, String] =
    Resource.lines("/lakewarden/sql-states.txt").map(_.split(' ')).map(each => each(0) -> each(1)).toMap

  /** @param kind the class of the error */
  def of(kind: String): String = states.getOrElse(kind, Other)
}

package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.LaunchedCatalog

/** Tells the tables of Lakewarden catalogs by their names, when a statement is parsed.
  *
  * @param guard
  *   refuses a plan of a session that is not to be trusted, before a catalog that the session names is loaded
  */
final class OurTables(session: SparkSession, guard: LogicalPlan => Unit) {
  private val launched = LaunchedCatalog.all(session.sparkContext.getConf).keySet

  /** Whether a table is in a catalog of ours: the one that its name begins with, else the current one. */
  def contains(name: Seq[String]): Boolean =
    if (name.length > 1 && launched(name.head)) true
    else if (name.length > 1 && isCatalog(name.head)) false
    else isCurrent

  private def isCatalog(name: String): Boolean =
    name == "spark_catalog" || name == "global_temp" ||
      session.conf.getOption(s"spark.sql.catalog.$name").nonEmpty

  /** What the guard refuses becomes a plan, which it refuses again with its own error. */
  private def isCurrent: Boolean =
    try {
      guard(OneRowRelation())
      launched(session.catalog.currentCatalog())
    } catch { case _: LakewardenException => true }
}

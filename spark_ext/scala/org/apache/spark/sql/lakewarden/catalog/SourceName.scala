package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.parser.{CatalystSqlParser, ParseException}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.lakewarden.LakewardenException

/** The names of tables that `format("iceberg")` takes where other formats take paths. */
object SourceName {
  val Format = "iceberg"
  val Path = "path"

  /** The parts of a table's name; none for a path, or for several. */
  def of(paths: Seq[String]): Option[Seq[String]] = paths match {
    case Seq(text) if !text.contains('/') =>
      try Some(CatalystSqlParser.parseMultipartIdentifier(text))
      catch { case _: ParseException => None }
    case _ => None
  }

  /** The table of a Lakewarden catalog that a name stands for. Throws `NotSupportedYet` for paths and other catalogs. */
  def resolved(path: Option[String]): (CatalogPlugin, Identifier) = {
    val session = SparkSession.active
    val lookup = session.sessionState.analyzer.CatalogAndIdentifier
    of(path.toSeq).flatMap(lookup.unapply).collect { case (ours: SessionBound, ident) => (ours, ident) }
      .getOrElse(throw refused(path))
  }

  private def refused(path: Option[String]): LakewardenException = LakewardenException.notSupportedYet(
    s"The format iceberg reads and writes tables of Lakewarden catalogs by name; ${path.fold("no name is given")(text =>
        s"'${text.take(80)}' is none")}.",
    "path", "Use CATALOG.NAMESPACE.TABLE. For files and tables outside of Lakewarden, add Iceberg's jar.")

  /** Whether an option `path` of a write is the name by which its table was found. */
  def isOf(path: String, table: String): Boolean = of(Seq(path)).exists(parts => parts.contains(table))
}

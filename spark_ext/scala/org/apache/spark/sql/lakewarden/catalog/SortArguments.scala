package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.connector.catalog.{CatalogV2Util, Column}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.write.Arrangement

/** The arguments `strategy` and `sort_order` of a rewrite.
  *
  * @param parse
  *   reads a sort order: fields, or the columns of a z-order; throws `ParseException` for any other text
  */
final class SortArguments(parse: String => Either[Seq[SortTerm], Seq[Seq[String]]]) {

  /** How the rows are arranged. Columns are found by the session's rule for upper and lower case.
    *
    * Throws `RequestInvalid` for a strategy that does not exist, or with which there is no sort order, and
    * `ParseException` for a sort order that is none.
    */
  def of(strategy: Option[String], order: Option[String], table: GuardedTable): Arrangement =
    (strategy.map(_.toLowerCase(Locale.ROOT)), order) match {
      case (None | Some("binpack"), None)    => Arrangement.Packed
      case (Some("sort"), None) if isSorted(table) => Arrangement.ByTable
      case (Some("sort"), None) => throw Procedures.refused(
          s"${table.name} has no sort order.", "sort-order",
          "Give a sort_order, or set one with ALTER TABLE … WRITE ORDERED BY.")
      case (None | Some("sort"), Some(text)) => parsed(text, table.columns)
      case (Some("binpack"), Some(_)) => throw Procedures.refused(
          "The strategy binpack has no sort order.", "strategy", "Leave sort_order out, or use the strategy sort.")
      case (Some(other), _) => throw Procedures.refused(
          s"The strategy ${other.take(80)} does not exist.", "strategy", "Use binpack or sort.")
    }

  /** Tells the catalog by which columns rows are sorted. */
  def put(request: ObjectNode, arrangement: Arrangement): Unit = arrangement match {
    case Arrangement.By(terms, columns) =>
      val paths = request.putArray("sort-columns")
      (terms.map(_.term.column) ++ columns).foreach { column =>
        val path = paths.addArray()
        column.foreach(path.add(_))
      }
    case _ =>
  }

  private def isSorted(table: GuardedTable): Boolean =
    table.handle.table.metadata.required("default-sort-order-id").asInt != 0

  private def parsed(text: String, columns: Array[Column]): Arrangement = {
    val schema = CharVarcharUtils.getRawSchema(CatalogV2Util.v2ColumnsToStructType(columns))
    def spelled(path: Seq[String]): Seq[String] =
      schema.findNestedField(path, includeCollections = true, SQLConf.get.resolver)
        .fold(path) { case (parents, field) => parents :+ field.name }
    parse(text) match {
      case Left(terms)  => Arrangement.By(terms.map(each => each.copy(term = each.term.named(spelled))), Nil)
      case Right(names) => Arrangement.By(Nil, names.map(spelled))
    }
  }
}

package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.expressions.filter.{And, Not, Or, Predicate}
import org.apache.spark.sql.internal.connector.PredicateUtils
import org.apache.spark.sql.lakewarden.read.FilterJson
import org.apache.spark.sql.sources
import org.apache.spark.sql.types.StructType

/** Conditions that choose the rows to remove, for the catalog: it has to find the same rows as Spark.
  *
  * Spark's own conversion of a whole condition serves reads: of `a < b OR c IS NULL` it keeps the side that it can
  * convert. So each comparison is converted by itself here.
  */
private[write] object ExactFilters {

  /** The conditions together; none if the catalog cannot evaluate them.
    *
    * @param schema
    *   the table's
    */
  def of(predicates: Array[Predicate], schema: StructType): Option[JsonNode] = {
    val filters = predicates.toSeq.flatMap(filter)
    Option.when(filters.size == predicates.length)(filters).flatMap(new FilterJson(schema, exact = true).of)
  }

  private def filter(predicate: Predicate): Option[sources.Filter] = predicate match {
    case and: And => for (left <- filter(and.left); right <- filter(and.right)) yield sources.And(left, right)
    case or: Or   => for (left <- filter(or.left); right <- filter(or.right)) yield sources.Or(left, right)
    case not: Not => filter(not.child).map(sources.Not)
    case comparison => PredicateUtils.toV1(comparison)
  }
}

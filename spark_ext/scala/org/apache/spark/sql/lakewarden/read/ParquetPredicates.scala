package org.apache.spark.sql.lakewarden.read

import org.apache.parquet.filter2.predicate.FilterApi.{and, or}
import org.apache.parquet.filter2.predicate.FilterPredicate

import org.apache.spark.sql.sources._
import org.apache.spark.sql.types.StructType

/** Filters as Parquet uses them to leave out row groups and pages of one file.
  *
  * Columns are found by field id. What cannot be said exactly about this file's column (another physical type, an
  * absent column, a comparison that Spark answers differently) is left out: Spark filters again after the scan, so
  * that leaving out is always right.
  */
private[read] final class ParquetPredicates(columns: FileColumns, wanted: StructType) {
  private val MaxValues = 200

  /** All filters together; none if there is nothing to say. */
  def of(filters: Seq[Filter]): Option[FilterPredicate] = filters.flatMap(one).reduceOption(and(_, _))

  private def one(filter: Filter): Option[FilterPredicate] = filter match {
    case And(left, right)            => Seq(left, right).flatMap(one).reduceOption(and(_, _))
    case Or(left, right)             => for (first <- one(left); second <- one(right)) yield or(first, second)
    case IsNull(name)                => column(name).map(_.isNull)
    case IsNotNull(name)             => column(name).map(_.isNotNull)
    case EqualNullSafe(name, null)   => column(name).map(_.isNull)
    case EqualNullSafe(name, value)  => column(name).flatMap(_.equal(value))
    case EqualTo(name, value)        => column(name).flatMap(_.equal(value))
    case LessThan(name, value)       => column(name).flatMap(_.below(value, orEqual = false))
    case LessThanOrEqual(name, value)    => column(name).flatMap(_.below(value, orEqual = true))
    case GreaterThan(name, value)        => column(name).flatMap(_.above(value, orEqual = false))
    case GreaterThanOrEqual(name, value) => column(name).flatMap(_.above(value, orEqual = true))
    case In(name, values) if values.length <= MaxValues => column(name).flatMap(_.oneOf(values.toSeq))
    case StringStartsWith(name, prefix)                 => column(name).flatMap(_.startsWith(prefix))
    case _                                              => None
  }

  private def column(name: String): Option[ParquetColumn] =
    for {
      field <- WantedColumn.find(wanted, name)
      leaf <- columns.leaf(field.id)
      found <- ParquetColumn.of(field.dataType, leaf)
    } yield found
}

package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.parquet.filter2.predicate.FilterApi.{and, or}
import org.apache.parquet.filter2.predicate.FilterPredicate
import org.apache.parquet.hadoop.metadata.{ColumnChunkMetaData, ParquetMetadata}

import org.apache.spark.sql.sources._

/** Filters as Parquet uses them to leave out row groups and pages of one file.
  *
  * Columns are found by field id. What cannot be said exactly about this file's column (another physical type, an
  * absent column, a comparison that Spark answers differently) is left out: Spark filters again after the scan, so
  * that leaving out is always right. Spark adds `IS NOT NULL` to every join and comparison. Where the footer lists no
  * NULL of the column it is left out, since Parquet would read the column's index of pages for nothing.
  *
  * @param named
  *   finds the columns that filters name
  * @param footer
  *   of the file
  */
private[read] final class ParquetPredicates(columns: FileColumns, named: FilterColumns, footer: ParquetMetadata) {
  private val MaxValues = 200

  /** All filters together; none if there is nothing to say. */
  def of(filters: Seq[Filter]): Option[FilterPredicate] = filters.flatMap(one).reduceOption(and(_, _))

  private def one(filter: Filter): Option[FilterPredicate] = filter match {
    case And(left, right)            => Seq(left, right).flatMap(one).reduceOption(and(_, _))
    case Or(left, right)             => for (first <- one(left); second <- one(right)) yield or(first, second)
    case IsNull(name)                => column(name).map(_.isNull)
    case IsNotNull(name)             => leaf(name).filterNot(isFilled).flatMap(asked).map(_.isNotNull)
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

  private def column(name: String): Option[ParquetColumn] = leaf(name).flatMap(asked)

  private type Found = (WantedColumn, FileColumns.Leaf)

  private def leaf(name: String): Option[Found] =
    for {
      field <- named.find(name)
      leaf <- columns.leaf(field.id)
    } yield (field, leaf)

  private def asked(found: Found): Option[ParquetColumn] = ParquetColumn.of(found._1.dataType, found._2)

  private def isFilled(found: Found): Boolean = footer.getBlocks.asScala.forall { block =>
    block.getColumns.asScala.exists(each => each.getPath == found._2.path && hasNoNull(each))
  }

  private def hasNoNull(chunk: ColumnChunkMetaData): Boolean =
    Option(chunk.getStatistics).exists(each => each.isNumNullsSet && each.getNumNulls == 0)
}

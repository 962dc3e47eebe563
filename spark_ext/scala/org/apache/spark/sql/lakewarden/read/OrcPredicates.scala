package org.apache.spark.sql.lakewarden.read

import org.apache.hadoop.hive.ql.io.sarg.{SearchArgument, SearchArgumentFactory}

import org.apache.spark.sql.sources._

/** Filters as ORC uses them to leave out groups of rows of one file.
  *
  * Columns are found by field id. What cannot be said exactly is left out, for Spark filters again after the scan:
  * texts, whose bounds ORC takes in the order of UTF-8 and compares in that of UTF-16, and alters where they are no
  * UTF-8; floating point, with its NaN; and what lies in structs, since it does not count the NULLs of fields whose
  * struct is NULL.
  */
private[read] final class OrcPredicates(columns: OrcColumns, named: FilterColumns) {
  import OrcColumn.{all, Said}

  private val MaxValues = 200

  /** All filters together; none if there is nothing to say. */
  def of(filters: Seq[Filter]): Option[SearchArgument] = {
    val said = filters.flatMap(one)
    Option.when(said.nonEmpty)(all(said)(SearchArgumentFactory.newBuilder()).build())
  }

  private def one(filter: Filter): Option[Said] = filter match {
    case And(left, right) => Some(Seq(left, right).flatMap(one)).filter(_.nonEmpty).map(all)
    case Or(left, right) => for (first <- one(left); second <- one(right))
        yield builder => second(first(builder.startOr())).end()
    case IsNull(name)                    => column(name).map(_.isNull)
    case IsNotNull(name)                 => column(name).map(_.isNotNull)
    case EqualNullSafe(name, null)       => column(name).map(_.isNull)
    case EqualNullSafe(name, value)      => column(name).flatMap(_.equal(value))
    case EqualTo(name, value)            => column(name).flatMap(_.equal(value))
    case LessThan(name, value)           => column(name).flatMap(_.below(value, orEqual = false))
    case LessThanOrEqual(name, value)    => column(name).flatMap(_.below(value, orEqual = true))
    case GreaterThan(name, value)        => column(name).flatMap(_.above(value, orEqual = false))
    case GreaterThanOrEqual(name, value) => column(name).flatMap(_.above(value, orEqual = true))
    case In(name, values) if values.length <= MaxValues => column(name).flatMap(_.oneOf(values.toSeq.filter(_ != null)))
    case _                                              => None
  }

  private def column(name: String): Option[OrcColumn] =
    for {
      field <- named.find(name)
      (name, leaf) <- columns.leaf(field.id)
      found <- OrcColumn.of(s"`${name.replace("`", "``")}`", leaf.getCategory)
    } yield found
}

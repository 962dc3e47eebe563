package org.apache.spark.sql.lakewarden.read

import org.apache.hadoop.hive.ql.io.sarg.{PredicateLeaf, SearchArgument, SearchArgumentFactory}
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument.{Builder, TruthValue}
import org.apache.orc.TypeDescription
import org.apache.orc.TypeDescription.Category

import org.apache.spark.sql.sources._
import org.apache.spark.sql.types.StructType

/** Filters as ORC uses them to leave out groups of rows of one file.
  *
  * Columns are found by field id. What cannot be said exactly is left out, for Spark filters again after the scan:
  * texts, whose bounds ORC takes in the order of UTF-8 and compares in that of UTF-16; decimals, dates, times and
  * floating point, whose scale, zone or NaN it has its own mind about; and what lies in structs, since it does not
  * count the NULLs of fields whose struct is NULL.
  */
private[read] final class OrcPredicates(columns: OrcColumns, wanted: StructType) {
  private type Said = Builder => Builder
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
    case IsNull(name)                    => column(name).map(each => _.isNull(each.name, each.kind))
    case IsNotNull(name)                 => column(name).map(each => not(_.isNull(each.name, each.kind)))
    case EqualNullSafe(name, null)       => column(name).map(each => _.isNull(each.name, each.kind))
    case EqualNullSafe(name, value)      => equal(name, value)
    case EqualTo(name, value)            => equal(name, value)
    case LessThan(name, value)           => below(name, value)
    case LessThanOrEqual(name, value)    => upTo(name, value)
    case GreaterThan(name, value)        => upTo(name, value).map(not)
    case GreaterThanOrEqual(name, value) => below(name, value).map(not)
    case In(name, values) if values.length <= MaxValues => oneOf(name, values.toSeq.filter(_ != null))
    case _                                              => None
  }

  private def all(said: Seq[Said]): Said =
    builder => said.foldLeft(builder.startAnd())((so, each) => each(so)).end()

  private def not(said: Said): Said = builder => said(builder.startNot()).end()

  private def equal(name: String, value: Any): Option[Said] =
    column(name).map(each => _.equals(each.name, each.kind, each.literal(value)))

  private def below(name: String, value: Any): Option[Said] =
    column(name).filter(_.isOrdered).map(each => _.lessThan(each.name, each.kind, each.literal(value)))

  private def upTo(name: String, value: Any): Option[Said] =
    column(name).filter(_.isOrdered).map(each => _.lessThanEquals(each.name, each.kind, each.literal(value)))

  private def oneOf(name: String, values: Seq[Any]): Option[Said] = column(name).map { each => builder =>
    if (values.isEmpty) builder.literal(TruthValue.NO)
    else builder.in(each.name, each.kind, values.map(each.literal): _*)
  }

  private def column(name: String): Option[OrcPredicates.Column] =
    for {
      field <- WantedColumn.find(wanted, name)
      (name, leaf) <- columns.leaf(field.id)
      kind <- OrcPredicates.kind(leaf)
    } yield OrcPredicates.Column(s"`${name.replace("`", "``")}`", kind)
}

private object OrcPredicates {

  /** A column by ORC's name for it. */
  private final case class Column(name: String, kind: PredicateLeaf.Type) {
    def isOrdered: Boolean = kind != PredicateLeaf.Type.BOOLEAN

    def literal(value: Any): Object = value match {
      case number: Number => Long.box(number.longValue)
      case flag           => flag.asInstanceOf[Object]
    }
  }

  private def kind(leaf: TypeDescription): Option[PredicateLeaf.Type] = leaf.getCategory match {
    case Category.BOOLEAN                                                 => Some(PredicateLeaf.Type.BOOLEAN)
    case Category.BYTE | Category.SHORT | Category.INT | Category.LONG    => Some(PredicateLeaf.Type.LONG)
    case _                                                                => None
  }
}

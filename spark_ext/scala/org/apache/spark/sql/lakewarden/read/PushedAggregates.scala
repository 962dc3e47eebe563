package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.expressions.{Expression, NamedReference}
import org.apache.spark.sql.connector.expressions.aggregate.{Aggregation, Count, CountStar, Max, Min}
import org.apache.spark.sql.types._

/** One aggregate of some rows, which Spark puts together with those of other rows. */
private[read] sealed trait PushedAggregate extends Serializable {

  /** As Spark sees it. */
  def field: StructField

  /** Of no row at all. */
  def ofNone: Any

  /** Of one row with the wanted columns. */
  def ofRow(row: InternalRow): Any

  /** Of the rows of a footer; none: it does not tell. */
  def ofFooter(footer: FooterSummary): Option[Any]
}

private[read] case object CountRows extends PushedAggregate {
  override val field: StructField = StructField("count(*)", LongType)
  override def ofNone: Any = 0L
  override def ofRow(row: InternalRow): Any = 1L
  override def ofFooter(footer: FooterSummary): Option[Any] = Some(footer.rows)
}

/** How many values are not NULL. */
private[read] final case class CountValues(column: StructField, place: Int) extends PushedAggregate {
  override def field: StructField = StructField(s"count(${column.name})", LongType)
  override def ofNone: Any = 0L
  override def ofRow(row: InternalRow): Any = if (row.isNullAt(place)) 0L else 1L
  override def ofFooter(footer: FooterSummary): Option[Any] = footer.values(column)
}

/** The minimum or maximum of the values that are not NULL. */
private[read] final case class Extreme(column: StructField, place: Int, minimum: Boolean) extends PushedAggregate {
  override def field: StructField = StructField(s"${if (minimum) "min" else "max"}(${column.name})", column.dataType)
  override def ofNone: Any = null
  override def ofRow(row: InternalRow): Any = if (row.isNullAt(place)) null else row.get(place, column.dataType)
  override def ofFooter(footer: FooterSummary): Option[Any] = footer.extreme(column, minimum)
}

/** The aggregates of a query that a scan answers out of footers, file by file; Spark puts the answers together.
  *
  * A file whose footer does not tell is read, and each of its rows handed on as the aggregate of one row. So files
  * of other schemas or formats, or without statistics, change no answer. No row at all is one answer as well, since
  * Spark makes NULL of counts that nobody gave.
  *
  * @param wanted
  *   the columns that are aggregated, with ids
  */
private[read] final case class PushedAggregates(functions: Seq[PushedAggregate], wanted: StructType) {
  def schema: StructType = StructType(functions.map(_.field))
  def ofNone: InternalRow = row(_.ofNone)
  def ofRow(one: InternalRow): InternalRow = row(_.ofRow(one))

  def ofFooter(footer: FooterSummary): Option[InternalRow] = {
    val found = functions.map(_.ofFooter(footer))
    Option.when(found.forall(_.nonEmpty))(new GenericInternalRow(found.flatten.toArray))
  }

  override def toString: String = functions.map(_.field.name).mkString("[", ", ", "]")

  private def row(of: PushedAggregate => Any): InternalRow = new GenericInternalRow(functions.map(of).toArray)
}

private[read] object PushedAggregates {

  /** The aggregates, if a footer can tell all of them; none if one is of another kind.
    *
    * @param schema
    *   the table's, with ids
    * @param times
    *   whether footers tell of times
    */
  def of(aggregation: Aggregation, schema: StructType, times: Boolean): Option[PushedAggregates] = {
    val asked = aggregation.aggregateExpressions.toSeq
    val names = asked.flatMap(_.children.toSeq).collect { case reference: NamedReference => reference.fieldNames.last }
    val wanted = StructType(schema.filter(field => names.contains(field.name)))
    def column(expression: Expression): Option[(StructField, Int)] = expression match {
      case reference: NamedReference if reference.fieldNames.length == 1 =>
        wanted.getFieldIndex(reference.fieldNames.head).map(place => wanted(place) -> place)
      case _ => None
    }
    val found = asked.map {
      case _: CountStar                     => Some(CountRows)
      case count: Count if !count.isDistinct => column(count.column).filter(isCounted).map((CountValues.apply _).tupled)
      case min: Min                         => column(min.column).filter(isBounded(times)).map { case (of, at) => Extreme(of, at, minimum = true) }
      case max: Max                         => column(max.column).filter(isBounded(times)).map { case (of, at) => Extreme(of, at, minimum = false) }
      case _                                => None
    }
    Option.when(aggregation.groupByExpressions.isEmpty && found.nonEmpty && found.forall(_.nonEmpty))(
      PushedAggregates(found.flatten, wanted))
  }

  private def isCounted(column: (StructField, Int)): Boolean = column._1.dataType match {
    case _: StructType | _: ArrayType | _: MapType => false
    case _                                         => true
  }

  /** Writers may cut the bounds of texts and bytes, and leave NaN out of those of floating point. */
  private def isBounded(times: Boolean)(column: (StructField, Int)): Boolean = column._1.dataType match {
    case BooleanType | IntegerType | LongType | DateType | _: DecimalType => true
    case TimestampType | TimestampNTZType                                 => times
    case _                                                                => false
  }
}

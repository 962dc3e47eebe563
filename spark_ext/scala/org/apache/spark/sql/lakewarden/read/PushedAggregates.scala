package org.apache.spark.sql.lakewarden.read

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.lakewarden.write.SingleValue
import org.apache.spark.sql.types._

/** One output column of pushed aggregates: an aggregate of some rows, which Spark puts together with those of other
  * rows, or what they are grouped by.
  */
private[read] sealed trait PushedAggregate extends Serializable {

  /** As Spark sees it. */
  def field: StructField

  /** Of no row at all. */
  def ofNone: Any

  /** Of one row with the wanted columns. */
  def ofRow(row: InternalRow): Any

  /** Of the rows of a footer; none: it does not tell. */
  def ofFooter(footer: FileSummary): Option[Any]
}

/** What the footer of a file tells, and its partition.
  *
  * @param partition
  *   its values by the name of the field
  */
private[read] final case class FileSummary(footer: FooterSummary, partition: JsonNode)

private[read] case object CountRows extends PushedAggregate {
  override val field: StructField = StructField("count(*)", LongType)
  override def ofNone: Any = 0L
  override def ofRow(row: InternalRow): Any = 1L
  override def ofFooter(file: FileSummary): Option[Any] = Some(file.footer.rows)
}

/** How many values are not NULL. */
private[read] final case class CountValues(column: StructField, place: Int) extends PushedAggregate {
  override def field: StructField = StructField(s"count(${column.name})", LongType)
  override def ofNone: Any = 0L
  override def ofRow(row: InternalRow): Any = if (row.isNullAt(place)) 0L else 1L
  override def ofFooter(file: FileSummary): Option[Any] = file.footer.values(column)
}

/** The minimum or maximum of the values that are not NULL. */
private[read] final case class Extreme(column: StructField, place: Int, minimum: Boolean) extends PushedAggregate {
  override def field: StructField = Extreme.field(column, minimum)
  override def ofNone: Any = null
  override def ofRow(row: InternalRow): Any = if (row.isNullAt(place)) null else row.get(place, column.dataType)
  override def ofFooter(file: FileSummary): Option[Any] = file.footer.extreme(column, minimum)
}

private[read] object Extreme {
  def field(column: StructField, minimum: Boolean): StructField =
    StructField(s"${if (minimum) "min" else "max"}(${column.name})", column.dataType)
}

/** A value that all rows of a file have, since the table is partitioned by it.
  *
  * @param field
  *   what it is to Spark: a group, or a minimum or maximum
  */
private[read] final case class PartitionValue(field: StructField, column: StructField, place: Int, name: String)
    extends PushedAggregate {
  override def ofNone: Any = null

  /** A copy: the row's memory is used again. */
  override def ofRow(row: InternalRow): Any =
    if (row.isNullAt(place)) null else InternalRow.copyValue(row.get(place, column.dataType))

  override def ofFooter(file: FileSummary): Option[Any] = Option(file.partition.get(name)).map { value =>
    if (value.isNull || file.footer.rows == 0) null else SingleValue.fromJson(value, column.dataType)
  }
}

/** The aggregates of a query that a scan answers out of footers, file by file; Spark puts the answers together.
  *
  * A file whose footer does not tell is read, and each of its rows handed on as the aggregate of one row. So files
  * of other schemas or formats, or without statistics, change no answer. Without groups, no row at all is one answer as
  * well, since Spark makes NULL of counts that nobody gave.
  *
  * @param groups
  *   what rows are grouped by
  * @param wanted
  *   the columns that are aggregated or grouped by, with ids
  */
private[read] final case class PushedAggregates(
    groups: Seq[PartitionValue], functions: Seq[PushedAggregate], wanted: StructType) {
  private val outputs = groups ++ functions

  def schema: StructType = StructType(outputs.map(_.field))
  def grouped: Boolean = groups.nonEmpty

  /** Of no row at all: with groups, nothing. */
  def ofNone: Option[InternalRow] = Option.when(!grouped)(row(_.ofNone))
  def ofRow(one: InternalRow): InternalRow = row(_.ofRow(one))

  /** The answer, if there is one, of the rows of a footer; none: it does not tell. */
  def ofFooter(footer: FooterSummary, file: PlannedFile): Option[Option[InternalRow]] =
    if (grouped && footer.rows == 0) Some(None)
    else {
      val told = FileSummary(footer, PushedAggregates.json.readTree(file.partition))
      val found = outputs.map(_.ofFooter(told))
      Option.when(found.forall(_.nonEmpty))(Some(new GenericInternalRow(found.flatten.toArray)))
    }

  override def toString: String =
    functions.map(_.field.name).mkString("[", ", ", "]") + groups.map(_.field.name).mkString(
      if (grouped) ", GroupBy: [" else "", ", ", if (grouped) "]" else "")

  private def row(of: PushedAggregate => Any): InternalRow = new GenericInternalRow(outputs.map(of).toArray)
}

private object PushedAggregates {
  private val json = new ObjectMapper
}

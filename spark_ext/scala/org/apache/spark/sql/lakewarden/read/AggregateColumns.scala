package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.expressions.{Expression, NamedReference}
import org.apache.spark.sql.connector.expressions.aggregate._
import org.apache.spark.sql.types._

/** What the files of a table can tell of its columns without their rows.
  *
  * @param schema
  *   the table's, with ids
  * @param partitions
  *   the columns that the table is partitioned by as they are, with the names of their partition fields
  * @param times
  *   whether footers tell of times
  */
private[read] final class AggregateColumns(schema: StructType, partitions: Map[String, String], times: Boolean) {

  /** The aggregates, if files can tell all of them; none if one is of another kind. */
  def pushed(aggregation: Aggregation): Option[PushedAggregates] = {
    val (asked, by) = (aggregation.aggregateExpressions.toSeq, aggregation.groupByExpressions.toSeq)
    val names = (by ++ asked.flatMap(_.children.toSeq)).collect { case each: NamedReference => each.fieldNames.last }
    val found = new Found(StructType(schema.filter(field => names.contains(field.name))))
    val (groups, functions) = (by.map(found.group), asked.map(found.function))
    Option.when(asked.nonEmpty && (groups ++ functions).forall(_.nonEmpty))(
      PushedAggregates(groups.flatten, functions.flatten, found.wanted))
  }

  private final class Found(val wanted: StructType) {
    def group(by: Expression): Option[PartitionValue] = column(by).flatMap { case (field, place) =>
      partitions.get(field.name).map(PartitionValue(field.copy(metadata = Metadata.empty), field, place, _))
    }

    def function(asked: AggregateFunc): Option[PushedAggregate] = asked match {
      case _: CountStar                      => Some(CountRows)
      case count: Count if !count.isDistinct => column(count.column).filter(isCounted).map((CountValues.apply _).tupled)
      case min: Min                          => column(min.column).flatMap(extreme(_, minimum = true))
      case max: Max                          => column(max.column).flatMap(extreme(_, minimum = false))
      case _                                 => None
    }

    private def extreme(column: (StructField, Int), minimum: Boolean): Option[PushedAggregate] = {
      val (field, place) = column
      val ofPartition = partitions.get(field.name).map(PartitionValue(Extreme.field(field, minimum), field, place, _))
      ofPartition.orElse(Option.when(isBounded(field.dataType))(Extreme(field, place, minimum)))
    }

    private def column(expression: Expression): Option[(StructField, Int)] = expression match {
      case reference: NamedReference if reference.fieldNames.length == 1 =>
        wanted.getFieldIndex(reference.fieldNames.head).map(place => wanted(place) -> place)
      case _ => None
    }
  }

  private def isCounted(column: (StructField, Int)): Boolean = column._1.dataType match {
    case _: StructType | _: ArrayType | _: MapType => false
    case _                                         => true
  }

  /** Writers may cut the bounds of texts and bytes, and leave NaN out of those of floating point. */
  private def isBounded(dataType: DataType): Boolean = dataType match {
    case BooleanType | IntegerType | LongType | DateType | _: DecimalType => true
    case TimestampType | TimestampNTZType                                 => times
    case _                                                                => false
  }
}

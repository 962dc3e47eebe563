package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import org.apache.hadoop.hive.common.`type`.HiveDecimal
import org.apache.orc._
import org.apache.orc.TypeDescription.Category
import org.apache.parquet.io.api.Binary
import org.apache.parquet.schema.{LogicalTypeAnnotation, PrimitiveType, Types}
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName.{BINARY, BOOLEAN, DOUBLE, FLOAT, INT32, INT64}

import org.apache.spark.sql.lakewarden.schema.OrcSchema

/** Statistics of an ORC file that was just written, as its writer counted them; nothing is read again.
  *
  * As of Parquet files: below lists and maps only sizes are known, and a column of floats with a NaN in it has no
  * bounds. Timestamps have none either, since ORC rounds them, nor have bytes that are no text in a column of texts,
  * in whose place ORC puts a sign of its own.
  */
private[write] object OrcStatistics {
  private val MaxColumns = 100
  private val Replaced = '\uFFFD'

  /** @param statistics
    *   by column id
    */
  def of(schema: TypeDescription, statistics: Array[ColumnStatistics], rows: Long): FileStatistics = {
    val columns = leaves(schema, flat = true).take(MaxColumns).map { case (kind, flat) =>
      Column(kind.getAttributeValue(OrcSchema.Id).toInt, kind, statistics(kind.getId), flat)
    }
    val flat = columns.filter(_.isFlat)
    FileStatistics(
      columns.map(each => each.id -> each.found.getBytesOnDisk).toMap,
      flat.map(each => each.id -> rows).toMap,
      flat.map(each => each.id -> (rows - each.found.getNumberOfValues)).toMap,
      flat.flatMap(each => each.bounds.flatMap { case (least, _) => Bound.lower(least, each.form) }
        .map(each.id -> _)).toMap,
      flat.flatMap(each => each.bounds.flatMap { case (_, most) => Bound.upper(most, each.form) }
        .map(each.id -> _)).toMap)
  }

  /** The columns without columns in them, and whether they lie in structs alone. */
  private def leaves(kind: TypeDescription, flat: Boolean): Seq[(TypeDescription, Boolean)] =
    if (kind.getCategory.isPrimitive) Seq(kind -> flat)
    else {
      val inner = flat && kind.getCategory == Category.STRUCT
      kind.getChildren.asScala.toSeq.flatMap(leaves(_, inner))
    }

  private final case class Column(id: Int, kind: TypeDescription, found: ColumnStatistics, isFlat: Boolean) {

    /** The type by which bounds are put into single-value form. */
    def form: PrimitiveType = kind.getCategory match {
      case Category.BOOLEAN => Types.optional(BOOLEAN).named("bound")
      case Category.INT | Category.DATE => Types.optional(INT32).named("bound")
      case Category.LONG => Types.optional(INT64).named("bound")
      case Category.FLOAT => Types.optional(FLOAT).named("bound")
      case Category.DOUBLE => Types.optional(DOUBLE).named("bound")
      case Category.DECIMAL =>
        Types.optional(BINARY).as(LogicalTypeAnnotation.decimalType(kind.getScale, kind.getPrecision)).named("bound")
      case _ => Types.optional(BINARY).as(LogicalTypeAnnotation.stringType).named("bound")
    }

    /** The minimum and the maximum. */
    def bounds: Option[(Any, Any)] = if (found.getNumberOfValues == 0) None else found match {
      case flags: BooleanColumnStatistics => Some((flags.getFalseCount == 0, flags.getTrueCount > 0))
      case dates: DateColumnStatistics =>
        Some((Int.box(dates.getMinimumDayOfEpoch.toInt), Int.box(dates.getMaximumDayOfEpoch.toInt)))
      case numbers: IntegerColumnStatistics if kind.getCategory == Category.INT =>
        Some((Int.box(numbers.getMinimum.toInt), Int.box(numbers.getMaximum.toInt)))
      case numbers: IntegerColumnStatistics => Some((Long.box(numbers.getMinimum), Long.box(numbers.getMaximum)))
      case numbers: DoubleColumnStatistics if numbers.getSum.isNaN => None
      case numbers: DoubleColumnStatistics if kind.getCategory == Category.FLOAT =>
        Some((Float.box(numbers.getMinimum.toFloat), Float.box(numbers.getMaximum.toFloat)))
      case numbers: DoubleColumnStatistics => Some((Double.box(numbers.getMinimum), Double.box(numbers.getMaximum)))
      case numbers: DecimalColumnStatistics => Some((unscaled(numbers.getMinimum), unscaled(numbers.getMaximum)))
      case texts: StringColumnStatistics =>
        for (least <- Option(texts.getLowerBound); most <- Option(texts.getUpperBound)
          if !(least + most).contains(Replaced))
          yield (Binary.fromString(least), Binary.fromString(most))
      case _ => None
    }

    private def unscaled(value: HiveDecimal): Binary = Binary.fromConstantByteArray(
      value.bigDecimalValue.setScale(kind.getScale).unscaledValue.toByteArray)
  }
}

package org.apache.spark.sql.lakewarden.read

import java.math.{BigDecimal, BigInteger}

import scala.jdk.CollectionConverters._

import org.apache.parquet.hadoop.metadata.{BlockMetaData, ColumnPath, ParquetMetadata}
import org.apache.parquet.io.api.Binary
import org.apache.parquet.schema.{PrimitiveType, Type}
import org.apache.parquet.schema.LogicalTypeAnnotation.{dateType, decimalType, intType, timestampType}
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit.MICROS
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName._

import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** What the row groups of a split say in the footer of a Parquet file.
  *
  * Columns are found by field id, and have to be of the table's own type.
  */
private[read] final class ParquetSummary(footer: ParquetMetadata) extends FooterSummary {
  private val blocks = footer.getBlocks.asScala.toSeq

  override def rows: Long = blocks.map(_.getRowCount).sum

  override def values(column: StructField): Option[Long] = chunks(column).map(_.map(_.values).sum)

  override def extreme(column: StructField, minimum: Boolean): Option[Any] = for {
    field <- leaf(column)
    convert <- ParquetSummary.conversion(column.dataType, field) if isOfToday(column.dataType)
    found <- chunks(column)
    filled = found.filter(_.values > 0) if filled.forall(_.ends.nonEmpty)
  } yield {
    val ends = filled.flatMap(_.ends).map { case (low, high) => if (minimum) low else high }
    val order = Ordering.comparatorToOrdering(field.comparator[Any].asInstanceOf[java.util.Comparator[Any]])
    if (ends.isEmpty) null else convert(if (minimum) ends.min(order) else ends.max(order))
  }

  private def chunks(column: StructField): Option[Seq[ParquetSummary.Chunk]] = leaf(column).flatMap { field =>
    val found = blocks.map(chunk(_, ColumnPath.get(field.getName)))
    Option.when(found.forall(_.nonEmpty))(found.flatten)
  }

  private def chunk(block: BlockMetaData, path: ColumnPath): Option[ParquetSummary.Chunk] = for {
    column <- block.getColumns.asScala.find(_.getPath == path) if column.getValueCount == block.getRowCount
    statistics <- Option(column.getStatistics)
    if statistics.isNumNullsSet && statistics.getNumNulls >= 0 && statistics.getNumNulls <= column.getValueCount
    ends = Option.when[(Any, Any)](statistics.hasNonNullValue)((statistics.genericGetMin, statistics.genericGetMax))
  } yield ParquetSummary.Chunk(column.getValueCount - statistics.getNumNulls, ends)

  private def leaf(column: StructField): Option[PrimitiveType] =
    footer.getFileMetaData.getSchema.getFields.asScala.toSeq.filter(_.getId != null)
      .filter(_.getId.intValue == FieldIds.of(column)) match {
      case Seq(field: PrimitiveType) if !field.isRepetition(Type.Repetition.REPEATED) => Some(field)
      case _                                                                          => None
    }

  /** Whether dates and times are in the proleptic Gregorian calendar. */
  private def isOfToday(dataType: DataType): Boolean = dataType match {
    case DateType | TimestampType | TimestampNTZType =>
      val said = footer.getFileMetaData.getKeyValueMetaData
      DataSourceUtils.datetimeRebaseSpec(said.get(_), ReadConfiguration.Corrected).mode.toString ==
        ReadConfiguration.Corrected
    case _ => true
  }
}

private object ParquetSummary {

  /** A column in one row group: how many values are not NULL, their minimum and maximum if they are known. */
  private final case class Chunk(values: Long, ends: Option[(Any, Any)])

  /** How a value of a footer becomes one of Spark's; none if the file has the column in another type. */
  private def conversion(dataType: DataType, field: PrimitiveType): Option[Any => Any] =
    (dataType, field.getPrimitiveTypeName, field.getLogicalTypeAnnotation) match {
      case (BooleanType, BOOLEAN, null) | (IntegerType, INT32, null) | (LongType, INT64, null) => Some(identity)
      case (IntegerType, INT32, kind) if kind == intType(32, true)                 => Some(identity)
      case (LongType, INT64, kind) if kind == intType(64, true)                    => Some(identity)
      case (DateType, INT32, kind) if kind == dateType                             => Some(identity)
      case (TimestampType, INT64, kind) if kind == timestampType(true, MICROS)     => Some(identity)
      case (TimestampNTZType, INT64, kind) if kind == timestampType(false, MICROS) => Some(identity)
      case (decimal: DecimalType, _, kind) if kind == decimalType(decimal.scale, decimal.precision) =>
        Some(value => Decimal(new BigDecimal(unscaled(value), decimal.scale), decimal.precision, decimal.scale))
      case _ => None
    }

  private def unscaled(value: Any): BigInteger = value match {
    case bytes: Binary  => new BigInteger(bytes.getBytes)
    case number: Number => BigInteger.valueOf(number.longValue)
  }
}

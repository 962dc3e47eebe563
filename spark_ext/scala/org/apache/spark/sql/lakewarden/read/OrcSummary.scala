package org.apache.spark.sql.lakewarden.read

import java.math.BigDecimal
import java.math.RoundingMode.UNNECESSARY

import scala.jdk.CollectionConverters._

import org.apache.orc.{Reader, StripeInformation}
import org.apache.orc.OrcProto.ColumnStatistics

import org.apache.spark.sql.catalyst.util.TypeUtils
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** What the stripes of a split say in the footer of an ORC file, of encrypted columns by their keys.
  *
  * Statistics are taken as the file has them: ORC's own classes make zeros of what a writer left out. It does not
  * tell of times, which ORC rounds, nor of texts, which it may cut, nor of floating point.
  *
  * @param columns
  *   of the file, checked against the wanted ones
  */
private[read] final class OrcSummary(file: Reader, columns: OrcColumns, split: FileSplit) extends FooterSummary {
  private val stripes = file.getStripes.asScala.toSeq
  private lazy val told = file.getStripeStatistics(columns.included).asScala.toSeq

  /** A stripe belongs to the split that it begins in, as in reading. */
  private def isRead(stripe: StripeInformation): Boolean =
    stripe.getOffset >= split.start && stripe.getOffset < split.start + split.length

  override def rows: Long = stripes.filter(isRead).map(_.getNumberOfRows).sum

  override def values(column: StructField): Option[Long] =
    statistics(column).map(_.map(_.getNumberOfValues).sum)

  override def extreme(column: StructField, minimum: Boolean): Option[Any] = for {
    bounds <- OrcSummary.bounds(column.dataType)
    found <- statistics(column)
    ends = found.filter(_.getNumberOfValues > 0).map(bounds) if ends.forall(_.nonEmpty)
  } yield {
    val known = ends.flatten.map { case (low, high) => if (minimum) low else high }
    val order = TypeUtils.getInterpretedOrdering(column.dataType)
    if (known.isEmpty) null else if (minimum) known.min(order) else known.max(order)
  }

  /** Of each stripe that is read. */
  private def statistics(column: StructField): Option[Seq[ColumnStatistics]] =
    columns.leaf(FieldIds.of(column)).filter(_ => told.size == stripes.size).flatMap { case (_, leaf) =>
      val found = stripes.zip(told).filter(each => isRead(each._1)).map { case (stripe, each) =>
        Option(each.getColumn(leaf.getId)).filter(OrcSummary.areOf(stripe.getNumberOfRows, _))
      }
      Option.when(found.forall(_.nonEmpty))(found.flatten)
    }
}

private object OrcSummary {

  /** Whether the numbers of values and of NULLs are there and agree. */
  private def areOf(rows: Long, found: ColumnStatistics): Boolean =
    found.hasNumberOfValues && found.hasHasNull && found.getNumberOfValues <= rows &&
      found.getHasNull == (found.getNumberOfValues < rows)

  /** How the least and the greatest value are found in statistics of at least one value; none if they are not, or
    * not for certain.
    */
  private def bounds(dataType: DataType): Option[ColumnStatistics => Option[(Any, Any)]] = dataType match {
    case BooleanType          => Some(ofBooleans)
    case IntegerType          => Some(ofNumbers(_).map { case (low, high) => (low.toInt, high.toInt) })
    case LongType             => Some(ofNumbers)
    case DateType             => Some(ofDays)
    case decimal: DecimalType => Some(ofDecimals(_, decimal))
    case _                    => None
  }

  private def ofBooleans(found: ColumnStatistics): Option[(Boolean, Boolean)] =
    Option.when(found.hasBucketStatistics && found.getBucketStatistics.getCountCount == 1) {
      val areTrue = found.getBucketStatistics.getCount(0)
      (areTrue == found.getNumberOfValues, areTrue > 0)
    }

  private def ofNumbers(found: ColumnStatistics): Option[(Long, Long)] = {
    val ends = found.getIntStatistics
    Option.when(ends.hasMinimum && ends.hasMaximum)((ends.getMinimum, ends.getMaximum))
  }

  private def ofDays(found: ColumnStatistics): Option[(Int, Int)] = {
    val ends = found.getDateStatistics
    Option.when(ends.hasMinimum && ends.hasMaximum)((ends.getMinimum, ends.getMaximum))
  }

  private def ofDecimals(found: ColumnStatistics, decimal: DecimalType): Option[(Decimal, Decimal)] = {
    def exact(text: String): Decimal =
      Decimal(new BigDecimal(text).setScale(decimal.scale, UNNECESSARY), decimal.precision, decimal.scale)
    val ends = found.getDecimalStatistics
    Option.when(ends.hasMinimum && ends.hasMaximum)((exact(ends.getMinimum), exact(ends.getMaximum)))
  }
}

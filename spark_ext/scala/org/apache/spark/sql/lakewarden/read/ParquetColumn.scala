package org.apache.spark.sql.lakewarden.read

import java.lang.{Boolean => JBoolean, Double => JDouble, Float => JFloat, Integer => JInt, Long => JLong}
import java.math.{BigDecimal, BigInteger}

import scala.jdk.CollectionConverters._

import org.apache.parquet.filter2.predicate.{FilterApi, FilterPredicate}
import org.apache.parquet.filter2.predicate.Operators.{Column, SupportsEqNotEq, SupportsLtGt}
import org.apache.parquet.io.api.Binary
import org.apache.parquet.schema.LogicalTypeAnnotation.{dateType, decimalType, intType, stringType, timestampType}
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit.MICROS
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName._

import org.apache.spark.sql.types._

/** What can be asked of one column of a file. None: not exactly. */
private[read] sealed trait ParquetColumn {
  def isNull: FilterPredicate
  def isNotNull: FilterPredicate
  def equal(value: Any): Option[FilterPredicate]
  def below(value: Any, orEqual: Boolean): Option[FilterPredicate] = None
  def above(value: Any, orEqual: Boolean): Option[FilterPredicate] = None
  def oneOf(values: Seq[Any]): Option[FilterPredicate] = None
  def startsWith(prefix: String): Option[FilterPredicate] = None
}

/** A column whose values are equal or not.
  *
  * @param convert
  *   a filter's value as the file has it; none if the file cannot have it
  */
private class EqualColumn[T <: Comparable[T]](
    column: Column[T] with SupportsEqNotEq, convert: Any => Option[T]) extends ParquetColumn {
  override def isNull: FilterPredicate = FilterApi.eq(column, null.asInstanceOf[T])
  override def isNotNull: FilterPredicate = FilterApi.notEq(column, null.asInstanceOf[T])
  override def equal(value: Any): Option[FilterPredicate] = convert(value).map(FilterApi.eq(column, _))
}

/** A column whose values Parquet and Spark order alike. */
private class OrderedColumn[T <: Comparable[T]](
    column: Column[T] with SupportsLtGt, convert: Any => Option[T]) extends EqualColumn[T](column, convert) {

  override def below(value: Any, orEqual: Boolean): Option[FilterPredicate] =
    convert(value).map(each => if (orEqual) FilterApi.ltEq(column, each) else FilterApi.lt(column, each))

  override def above(value: Any, orEqual: Boolean): Option[FilterPredicate] =
    convert(value).map(each => if (orEqual) FilterApi.gtEq(column, each) else FilterApi.gt(column, each))

  /** A value that is NULL equals nothing. */
  override def oneOf(values: Seq[Any]): Option[FilterPredicate] = {
    val known = values.filter(_ != null).map(convert)
    if (known.isEmpty || known.exists(_.isEmpty)) None
    else Some(FilterApi.in(column, known.flatten.toSet.asJava))
  }
}

/** Floating point. To Spark NaN is above everything, and the two zeros are one; writers keep NaN out of the
  * statistics, and dictionaries know two zeros. So nothing is asked that NaN answers, or that zero does.
  */
private final class FloatingColumn[T <: Comparable[T]](
    column: Column[T] with SupportsLtGt, convert: Any => Option[T], isOdd: T => Boolean)
    extends EqualColumn[T](column, convert) {
  override def equal(value: Any): Option[FilterPredicate] =
    convert(value).filterNot(isOdd).map(FilterApi.eq(column, _))

  override def below(value: Any, orEqual: Boolean): Option[FilterPredicate] =
    convert(value).filterNot(isOdd).map(FilterApi.ltEq(column, _))
}

/** Text: what begins with a prefix is a range of the order of UTF-8. */
private final class TextColumn(column: Column[Binary] with SupportsLtGt)
    extends OrderedColumn[Binary](column, ParquetColumn.text) {
  override def startsWith(prefix: String): Option[FilterPredicate] =
    Option.when(prefix.nonEmpty)(FilterApi.gtEq(column, Binary.fromString(prefix)): FilterPredicate).map { from =>
      ParquetColumn.after(prefix).fold(from)(end => FilterApi.and(from, FilterApi.lt(column, end)))
    }
}

private[read] object ParquetColumn {

  /** What can be asked of a column that Spark reads as this type; none if the file has it in another form. */
  def of(dataType: DataType, leaf: FileColumns.Leaf): Option[ParquetColumn] =
    // Parquet's filters name a column by a dotted text, which names with dots would make ambiguous.
    if (leaf.path.toArray.exists(_.contains('.'))) None
    else if (leaf.primitive.getLogicalTypeAnnotation == null) plain(dataType, leaf)
    else annotated(dataType, leaf)

  private def plain(dataType: DataType, leaf: FileColumns.Leaf): Option[ParquetColumn] = {
    val path = leaf.path.toDotString
    (dataType, leaf.primitive.getPrimitiveTypeName) match {
      case (BooleanType, BOOLEAN) => Some(new EqualColumn[JBoolean](FilterApi.booleanColumn(path), same))
      case (IntegerType, INT32)   => Some(new OrderedColumn[JInt](FilterApi.intColumn(path), same))
      case (LongType, INT64)      => Some(new OrderedColumn[JLong](FilterApi.longColumn(path), same))
      case (FloatType, FLOAT) => Some(
          new FloatingColumn[JFloat](FilterApi.floatColumn(path), same, each => each.isNaN || each == 0f))
      case (DoubleType, DOUBLE) => Some(
          new FloatingColumn[JDouble](FilterApi.doubleColumn(path), same, each => each.isNaN || each == 0d))
      case _ => None
    }
  }

  private def annotated(dataType: DataType, leaf: FileColumns.Leaf): Option[ParquetColumn] = {
    val (path, annotation) = (leaf.path.toDotString, leaf.primitive.getLogicalTypeAnnotation)
    (dataType, leaf.primitive.getPrimitiveTypeName) match {
      case (IntegerType, INT32) if annotation == intType(32, true) =>
        Some(new OrderedColumn[JInt](FilterApi.intColumn(path), same))
      case (LongType, INT64) if annotation == intType(64, true) =>
        Some(new OrderedColumn[JLong](FilterApi.longColumn(path), same))
      case (DateType, INT32) if annotation == dateType =>
        Some(new OrderedColumn[JInt](FilterApi.intColumn(path), Moments.days(_).map(Int.box)))
      case (TimestampType, INT64) if annotation == timestampType(true, MICROS) =>
        Some(new OrderedColumn[JLong](FilterApi.longColumn(path), Moments.micros(_).map(Long.box)))
      case (TimestampNTZType, INT64) if annotation == timestampType(false, MICROS) =>
        Some(new OrderedColumn[JLong](FilterApi.longColumn(path), Moments.localMicros(_).map(Long.box)))
      case (StringType, BINARY) if annotation == stringType => Some(new TextColumn(FilterApi.binaryColumn(path)))
      case (decimal: DecimalType, _) if annotation == decimalType(decimal.scale, decimal.precision) =>
        ofDecimal(decimal, leaf)
      case _ => None
    }
  }

  private def ofDecimal(decimal: DecimalType, leaf: FileColumns.Leaf): Option[ParquetColumn] = {
    val path = leaf.path.toDotString
    leaf.primitive.getPrimitiveTypeName match {
      case INT32 => Some(new OrderedColumn[JInt](
          FilterApi.intColumn(path), unscaled(decimal)(_).map(each => Int.box(each.intValueExact))))
      case INT64 => Some(new OrderedColumn[JLong](
          FilterApi.longColumn(path), unscaled(decimal)(_).map(each => Long.box(each.longValueExact))))
      case FIXED_LEN_BYTE_ARRAY =>
        val length = leaf.primitive.getTypeLength
        Some(new OrderedColumn[Binary](
          FilterApi.binaryColumn(path), unscaled(decimal)(_).flatMap(signExtended(_, length))))
      case _ => None
    }
  }

  private def same[T](value: Any): Option[T] = Some(value.asInstanceOf[T])

  private[read] def text(value: Any): Option[Binary] = Some(Binary.fromString(value.toString))

  /** None if the column cannot hold the value. */
  private def unscaled(decimal: DecimalType)(value: Any): Option[BigInteger] = value match {
    case number: BigDecimal if number.scale <= decimal.scale && number.precision - number.scale <=
          decimal.precision - decimal.scale => Some(number.setScale(decimal.scale).unscaledValue)
    case _ => None
  }

  private def signExtended(number: BigInteger, length: Int): Option[Binary] = {
    val bytes = number.toByteArray
    Option.when(bytes.length <= length) {
      val sign: Byte = if (number.signum < 0) -1 else 0
      Binary.fromConstantByteArray(Array.fill(length - bytes.length)(sign) ++ bytes)
    }
  }

  /** The first text after all that begin with the prefix; none if all after it do. */
  private[read] def after(prefix: String): Option[Binary] = {
    val bytes = Binary.fromString(prefix).getBytes
    val last = bytes.lastIndexWhere(_ != -1)
    Option.when(last >= 0)(
      Binary.fromConstantByteArray(bytes.take(last) :+ (bytes(last) + 1).toByte))
  }
}

package org.apache.spark.sql.lakewarden.read

import org.apache.hadoop.hive.ql.exec.vector.{
  BytesColumnVector, ColumnVector => OrcValues, Decimal64ColumnVector, DecimalColumnVector, DoubleColumnVector,
  ListColumnVector, LongColumnVector, MapColumnVector, StructColumnVector, TimestampColumnVector}

import org.apache.spark.sql.lakewarden.restrictions.PlacedParts
import org.apache.spark.sql.lakewarden.schema.OneTypeVector
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** A vector that ORC's reader fills, as Spark reads it; nothing is copied. */
private[read] abstract class OrcVector(kind: DataType, values: OrcValues) extends OneTypeVector(kind) {

  /** Where ORC keeps the value of a row: a batch of equal values has one. */
  protected final def at(row: Int): Int = if (values.isRepeating) 0 else row

  override def close(): Unit = ()
  override def hasNull: Boolean = !values.noNulls
  override def isNullAt(row: Int): Boolean = !values.noNulls && values.isNull(at(row))
}

private[read] object OrcVector {

  /** @param kind
    *   the wanted type, which the file's can be read as
    */
  def primitive(kind: DataType, values: OrcValues): OrcVector = values match {
    case times: TimestampColumnVector => new OrcTimes(kind, times)
    case small: Decimal64ColumnVector => new OrcSmallDecimals(kind, small)
    case numbers: LongColumnVector    => new OrcNumbers(kind, numbers)
    case numbers: DoubleColumnVector  => new OrcFloats(kind, numbers)
    case large: DecimalColumnVector   => new OrcDecimals(kind, large)
    case bytes: BytesColumnVector     => new OrcBytes(kind, bytes)
  }
}

/** Booleans, numbers without fractions, and days. */
private final class OrcNumbers(kind: DataType, values: LongColumnVector) extends OrcVector(kind, values) {
  override def getBoolean(row: Int): Boolean = values.vector(at(row)) != 0
  override def getInt(row: Int): Int = values.vector(at(row)).toInt
  override def getLong(row: Int): Long = values.vector(at(row))
}

/** ORC's reader takes the two zeros for equal values, but keeps each where no value is NULL. */
private final class OrcFloats(kind: DataType, values: DoubleColumnVector) extends OrcVector(kind, values) {
  override def getFloat(row: Int): Float = getDouble(row).toFloat
  override def getDouble(row: Int): Double = values.vector(if (values.noNulls) row else at(row))
}

/** Microseconds; of the milliseconds of a second, which ORC keeps twice, those among the nanoseconds count. */
private final class OrcTimes(kind: DataType, values: TimestampColumnVector) extends OrcVector(kind, values) {
  override def getLong(row: Int): Long = {
    val index = at(row)
    Math.floorDiv(values.time(index), 1000L) * 1000000L + values.nanos(index) / 1000
  }
}

/** Decimals of at most 18 digits. */
private final class OrcSmallDecimals(kind: DataType, values: Decimal64ColumnVector) extends OrcVector(kind, values) {
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    Decimal(values.vector(at(row)), precision, scale)
}

private final class OrcDecimals(kind: DataType, values: DecimalColumnVector) extends OrcVector(kind, values) {
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    Decimal(values.vector(at(row)).getHiveDecimal.bigDecimalValue, precision, scale)
}

/** Texts and bytes. */
private final class OrcBytes(kind: DataType, values: BytesColumnVector) extends OrcVector(kind, values) {
  override def getUTF8String(row: Int): UTF8String = {
    val index = at(row)
    UTF8String.fromBytes(values.vector(index), values.start(index), values.length(index))
  }

  override def getBinary(row: Int): Array[Byte] = {
    val index = at(row)
    values.vector(index).slice(values.start(index), values.start(index) + values.length(index))
  }
}

private[read] final class OrcStruct(kind: DataType, values: StructColumnVector, fields: Array[ColumnVector])
    extends OrcVector(kind, values) {
  override def getChild(ordinal: Int): ColumnVector = fields(ordinal)
}

private[read] final class OrcList(kind: DataType, values: ListColumnVector, elements: ColumnVector)
    extends OrcVector(kind, values)
    with PlacedParts {
  override def partsOf(ordinal: Int): ColumnVector = elements
  override def offsetOf(row: Int): Int = values.offsets(at(row)).toInt
  override def lengthOf(row: Int): Int = values.lengths(at(row)).toInt

  override def getArray(row: Int): ColumnarArray = {
    val index = at(row)
    new ColumnarArray(elements, values.offsets(index).toInt, values.lengths(index).toInt)
  }
}

private[read] final class OrcMap(kind: DataType, values: MapColumnVector, keys: ColumnVector, items: ColumnVector)
    extends OrcVector(kind, values)
    with PlacedParts {
  override def partsOf(ordinal: Int): ColumnVector = if (ordinal == 0) keys else items
  override def offsetOf(row: Int): Int = values.offsets(at(row)).toInt
  override def lengthOf(row: Int): Int = values.lengths(at(row)).toInt

  override def getMap(row: Int): ColumnarMap = {
    val index = at(row)
    new ColumnarMap(keys, items, values.offsets(index).toInt, values.lengths(index).toInt)
  }
}

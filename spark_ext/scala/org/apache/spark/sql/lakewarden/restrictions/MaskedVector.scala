package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.sql.lakewarden.schema.OneTypeVector
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** A column behind a mask, which is applied where a value is read. No getter shows a value before its mask.
  *
  * @param values
  *   the unmasked column
  */
private[restrictions] abstract class MaskedVector(kind: DataType, values: ColumnVector) extends OneTypeVector(kind) {
  override def close(): Unit = ()
  override def hasNull: Boolean = values.hasNull
  override def numNulls: Int = values.numNulls
  override def isNullAt(row: Int): Boolean = values.isNullAt(row)
}

private[restrictions] final class MaskedTexts(values: ColumnVector, mask: UTF8String => UTF8String)
    extends MaskedVector(StringType, values) {
  override def getUTF8String(row: Int): UTF8String = if (isNullAt(row)) null else mask(values.getUTF8String(row))
}

/** Numbers of 32 bits, and days. */
private[restrictions] final class MaskedInts(kind: DataType, values: ColumnVector, mask: Int => Int)
    extends MaskedVector(kind, values) {
  override def getInt(row: Int): Int = mask(values.getInt(row))
}

/** Numbers of 64 bits, and moments. */
private[restrictions] final class MaskedLongs(kind: DataType, values: ColumnVector, mask: Long => Long)
    extends MaskedVector(kind, values) {
  override def getLong(row: Int): Long = mask(values.getLong(row))
}

private[restrictions] final class MaskedBytes(values: ColumnVector, mask: Array[Byte] => Array[Byte])
    extends MaskedVector(BinaryType, values) {
  override def getBinary(row: Int): Array[Byte] = if (isNullAt(row)) null else mask(values.getBinary(row))
}

/** One value for all that are not NULL: zero, or the text, or nothing of its type.
  *
  * @param length
  *   how many bytes of zero there are, where it is bytes
  */
private[restrictions] final class FixedVector(kind: DataType, values: ColumnVector, length: Int)
    extends MaskedVector(kind, values) {
  private lazy val elements = kind match {
    case ArrayType(element, _) => new NullVector(element)
    case _                     => new NullVector(NullType)
  }

  override def getBoolean(row: Int): Boolean = false
  override def getInt(row: Int): Int = 0
  override def getLong(row: Int): Long = 0L
  override def getFloat(row: Int): Float = 0f
  override def getDouble(row: Int): Double = 0d
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null else Decimal(0L, precision, scale)
  override def getUTF8String(row: Int): UTF8String = if (isNullAt(row)) null else FixedVector.Text
  override def getBinary(row: Int): Array[Byte] = if (isNullAt(row)) null else new Array[Byte](length)
  override def getArray(row: Int): ColumnarArray = if (isNullAt(row)) null else new ColumnarArray(elements, 0, 0)
  override def getMap(row: Int): ColumnarMap = if (isNullAt(row)) null else new ColumnarMap(elements, elements, 0, 0)
}

private object FixedVector {
  private val Text = UTF8String.fromString("XXXXXXXX")
}

/** NULL in every row, whatever was read. */
private[restrictions] final class NullVector(kind: DataType) extends ColumnVector(kind) {
  override def close(): Unit = ()
  override def hasNull: Boolean = true
  override def numNulls: Int = throw new UnsupportedOperationException("the number of NULLs in all rows")
  override def isNullAt(row: Int): Boolean = true
  override def getBoolean(row: Int): Boolean = false
  override def getByte(row: Int): Byte = 0
  override def getShort(row: Int): Short = 0
  override def getInt(row: Int): Int = 0
  override def getLong(row: Int): Long = 0L
  override def getFloat(row: Int): Float = 0f
  override def getDouble(row: Int): Double = 0d
  override def getArray(row: Int): ColumnarArray = null
  override def getMap(row: Int): ColumnarMap = null
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = null
  override def getUTF8String(row: Int): UTF8String = null
  override def getBinary(row: Int): Array[Byte] = null

  override def getChild(ordinal: Int): ColumnVector = kind match {
    case struct: StructType => new NullVector(struct(ordinal).dataType)
    case other              => throw new UnsupportedOperationException(s"a part of ${other.sql}")
  }
}

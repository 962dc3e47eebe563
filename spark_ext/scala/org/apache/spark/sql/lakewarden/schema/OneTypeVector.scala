package org.apache.spark.sql.lakewarden.schema

import org.apache.spark.sql.types.{DataType, Decimal}
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** Values of one type: a vector defines the getter of its type, and every other one is an error. */
private[lakewarden] abstract class OneTypeVector(kind: DataType) extends ColumnVector(kind) {
  override def numNulls: Int = throw other
  override def getBoolean(row: Int): Boolean = throw other
  override def getByte(row: Int): Byte = throw other
  override def getShort(row: Int): Short = throw other
  override def getInt(row: Int): Int = throw other
  override def getLong(row: Int): Long = throw other
  override def getFloat(row: Int): Float = throw other
  override def getDouble(row: Int): Double = throw other
  override def getArray(row: Int): ColumnarArray = throw other
  override def getMap(row: Int): ColumnarMap = throw other
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = throw other
  override def getUTF8String(row: Int): UTF8String = throw other
  override def getBinary(row: Int): Array[Byte] = throw other
  override def getChild(ordinal: Int): ColumnVector = throw other

  private def other: Exception = new UnsupportedOperationException(s"a column of ${kind.sql}")
}

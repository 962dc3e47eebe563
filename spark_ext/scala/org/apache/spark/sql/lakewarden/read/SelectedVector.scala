package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.lakewarden.schema.OneTypeVector
import org.apache.spark.sql.types.{Decimal, LongType, StructType}
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** Some rows of a column; nothing is copied.
  *
  * @param rows
  *   which rows of the column stand in what place
  */
private[read] final class SelectedVector(values: ColumnVector, rows: Array[Int]) extends ColumnVector(values.dataType) {
  override def close(): Unit = ()
  override def hasNull: Boolean = values.hasNull
  override def numNulls: Int = throw new UnsupportedOperationException("the number of NULLs in some rows")
  override def isNullAt(row: Int): Boolean = values.isNullAt(rows(row))
  override def getBoolean(row: Int): Boolean = values.getBoolean(rows(row))
  override def getByte(row: Int): Byte = values.getByte(rows(row))
  override def getShort(row: Int): Short = values.getShort(rows(row))
  override def getInt(row: Int): Int = values.getInt(rows(row))
  override def getLong(row: Int): Long = values.getLong(rows(row))
  override def getFloat(row: Int): Float = values.getFloat(rows(row))
  override def getDouble(row: Int): Double = values.getDouble(rows(row))
  override def getArray(row: Int): ColumnarArray = values.getArray(rows(row))
  override def getMap(row: Int): ColumnarMap = values.getMap(rows(row))
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = values.getDecimal(rows(row), precision, scale)
  override def getUTF8String(row: Int): UTF8String = values.getUTF8String(rows(row))
  override def getBinary(row: Int): Array[Byte] = values.getBinary(rows(row))

  override def getChild(ordinal: Int): ColumnVector = fields(ordinal)

  /** What is in a struct has a value in each of its rows. */
  private lazy val fields: Array[SelectedVector] =
    Array.tabulate(dataType.asInstanceOf[StructType].size)(each => new SelectedVector(values.getChild(each), rows))
}

/** The numbers of rows that follow each other. */
private[read] final class RowNumbers extends OneTypeVector(LongType) {
  private var first = 0L

  /** Of the first row. */
  def startAt(number: Long): Unit = first = number

  override def getLong(row: Int): Long = first + row
  override def close(): Unit = ()
  override def hasNull: Boolean = false
  override def isNullAt(row: Int): Boolean = false
}

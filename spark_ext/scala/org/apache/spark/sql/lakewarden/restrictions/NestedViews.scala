package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}

/** A column of lists or maps that says where the parts of each row stand in the vectors of its parts. */
private[lakewarden] trait PlacedParts {
  def partsOf(ordinal: Int): ColumnVector
  def offsetOf(row: Int): Int
  def lengthOf(row: Int): Int
}

private[restrictions] object PlacedParts {

  /** Those of a vector of Spark's or of ORC's. */
  def of(values: ColumnVector): PlacedParts = values match {
    case own: PlacedParts => own
    case spark: WritableColumnVector => new PlacedParts {
        override def partsOf(ordinal: Int): ColumnVector = spark.getChild(ordinal)
        override def offsetOf(row: Int): Int = spark.getArrayOffset(row)
        override def lengthOf(row: Int): Int = spark.getArrayLength(row)
      }
    // A column that the file does not have: NULL in every row.
    case _ => new PlacedParts {
        override def partsOf(ordinal: Int): ColumnVector = new NullVector(NullType)
        override def offsetOf(row: Int): Int = 0
        override def lengthOf(row: Int): Int = 0
      }
  }
}

/** A struct of exactly the fields that are wanted, each behind its mask. */
private[restrictions] final class StructView(
    kind: StructType, values: ColumnVector, field: (Int, => ColumnVector) => ColumnVector)
    extends MaskedVector(kind, values) {
  private lazy val fields = Array.tabulate(kind.size)(at => field(at, values.getChild(at)))

  override def getChild(ordinal: Int): ColumnVector = fields(ordinal)
}

/** Lists whose elements are behind masks. */
private[restrictions] final class ListView(kind: DataType, values: ColumnVector, element: ColumnVector => ColumnVector)
    extends MaskedVector(kind, values) {
  private lazy val parts = PlacedParts.of(values)
  private lazy val elements = element(parts.partsOf(0))

  override def getArray(row: Int): ColumnarArray =
    if (isNullAt(row)) null else new ColumnarArray(elements, parts.offsetOf(row), parts.lengthOf(row))
}

/** Maps whose values are behind masks. */
private[restrictions] final class MapView(
    kind: DataType, values: ColumnVector, key: ColumnVector => ColumnVector, value: ColumnVector => ColumnVector)
    extends MaskedVector(kind, values) {
  private lazy val parts = PlacedParts.of(values)
  private lazy val keys = key(parts.partsOf(0))
  private lazy val items = value(parts.partsOf(1))

  override def getMap(row: Int): ColumnarMap =
    if (isNullAt(row)) null else new ColumnarMap(keys, items, parts.offsetOf(row), parts.lengthOf(row))
}

package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** The values of some columns of a row as one key. Keys are equal where Iceberg's readers find the values equal: NULL
  * equals NULL, also where a struct around it is NULL; NaN equals NaN; the two zeros differ.
  *
  * Source: Iceberg table specification, "Equality Delete Files".
  *
  * @param schema
  *   of the rows, with ids
  * @param columns
  *   ids of the columns
  */
private[read] final class RowKeys(schema: StructType, columns: Seq[Int]) {
  private val writer = new UnsafeRowWriter(columns.size)
  private val parts = columns.zipWithIndex.map { case (id, place) => part(RowKeys.way(schema, id), place) }.toArray

  /** The key of a row; valid until the next. */
  def of(row: InternalRow): UnsafeRow = {
    writer.reset()
    writer.zeroOutNullBytes()
    parts.foreach(_(row))
    writer.getRow
  }

  private def part(way: Seq[(Int, DataType)], place: Int): InternalRow => Unit = way match {
    case Seq((at, kind)) =>
      val write = value(kind, place)
      row => if (row.isNullAt(at)) writer.setNullAt(place) else write(row, at)
    case (at, struct: StructType) +: inner =>
      val write = part(inner, place)
      row => if (row.isNullAt(at)) writer.setNullAt(place) else write(row.getStruct(at, struct.size))
  }

  private def value(kind: DataType, place: Int): (InternalRow, Int) => Unit = kind match {
    case BooleanType            => (row, at) => writer.write(place, row.getBoolean(at))
    case IntegerType | DateType => (row, at) => writer.write(place, row.getInt(at))
    case LongType | TimestampType | TimestampNTZType => (row, at) => writer.write(place, row.getLong(at))
    // These make one number of every NaN, and keep the sign of zero.
    case FloatType  => (row, at) => writer.write(place, java.lang.Float.floatToIntBits(row.getFloat(at)))
    case DoubleType => (row, at) => writer.write(place, java.lang.Double.doubleToLongBits(row.getDouble(at)))
    case BinaryType => (row, at) => writer.write(place, row.getBinary(at))
    case decimal: DecimalType => (row, at) =>
        writer.write(place, row.getDecimal(at, decimal.precision, decimal.scale), decimal.precision, decimal.scale)
    case _: StringType => (row, at) => writer.write(place, row.getUTF8String(at))
  }
}

private[read] object RowKeys {

  /** The way to a column through structs: ordinals and types. */
  private def way(schema: StructType, id: Int): Seq[(Int, DataType)] = {
    def in(struct: StructType): Option[Seq[(Int, DataType)]] = struct.fields.zipWithIndex.view.flatMap {
      case (field, at) if FieldIds.of(field) == id => Some(Seq(at -> field.dataType))
      case (field, at) => field.dataType match {
        case inner: StructType => in(inner).map((at, inner) +: _)
        case _                 => None
      }
    }.headOption
    in(schema).getOrElse(throw new IllegalArgumentException(s"no column with the id $id"))
  }

  /** The part of a schema that some primitive columns make up. */
  def only(schema: StructType, columns: Set[Int]): StructType = StructType(schema.flatMap { field =>
    field.dataType match {
      case inner: StructType => Some(only(inner, columns)).filter(_.nonEmpty).map(part => field.copy(dataType = part))
      case _                 => Some(field).filter(each => columns(FieldIds.of(each)))
    }
  })

  /** Columns with others behind them that they lack, in structs too. What is added has a name that no column has. */
  def beside(wanted: StructType, others: StructType): StructType = others.foldLeft(wanted) { (read, other) =>
    read.indexWhere(FieldIds.of(_) == FieldIds.of(other)) match {
      case -1 =>
        val name = Iterator.iterate(s"_compared_${FieldIds.of(other)}")(_ + "_").find(!read.fieldNames.contains(_)).get
        StructType(read :+ other.copy(name = name))
      case at => (read(at).dataType, other.dataType) match {
          case (inner: StructType, more: StructType) =>
            StructType(read.updated(at, read(at).copy(dataType = beside(inner, more))))
          case _ => read
        }
    }
  }
}

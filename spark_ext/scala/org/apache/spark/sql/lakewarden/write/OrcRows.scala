package org.apache.spark.sql.lakewarden.write

import org.apache.hadoop.hive.common.`type`.HiveDecimal
import org.apache.hadoop.hive.ql.exec.vector._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._

/** Puts Spark's rows into ORC's batches.
  *
  * @param schema
  *   of the rows
  */
private[write] final class OrcRows(schema: StructType) {
  private val puts = schema.fields.map(field => OrcRows.put(field.dataType))

  /** Adds a row to a batch that has room for it. */
  def put(row: InternalRow, batch: VectorizedRowBatch): Unit = {
    val at = batch.size
    var column = 0
    while (column < puts.length) {
      OrcRows.orNull(puts(column), row, column, batch.cols(column), at)
      column += 1
    }
    batch.size = at + 1
  }
}

private object OrcRows {

  /** Puts the value at a place of a row, or of a list, into a vector; it is not NULL. */
  private type Put = (SpecializedGetters, Int, ColumnVector, Int) => Unit
  private val MicrosOfMilli = 1000L
  private val MicrosOfSecond = 1000000L
  private val NanosOfMicro = 1000

  private def orNull(put: Put, values: SpecializedGetters, from: Int, vector: ColumnVector, at: Int): Unit =
    if (values.isNullAt(from)) {
      vector.isNull(at) = true
      vector.noNulls = false
    } else put(values, from, vector, at)

  private def put(kind: DataType): Put = kind match {
    case BooleanType => (values, from, vector, at) => longs(vector)(at) = if (values.getBoolean(from)) 1 else 0
    case IntegerType | DateType => (values, from, vector, at) => longs(vector)(at) = values.getInt(from)
    case LongType    => (values, from, vector, at) => longs(vector)(at) = values.getLong(from)
    case FloatType   => (values, from, vector, at) => doubles(vector)(at) = values.getFloat(from)
    case DoubleType  => (values, from, vector, at) => doubles(vector)(at) = values.getDouble(from)
    case TimestampType | TimestampNTZType => (values, from, vector, at) => instant(values.getLong(from), vector, at)
    case StringType => (values, from, vector, at) => bytes(values.getUTF8String(from).getBytes, vector, at)
    case BinaryType => (values, from, vector, at) => bytes(values.getBinary(from), vector, at)
    case decimal: DecimalType => putDecimal(decimal)
    case ArrayType(element, _)  => putList(put(element))
    case MapType(key, value, _) => putMap(put(key), put(value))
    case struct: StructType     => putStruct(struct)
    case other                  => throw new IllegalArgumentException(s"no ORC type for ${other.sql}")
  }

  private def longs(vector: ColumnVector): Array[Long] = vector.asInstanceOf[LongColumnVector].vector
  private def doubles(vector: ColumnVector): Array[Double] = vector.asInstanceOf[DoubleColumnVector].vector

  /** Each value is an array of its own: ORC's mask of binary columns hashes the array, whatever part is the value. */
  private def bytes(value: Array[Byte], vector: ColumnVector, at: Int): Unit =
    vector.asInstanceOf[BytesColumnVector].setRef(at, value.clone(), 0, value.length)

  /** ORC keeps the milliseconds of a second twice: in the time, and in the nanoseconds. It rounds seconds to zero, and
    * could not tell the last second before 1970 from the first one after.
    */
  private def instant(micros: Long, vector: ColumnVector, at: Int): Unit = {
    if (micros < 0 && micros > -MicrosOfSecond) throw LakewardenException.notSupportedYet(
      "ORC cannot store timestamps within the last second before 1970.", "orc-timestamp", "Write the table as Parquet.")
    val times = vector.asInstanceOf[TimestampColumnVector]
    times.setIsUTC(true)
    times.time(at) = Math.floorDiv(micros, MicrosOfMilli)
    times.nanos(at) = Math.floorMod(micros, MicrosOfSecond).toInt * NanosOfMicro
  }

  private def putDecimal(kind: DecimalType): Put = (values, from, vector, at) => {
    val decimal = values.getDecimal(from, kind.precision, kind.scale)
    vector match {
      case small: Decimal64ColumnVector => small.vector(at) = decimal.toUnscaledLong
      case large: DecimalColumnVector   => large.set(at, HiveDecimal.create(decimal.toJavaBigDecimal))
    }
  }

  private def putList(element: Put): Put = (values, from, vector, at) => {
    val list = vector.asInstanceOf[ListColumnVector]
    val items = values.getArray(from)
    val start = list.childCount
    list.offsets(at) = start
    list.lengths(at) = items.numElements()
    list.childCount = start + items.numElements()
    list.child.ensureSize(list.childCount, true)
    (0 until items.numElements()).foreach(each => orNull(element, items, each, list.child, start + each))
  }

  private def putMap(key: Put, value: Put): Put = (values, from, vector, at) => {
    val map = vector.asInstanceOf[MapColumnVector]
    val items = values.getMap(from)
    val start = map.childCount
    map.offsets(at) = start
    map.lengths(at) = items.numElements()
    map.childCount = start + items.numElements()
    map.keys.ensureSize(map.childCount, true)
    map.values.ensureSize(map.childCount, true)
    (0 until items.numElements()).foreach { each =>
      orNull(key, items.keyArray(), each, map.keys, start + each)
      orNull(value, items.valueArray(), each, map.values, start + each)
    }
  }

  private def putStruct(kind: StructType): Put = {
    val puts = kind.fields.map(field => put(field.dataType))
    (values, from, vector, at) => {
      val struct = vector.asInstanceOf[StructColumnVector]
      val row = values.getStruct(from, puts.length)
      puts.indices.foreach(each => orNull(puts(each), row, each, struct.fields(each), at))
    }
  }
}

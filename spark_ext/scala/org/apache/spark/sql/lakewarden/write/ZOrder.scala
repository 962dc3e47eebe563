package org.apache.spark.sql.lakewarden.write

import java.nio.ByteBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, ScalarFunction, UnboundFunction}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** `system.zorder(a, b, …)`: bytes that sort rows by several columns at once. Rows that are near each other in all
  * columns are near each other in this order, so that the bounds of files are narrow in each column.
  *
  * Eight bytes of each column, in an order of bytes, are interleaved bit by bit. Strings and binary values count with
  * their first eight bytes. NULL is before everything.
  *
  * Source: Apache Iceberg's `ZOrderByteUtils`.
  */
object ZOrder extends UnboundFunction {
  val Name = "zorder"

  override def name: String = Name
  override def description: String = "Bytes that sort rows by several columns at once"

  override def bind(input: StructType): BoundFunction = {
    val unknown = input.map(_.dataType).filter(Ordered.of(_).isEmpty)
    if (input.isEmpty) throw new UnsupportedOperationException(s"$Name takes one column or more")
    if (unknown.nonEmpty)
      throw new UnsupportedOperationException(s"$Name does not take columns of the type ${unknown.head.sql}")
    ZOrderOf(input.map(_.dataType))
  }

  /** The bits of some values, interleaved: the first bit of each, the second bit of each, and so on. */
  private[write] def interleaved(values: Array[Long]): Array[Byte] = {
    val bytes = new Array[Byte](values.length * java.lang.Long.BYTES)
    var bit = 0
    while (bit < bytes.length * 8) {
      val value = values(bit % values.length)
      if ((value >>> (63 - bit / values.length) & 1) == 1)
        bytes(bit / 8) = (bytes(bit / 8) | 1 << (7 - bit % 8)).toByte
      bit += 1
    }
    bytes
  }
}

/** The z-order of columns of these types. */
private final case class ZOrderOf(types: Seq[DataType]) extends ScalarFunction[Array[Byte]] {
  override def inputTypes: Array[DataType] = types.toArray
  override def resultType: DataType = BinaryType
  override def isResultNullable: Boolean = false
  override def name: String = ZOrder.Name
  override def canonicalName: String = s"lakewarden.${ZOrder.Name}(${types.map(_.catalogString).mkString(",")})"
  override def toString: String = name

  @transient private lazy val accessors = types.map(InternalRow.getAccessor(_)).toArray
  @transient private lazy val ordered = types.flatMap(Ordered.of).toArray

  override def produceResult(input: InternalRow): Array[Byte] = {
    val values = new Array[Long](accessors.length)
    for (at <- accessors.indices if !input.isNullAt(at)) values(at) = ordered(at)(accessors(at)(input, at))
    ZOrder.interleaved(values)
  }
}

/** Values as numbers without a sign, in the same order. */
private object Ordered {
  private val Sign = Long.MinValue

  def of(kind: DataType): Option[Any => Long] = kind match {
    case BooleanType             => Some(value => if (value.asInstanceOf[Boolean]) Sign else 0L)
    case ByteType | ShortType | IntegerType | DateType | LongType | TimestampType | TimestampNTZType =>
      Some(value => value.asInstanceOf[Number].longValue ^ Sign)
    case FloatType | DoubleType  => Some(value => bits(value.asInstanceOf[Number].doubleValue))
    case _: DecimalType          => Some(value => bits(value.asInstanceOf[Decimal].toDouble))
    case _: StringType           => Some(value => first(value.asInstanceOf[UTF8String].getBytes))
    case BinaryType              => Some(value => first(value.asInstanceOf[Array[Byte]]))
    case _                       => None
  }

  private def bits(value: Double): Long = {
    val raw = java.lang.Double.doubleToLongBits(value)
    if (raw < 0) ~raw else raw ^ Sign
  }

  private def first(bytes: Array[Byte]): Long =
    ByteBuffer.wrap(java.util.Arrays.copyOf(bytes, java.lang.Long.BYTES)).getLong
}

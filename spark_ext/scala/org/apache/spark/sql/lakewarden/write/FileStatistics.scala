package org.apache.spark.sql.lakewarden.write

import java.math.BigInteger
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import org.apache.parquet.column.ColumnDescriptor
import org.apache.parquet.hadoop.metadata.{ColumnChunkMetaData, ColumnPath, ParquetMetadata}
import org.apache.parquet.io.api.Binary
import org.apache.parquet.schema.{LogicalTypeAnnotation, PrimitiveType}

/** What is known of a file's columns, by field id: sizes, counts, and bounds in single-value form.
  *
  * The catalog puts into manifests what it says of columns in plaintext, and seals what it says of encrypted ones.
  */
final case class FileStatistics(
    columnSizes: Map[Int, Long],
    valueCounts: Map[Int, Long],
    nullCounts: Map[Int, Long],
    lower: Map[Int, Array[Byte]],
    upper: Map[Int, Array[Byte]])

/** Statistics out of the footer of a file that was just written; nothing is read again.
  *
  * Below lists and maps only sizes are known, since Parquet counts empty lists as nulls. A column of floats with
  * a NaN in it has no bounds, so that what compares with NaN is not overlooked.
  *
  * Source: Iceberg table specification, "Manifests", and "Binary single-value serialization".
  */
object FileStatistics {

  /** As many columns as Iceberg's writers measure by default; wide tables would swell the manifests. */
  private val MaxColumns = 100

  def of(footer: ParquetMetadata): FileStatistics = {
    val chunks = footer.getBlocks.asScala.flatMap(_.getColumns.asScala).groupBy(_.getPath)
    val leaves = footer.getFileMetaData.getSchema.getColumns.asScala.toSeq
    val columns = leaves.take(MaxColumns).flatMap { column =>
      val here = chunks.getOrElse(ColumnPath.get(column.getPath: _*), Nil)
      Option(column.getPrimitiveType.getId).map(_.intValue).map(Column(_, column, here.toSeq))
    }
    val flat = columns.filter(_.isFlat)
    FileStatistics(
      columns.map(each => each.id -> each.size).toMap,
      flat.map(each => each.id -> each.values).toMap,
      flat.flatMap(each => each.nulls.map(each.id -> _)).toMap,
      flat.flatMap(each => each.lower.map(each.id -> _)).toMap,
      flat.flatMap(each => each.upper.map(each.id -> _)).toMap)
  }

  private final case class Column(id: Int, descriptor: ColumnDescriptor, chunks: Seq[ColumnChunkMetaData]) {
    private val kind: PrimitiveType = descriptor.getPrimitiveType
    private val statistics = chunks.map(_.getStatistics)
    private val withValues = statistics.filter(each => each.isEmpty || each.hasNonNullValue)

    def isFlat: Boolean = descriptor.getMaxRepetitionLevel == 0
    def size: Long = chunks.map(_.getTotalSize).sum
    def values: Long = chunks.map(_.getValueCount).sum
    def nulls: Option[Long] =
      if (statistics.forall(_.isNumNullsSet)) Some(statistics.map(_.getNumNulls).sum) else None
    def lower: Option[Array[Byte]] = bounds.flatMap { case (least, _) => Bound.lower(least, kind) }
    def upper: Option[Array[Byte]] = bounds.flatMap { case (_, most) => Bound.upper(most, kind) }

    private lazy val bounds: Option[(Any, Any)] =
      if (withValues.isEmpty || withValues.exists(!_.hasNonNullValue)) None
      else {
        val order = kind.comparator[Any].asInstanceOf[java.util.Comparator[Any]]
        val least = withValues.map(_.genericGetMin: Any).min(Ordering.comparatorToOrdering(order))
        val most = withValues.map(_.genericGetMax: Any).max(Ordering.comparatorToOrdering(order))
        if (isNaN(least) || isNaN(most)) None else Some((least, most))
      }

    private def isNaN(value: Any): Boolean = value match {
      case each: java.lang.Float => each.isNaN
      case each: java.lang.Double => each.isNaN
      case _ => false
    }
  }
}

/** A bound in single-value form; texts and bytes are cut, an upper bound then rounded up. */
private object Bound {
  private type Bytes = Array[Byte]
  private val Length = 16

  def lower(value: Any, kind: PrimitiveType): Option[Bytes] = (value, kind.getLogicalTypeAnnotation) match {
    case (each: Binary, null) => Some(each.getBytes.take(Length))
    case (each: Binary, Text()) => text(each).map(points => utf8(points.take(Length)))
    case _ => exact(value, kind)
  }

  def upper(value: Any, kind: PrimitiveType): Option[Bytes] = (value, kind.getLogicalTypeAnnotation) match {
    case (each: Binary, null) if each.length <= Length => Some(each.getBytes)
    case (each: Binary, null) => above(each.getBytes.take(Length))
    case (each: Binary, Text()) =>
      text(each).flatMap { points =>
        if (points.length <= Length) Some(utf8(points)) else above(points.take(Length))
      }
    case _ => exact(value, kind)
  }

  private object Text {
    def unapply(kind: LogicalTypeAnnotation): Boolean =
      kind.isInstanceOf[LogicalTypeAnnotation.StringLogicalTypeAnnotation]
  }

  private def exact(value: Any, kind: PrimitiveType): Option[Bytes] = (value, kind.getLogicalTypeAnnotation) match {
    case (each: Number, _: LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) =>
      Some(BigInteger.valueOf(each.longValue).toByteArray)
    case (each: Binary, _: LogicalTypeAnnotation.DecimalLogicalTypeAnnotation) =>
      Some(new BigInteger(each.getBytes).toByteArray)
    case (each: java.lang.Boolean, _) => Some(Array((if (each) 1 else 0).toByte))
    case (each: java.lang.Integer, _) => Some(little(4)(_.putInt(each)))
    case (each: java.lang.Long, _) => Some(little(8)(_.putLong(each)))
    case (each: java.lang.Float, _) => Some(little(4)(_.putFloat(each)))
    case (each: java.lang.Double, _) => Some(little(8)(_.putDouble(each)))
    case _ => None
  }

  private def little(size: Int)(put: ByteBuffer => ByteBuffer): Bytes =
    put(ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN)).array

  /** The code points of a text; none if its bytes are no UTF-8, and sort otherwise than what they decode to. */
  private def text(value: Binary): Option[Array[Int]] = {
    val decoded = new String(value.getBytes, UTF_8)
    if (decoded.getBytes(UTF_8).sameElements(value.getBytes)) Some(decoded.codePoints.toArray) else None
  }

  private def utf8(points: Array[Int]): Bytes = new String(points, 0, points.length).getBytes(UTF_8)

  /** The least text that is greater than all that begin with this one. */
  private def above(points: Array[Int]): Option[Bytes] = {
    val last = points.lastIndexWhere(_ < Character.MAX_CODE_POINT)
    if (last < 0) None else Some(utf8(points.take(last) :+ next(points(last))))
  }

  private def next(point: Int): Int =
    if (point + 1 == Character.MIN_SURROGATE) Character.MAX_SURROGATE + 1 else point + 1

  private def above(bytes: Array[Byte]): Option[Bytes] = {
    val last = bytes.lastIndexWhere(_ != -1)
    if (last < 0) None else Some(bytes.take(last) :+ (bytes(last) + 1).toByte)
  }
}

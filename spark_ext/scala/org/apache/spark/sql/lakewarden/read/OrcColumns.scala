package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.hadoop.hive.ql.exec.vector.{
  ColumnVector => OrcValues, ListColumnVector, MapColumnVector, StructColumnVector, VectorizedRowBatch}
import org.apache.orc.TypeDescription
import org.apache.orc.TypeDescription.Category

import org.apache.spark.sql.execution.vectorized.ConstantColumnVector
import org.apache.spark.sql.lakewarden.schema.{FieldIds, OrcSchema}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector

/** The columns of one ORC file that a scan wants, found by field id, by the same rules as those of a Parquet file
  * (`FileColumns`): a field without an id, or with one twice, refuses the file; an absent one reads as NULL where it
  * may be null.
  *
  * Source: Iceberg table specification, "Column Projection"; "Appendix A: Format-specific Requirements", ORC.
  *
  * @param wanted
  *   with ids in the metadata
  * @param withoutLike
  *   ids of fields whose absence does not mean NULL (identity partitions, default values): they refuse the file
  * @param masked
  *   ids of columns that read as NULL whatever the file has: it holds no masked values of them
  */
private[read] final class OrcColumns(
    file: TypeDescription, wanted: StructType, withoutLike: Set[Int], masked: Set[Int], errors: ReadErrors) {
  import OrcColumns._

  private val chosen = new Array[Boolean](file.getMaximumId + 1)
  private val makers = ofStruct(wanted, file)

  /** Which columns are read, by ORC's column ids. */
  def included: Array[Boolean] = chosen.clone()

  /** The wanted columns on top of the vectors of a batch. */
  def vectors(batch: VectorizedRowBatch, rows: Int): Array[ColumnVector] =
    makers.map(_.apply(at => batch.cols(at), rows)).toArray

  /** The top-level column with this id and its name, where the file has it and it has no fields. */
  def leaf(id: Int): Option[(String, TypeDescription)] =
    file.getFieldNames.asScala.toSeq.zip(file.getChildren.asScala).find { case (_, each) =>
      idOf(each).contains(id) && each.getCategory.isPrimitive
    }

  private def ofStruct(wanted: StructType, group: TypeDescription): Seq[Make] = {
    chosen(group.getId) = true
    val known = byId(group)
    wanted.map { field =>
      known.get(FieldIds.of(field)).filterNot(_ => masked(FieldIds.of(field))) match {
        case Some(found) =>
          val inner = show(field.dataType, found, field.nullable)
          val at = group.getChildren.indexOf(found)
          (vectors, rows) => inner(vectors(at), rows)
        case None => absent(field)
      }
    }
  }

  private def byId(group: TypeDescription): Map[Int, TypeDescription] = {
    val fields = group.getChildren.asScala.toSeq
    fields.indexWhere(idOf(_).isEmpty) match {
      case -1 =>
      case at => throw errors.damaged(
        s"The field ${group.getFieldNames.get(at)} of the file has no Iceberg field id.", "field-id")
    }
    val known = fields.map(each => idOf(each).get -> each).toMap
    if (known.size < fields.size || group.getFieldNames.asScala.distinct.size < fields.size)
      throw errors.damaged("The file's schema repeats a field id or a name.", "field-id")
    known
  }

  private def absent(field: StructField): Make = {
    if (withoutLike(FieldIds.of(field)) && !masked(FieldIds.of(field))) throw errors.unsupported(
      s"The file has no column ${field.name}; values from the table's metadata are not supported.", "absent-column")
    if (!field.nullable) throw errors.required(field.name, masked(FieldIds.of(field)))
    val shown = FieldIds.stripType(field.dataType)
    (_, rows) => {
      val nulls = new ConstantColumnVector(rows, shown)
      nulls.setNull()
      nulls
    }
  }

  private def show(wanted: DataType, found: TypeDescription, nullable: Boolean): Show = {
    if (!nullable && found.getAttributeValue(OrcSchema.Required) != "true") throw errors.damaged(
      s"The column ${found.getFullFieldName} can contain NULL in the file, but the table requires a value.",
        "required-column")
    chosen(found.getId) = true
    (wanted, found.getCategory) match {
      case (struct: StructType, Category.STRUCT) =>
        val fields = ofStruct(struct, found)
        val shown = FieldIds.strip(struct)
        (vector, rows) => {
          val inner = vector.asInstanceOf[StructColumnVector]
          new OrcStruct(shown, inner, fields.map(_.apply(at => inner.fields(at), rows)).toArray)
        }
      case (ArrayType(element, mayBeNull), Category.LIST) =>
        val inner = show(element, found.getChildren.get(0), mayBeNull)
        (vector, rows) => {
          val list = vector.asInstanceOf[ListColumnVector]
          new OrcList(FieldIds.stripType(wanted), list, inner(list.child, rows))
        }
      case (MapType(key, value, mayBeNull), Category.MAP) =>
        val keys = show(key, found.getChildren.get(0), nullable = false)
        val values = show(value, found.getChildren.get(1), mayBeNull)
        (vector, rows) => {
          val map = vector.asInstanceOf[MapColumnVector]
          new OrcMap(FieldIds.stripType(wanted), map, keys(map.keys, rows), values(map.values, rows))
        }
      case (primitive, _) if isOf(primitive, found) => (vector, _) => OrcVector.primitive(primitive, vector)
      case _ => throw errors.damaged(
          s"The column ${found.getFullFieldName} has a different type in the file than in the table's schema.",
            "column-type")
    }
  }

  /** Whether the file's type is the wanted one, or one that the table's may have been before. */
  private def isOf(wanted: DataType, found: TypeDescription): Boolean = (wanted, found.getCategory) match {
    case (BooleanType, Category.BOOLEAN)                                            => true
    case (IntegerType, Category.INT | Category.SHORT | Category.BYTE)               => true
    case (LongType, Category.LONG | Category.INT | Category.SHORT | Category.BYTE)  => true
    case (FloatType, Category.FLOAT)                                                => true
    case (DoubleType, Category.DOUBLE | Category.FLOAT)                             => true
    case (DateType, Category.DATE)                                                  => true
    case (TimestampType, Category.TIMESTAMP_INSTANT) | (TimestampNTZType, Category.TIMESTAMP) =>
      Option(found.getAttributeValue(OrcSchema.TimestampUnit)).forall(_ == OrcSchema.Micros)
    case (StringType, Category.STRING | Category.VARCHAR | Category.CHAR)           => true
    case (BinaryType, Category.BINARY)                                              => true
    case (decimal: DecimalType, Category.DECIMAL) =>
      found.getScale == decimal.scale && found.getPrecision <= decimal.precision
    case _ => false
  }
}

private[read] object OrcColumns {

  /** A column on top of the vectors beside it, which it is one of, for batches of so many rows. */
  private type Make = (Int => OrcValues, Int) => ColumnVector

  /** A column on top of its vector. */
  private type Show = (OrcValues, Int) => ColumnVector

  private[read] def idOf(found: TypeDescription): Option[Int] =
    Option(found.getAttributeValue(OrcSchema.Id)).flatMap(_.toIntOption)
}

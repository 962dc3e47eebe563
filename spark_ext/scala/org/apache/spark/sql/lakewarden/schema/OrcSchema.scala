package org.apache.spark.sql.lakewarden.schema

import org.apache.orc.TypeDescription

import org.apache.spark.sql.types._

/** A table's schema as ORC writes it: the field id of every level in the type's attributes.
  *
  * Source: Iceberg table specification, "Appendix A: Format-specific Requirements", ORC.
  */
object OrcSchema {
  val Id = "iceberg.id"
  val Required = "iceberg.required"
  val TimestampUnit = "iceberg.timestamp-unit"
  val Micros = "MICROS"

  /** @param schema
    *   field ids in the metadata (`FieldIds`)
    */
  def of(schema: StructType): TypeDescription = {
    val struct = TypeDescription.createStruct()
    schema.foreach { field =>
      val inner = below(field.dataType, Nil, FieldIds.nested(field))
      struct.addField(field.name, named(inner, FieldIds.of(field), !field.nullable))
    }
    struct
  }

  private def below(kind: DataType, way: Seq[String], ids: Map[String, Int]): TypeDescription = {
    def part(name: String, inner: DataType, required: Boolean): TypeDescription = {
      val here = way :+ name
      named(below(inner, here, ids), ids(here.mkString(".")), required)
    }
    kind match {
      case nested: StructType           => of(nested)
      case ArrayType(element, nullable) => TypeDescription.createList(part("element", element, !nullable))
      case MapType(key, value, nullable) =>
        TypeDescription.createMap(part("key", key, required = true), part("value", value, !nullable))
      case _ => primitive(kind)
    }
  }

  private def primitive(kind: DataType): TypeDescription = kind match {
    case BooleanType          => TypeDescription.createBoolean()
    case IntegerType          => TypeDescription.createInt()
    case LongType             => TypeDescription.createLong()
    case FloatType            => TypeDescription.createFloat()
    case DoubleType           => TypeDescription.createDouble()
    case DateType             => TypeDescription.createDate()
    case StringType           => TypeDescription.createString()
    case BinaryType           => TypeDescription.createBinary()
    case TimestampType        => TypeDescription.createTimestampInstant().setAttribute(TimestampUnit, Micros)
    case TimestampNTZType     => TypeDescription.createTimestamp().setAttribute(TimestampUnit, Micros)
    case decimal: DecimalType =>
      // The precision is never to be below the scale that ORC begins with.
      TypeDescription.createDecimal().withPrecision(38).withScale(decimal.scale).withPrecision(decimal.precision)
    case other => throw IcebergSchema.unsupported(other.sql, Nil)
  }

  private def named(kind: TypeDescription, id: Int, required: Boolean): TypeDescription =
    kind.setAttribute(Id, id.toString).setAttribute(Required, required.toString)
}

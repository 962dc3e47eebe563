package org.apache.spark.sql.lakewarden.schema

import com.fasterxml.jackson.databind.ObjectMapper
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._

/** Iceberg's field ids in the metadata of Spark's fields.
  *
  * A field's own id is the number under `parquet.field.id`. Ids of list elements, map keys and map values stand
  * in the metadata of the field that holds them, a JSON text under `lakewarden.nested.ids`, by path:
  * `{"element":5,"element.element":6}`. Paths end at structs, whose fields carry their own ids.
  */
object FieldIds {

  /** The key that Spark's Parquet reader and writer know. */
  val Key = "parquet.field.id"
  val NestedKey = "lakewarden.nested.ids"
  private val json = new ObjectMapper

  /** The field with its ids. */
  def put(field: StructField, id: Int, nested: Map[String, Int]): StructField = {
    val builder = new MetadataBuilder().withMetadata(field.metadata).putLong(Key, id.toLong)
    if (nested.nonEmpty) {
      val node = json.createObjectNode
      nested.toSeq.sorted.foreach { case (path, each) => node.put(path, each) }
      builder.putString(NestedKey, node.toString)
    }
    field.copy(metadata = builder.build())
  }

  /** A field's own id. */
  def of(field: StructField): Int =
    if (field.metadata.contains(Key)) Math.toIntExact(field.metadata.getLong(Key))
    else throw new LakewardenException("MetadataInvalid", s"The field ${field.name} has no id.", Some("field-id"))

  /** The ids of elements, keys and values below a field, by path. */
  def nested(field: StructField): Map[String, Int] =
    if (!field.metadata.contains(NestedKey)) Map.empty
    else {
      val paths = json.readTree(field.metadata.getString(NestedKey)).properties.asScala
      paths.map(each => each.getKey -> each.getValue.intValue).toMap
    }

  /** The ids of all fields, and of elements, keys and values, on every level. */
  def all(schema: StructType): Set[Int] =
    schema.flatMap(field => Iterator(of(field)) ++ nested(field).values ++ below(field.dataType)).toSet

  private def below(dataType: DataType): Set[Int] = dataType match {
    case struct: StructType     => all(struct)
    case ArrayType(element, _)  => below(element)
    case MapType(key, value, _) => below(key) ++ below(value)
    case _                      => Set.empty
  }

  /** The schema without some fields, on every level. */
  private[lakewarden] def without(schema: StructType, fields: Set[Int]): StructType =
    StructType(schema.filterNot(each => fields(of(each))).map { each =>
      each.copy(dataType = withoutIn(each.dataType, fields))
    })

  private def withoutIn(dataType: DataType, fields: Set[Int]): DataType = dataType match {
    case struct: StructType     => without(struct, fields)
    case ArrayType(element, n)  => ArrayType(withoutIn(element, fields), n)
    case MapType(key, value, n) => MapType(withoutIn(key, fields), withoutIn(value, fields), n)
    case other                  => other
  }

  /** The schema without ids, as users see it. */
  def strip(schema: StructType): StructType = StructType(schema.map { field =>
    val metadata = new MetadataBuilder().withMetadata(field.metadata).remove(Key).remove(NestedKey).build()
    field.copy(dataType = stripType(field.dataType), metadata = metadata)
  })

  /** A part of a table's schema (columns pruned, nested ones too) with the table's ids.
    *
    * @param part
    *   names as in `whole`, fields possibly left out
    * @param whole
    *   the table's schema with ids
    */
  def restore(part: StructType, whole: StructType): StructType = StructType(part.map { field =>
    val known = whole(field.name)
    field.copy(dataType = restoreType(field.dataType, known.dataType), metadata = known.metadata)
  })

  private[lakewarden] def stripType(dataType: DataType): DataType = dataType match {
    case struct: StructType          => strip(struct)
    case ArrayType(element, n)       => ArrayType(stripType(element), n)
    case MapType(key, value, n)      => MapType(stripType(key), stripType(value), n)
    case other                       => other
  }

  private def restoreType(part: DataType, whole: DataType): DataType = (part, whole) match {
    case (struct: StructType, known: StructType) => restore(struct, known)
    case (ArrayType(element, n), known: ArrayType) => ArrayType(restoreType(element, known.elementType), n)
    case (MapType(key, value, n), known: MapType) =>
      MapType(restoreType(key, known.keyType), restoreType(value, known.valueType), n)
    case (other, _) => other
  }
}

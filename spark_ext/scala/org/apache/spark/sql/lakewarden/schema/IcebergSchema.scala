package org.apache.spark.sql.lakewarden.schema

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types._

/** Iceberg's schemas as Spark's.
  *
  * The field ids stand in the fields' metadata under `parquet.field.id`, as Spark's Parquet reader and writer
  * take them; those of list elements, map keys and map values in the metadata of the field that holds the list
  * or map (see `FieldIds`). What users are shown has none of this (`FieldIds.strip`).
  *
  * Source: Iceberg table specification, "Schemas and Data Types" and "Appendix C: JSON serialization".
  */
object IcebergSchema {
  private val Decimal = """decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)""".r
  private val Fixed = """fixed\[\s*(\d+)\s*\]""".r

  /** A `struct` in Iceberg's JSON, with ids in the metadata. Throws `NotSupportedYet` for types without a like. */
  def toSpark(schema: JsonNode): StructType = struct(schema, Nil)

  /** Iceberg's JSON of a schema that Spark asks for; its ids are placeholders, the catalog gives real ones. */
  def toIceberg(schema: StructType): JsonNode = new IcebergSchemaWriter().struct(schema, Nil)

  /** Iceberg's JSON of a type that Spark asks for.
    *
    * @param path
    *   of the column, for messages
    */
  def typeToIceberg(dataType: DataType, path: Seq[String]): JsonNode =
    new IcebergSchemaWriter().dataType(dataType, path)

  /** By id how many bytes each field, element, key and value of the type `fixed` has, which Spark's types do not say. */
  def fixedLengths(schema: JsonNode): Map[Int, Int] = {
    def part(id: JsonNode, kind: JsonNode): Map[Int, Int] = kind.asText match {
      case Fixed(length) => Map(id.intValue -> length.toInt)
      case _             => fixedLengths(kind)
    }
    schema.path("type").asText match {
      case "struct" => schema.required("fields").elements.asScala
          .flatMap(each => part(each.required("id"), each.required("type"))).toMap
      case "list" => part(schema.required("element-id"), schema.required("element"))
      case "map" => Seq("key", "value").flatMap(each => part(schema.required(s"$each-id"), schema.required(each))).toMap
      case _     => Map.empty
    }
  }

  private def struct(node: JsonNode, path: Seq[String]): StructType =
    StructType(node.required("fields").elements.asScala.map(field(_, path)).toSeq)

  private def field(node: JsonNode, parent: Seq[String]): StructField = {
    val name = node.required("name").textValue
    val nullable = !node.required("required").booleanValue
    val spark = StructField(name, dataType(node.required("type"), parent :+ name), nullable)
    val documented = Option(node.get("doc")).filter(_.isTextual).fold(spark)(doc => spark.withComment(doc.textValue))
    FieldIds.put(documented, node.required("id").intValue, nestedIds(node.get("type"), ""))
  }

  /** Ids of elements, keys and values down to the next structs, by their path from the field. */
  private def nestedIds(node: JsonNode, prefix: String): Map[String, Int] = {
    def part(name: String): Map[String, Int] =
      nestedIds(node.required(name), s"$prefix$name.") + (prefix + name -> node.required(s"$name-id").intValue)
    node.path("type").asText match {
      case "list" => part("element")
      case "map"  => part("key") ++ part("value")
      case _      => Map.empty
    }
  }

  private def dataType(node: JsonNode, path: Seq[String]): DataType =
    if (node.isTextual) primitive(node.textValue, path)
    else
      node.required("type").textValue match {
        case "struct" => struct(node, path)
        case "list" =>
          ArrayType(
            dataType(node.required("element"), path :+ "element"), !node.required("element-required").booleanValue)
        case "map" =>
          MapType(
            dataType(node.required("key"), path :+ "key"),
            dataType(node.required("value"), path :+ "value"),
            !node.required("value-required").booleanValue)
        case other => throw unsupported(other, path)
      }

  private def primitive(name: String, path: Seq[String]): DataType = name match {
    case "boolean"                 => BooleanType
    case "int"                     => IntegerType
    case "long"                    => LongType
    case "float"                   => FloatType
    case "double"                  => DoubleType
    case "string"                  => StringType
    case "date"                    => DateType
    case "timestamptz"             => TimestampType
    case "timestamp"               => TimestampNTZType
    case "binary" | Fixed(_)       => BinaryType
    case Decimal(precision, scale) => DecimalType(precision.toInt, scale.toInt)
    case other                     => throw unsupported(other, path)
  }

  private[schema] def unsupported(name: String, path: Seq[String]): LakewardenException =
    LakewardenException.notSupportedYet(
      s"The column ${path.mkString(".")} has the type $name, which is not supported in Spark with Iceberg.",
      "column-type", "Choose another type for the column.")
}

/** Writes one schema as Iceberg's JSON; counts placeholder ids. */
private[schema] final class IcebergSchemaWriter {
  private val json = JsonNodeFactory.instance
  private var lastId = 0

  def struct(schema: StructType, path: Seq[String]): ObjectNode = {
    val fields = json.arrayNode
    schema.fields.foreach(each => fields.add(field(each, path)))
    json.objectNode.put("type", "struct").set[ObjectNode]("fields", fields)
  }

  def dataType(spark: DataType, path: Seq[String]): JsonNode = spark match {
    case nested: StructType => struct(nested, path)
    case ArrayType(element, nullable) =>
      val node = json.objectNode.put("type", "list").put("element-id", nextId()).put("element-required", !nullable)
      node.set[ObjectNode]("element", dataType(element, path :+ "element"))
    case MapType(key, value, nullable) =>
      val node = json.objectNode.put("type", "map").put("key-id", nextId()).put("value-id", nextId())
      node.put("value-required", !nullable)
      node.set[ObjectNode]("key", dataType(key, path :+ "key"))
      node.set[ObjectNode]("value", dataType(value, path :+ "value"))
    case atomic => json.textNode(primitive(atomic, path))
  }

  private def field(spark: StructField, parent: Seq[String]): ObjectNode = {
    val path = parent :+ spark.name
    val node = json.objectNode.put("id", nextId()).put("name", spark.name).put("required", !spark.nullable)
    node.set[ObjectNode]("type", dataType(spark.dataType, path))
    spark.getComment().foreach(node.put("doc", _))
    node
  }

  /** Char and varchar are strings in Iceberg; a collation would be lost without a word. */
  private def primitive(spark: DataType, path: Seq[String]): String = spark match {
    case BooleanType                                    => "boolean"
    case ByteType | ShortType | IntegerType             => "int"
    case LongType                                       => "long"
    case FloatType                                      => "float"
    case DoubleType                                     => "double"
    case text: StringType if text.isUTF8BinaryCollation => "string"
    case BinaryType                                     => "binary"
    case DateType                                       => "date"
    case TimestampType                                  => "timestamptz"
    case TimestampNTZType                               => "timestamp"
    case decimal: DecimalType                           => s"decimal(${decimal.precision}, ${decimal.scale})"
    case other                                          => throw IcebergSchema.unsupported(other.sql, path)
  }

  private def nextId(): Int = {
    lastId += 1
    lastId
  }
}

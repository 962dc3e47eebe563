package org.apache.spark.sql.lakewarden.schema

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.expressions._
import org.apache.spark.sql.lakewarden.LakewardenException

/** `PARTITIONED BY` as Iceberg's partition specs, and back.
  *
  * Fields are named as Iceberg's other writers name them: `c`, `c_bucket`, `c_trunc`, `ts_year`, …
  *
  * Source: Iceberg table specification, "Partitioning" and "Appendix C: JSON serialization".
  */
object PartitionTransforms {
  private val FirstFieldId = 1000
  private val Numbered = """(bucket|truncate)\[(\d+)\]""".r
  private val Time = "(year|month|day|hour)s?".r

  /** The partition spec that Spark asks for.
    *
    * @param schema
    *   Iceberg's JSON of the table's columns
    */
  def toIceberg(transforms: Seq[Transform], schema: JsonNode): JsonNode = {
    val fields = JsonNodeFactory.instance.arrayNode
    transforms.zipWithIndex.foreach { case (each, index) =>
      val (column, transform, name) = field(each)
      fields.add(
        JsonNodeFactory.instance.objectNode
          .put("source-id", idOf(schema, column)).put("field-id", FirstFieldId + index)
          .put("transform", transform).put("name", name))
    }
    JsonNodeFactory.instance.objectNode.put("spec-id", 0).set[ObjectNode]("fields", fields)
  }

  /** The current partitioning out of a table's metadata. */
  def toSpark(metadata: JsonNode): Array[Transform] = {
    val columns = names(current(metadata, "schemas", "schema-id", "current-schema-id"))
    val spec = current(metadata, "partition-specs", "spec-id", "default-spec-id")
    spec.required("fields").elements.asScala.map { each =>
      val column = LogicalExpressions.reference(columns(each.required("source-id").intValue))
      transform(each.required("transform").textValue, column)
    }.toArray
  }

  /** The one in a list of a table's metadata that is in force. */
  def current(metadata: JsonNode, list: String, id: String, chosen: String): JsonNode =
    metadata.required(list).elements.asScala
      .find(_.required(id).intValue == metadata.required(chosen).intValue)
      .getOrElse(throw new LakewardenException("MetadataInvalid",
        s"The current id of $list in the table's metadata does not exist."))

  /** By their ids, the columns of a schema and the fields of its structs. */
  def names(schema: JsonNode): Map[Int, Seq[String]] = columnNames(schema, Nil)

  /** Ids of the columns that all partition specs or all sort orders of a table's metadata are made from. */
  def sources(metadata: JsonNode, list: String): Seq[Int] = for {
    each <- metadata.required(list).elements.asScala.toSeq
    field <- each.required("fields").elements.asScala
  } yield field.required("source-id").intValue

  private def field(transform: Transform): (Seq[String], String, String) = transform match {
    case IdentityTransform(FieldReference(column)) => (column, "identity", column.mkString("."))
    case BucketTransform(count, Seq(FieldReference(column)), Seq()) =>
      (column, s"bucket[$count]", column.mkString(".") + "_bucket")
    case other => named(other)
  }

  private def named(transform: Transform): (Seq[String], String, String) =
    (transform.name.toLowerCase(java.util.Locale.ROOT), transform.arguments.toSeq) match {
      case ("truncate", Seq(FieldReference(column), Width(width))) => truncated(column, width)
      case ("truncate", Seq(Width(width), FieldReference(column))) => truncated(column, width)
      case (Time(unit), Seq(FieldReference(column))) => (column, unit, s"${column.mkString(".")}_$unit")
      case _ =>
        throw LakewardenException.notSupportedYet(
          s"A table cannot be partitioned by ${transform.describe}.", "partition-transform",
          "Use a column, bucket(n, c), truncate(w, c), years(c), months(c), days(c) or hours(c).")
    }

  private def truncated(column: Seq[String], width: Int): (Seq[String], String, String) =
    (column, s"truncate[$width]", column.mkString(".") + "_trunc")

  private def transform(name: String, column: NamedReference): Transform = name match {
    case "identity"                  => LogicalExpressions.identity(column)
    case Numbered("bucket", count)   => LogicalExpressions.bucket(count.toInt, Array(column))
    case Numbered(_, width)          => Expressions.apply("truncate", LogicalExpressions.literal(width.toInt), column)
    case "year"                      => LogicalExpressions.years(column)
    case "month"                     => LogicalExpressions.months(column)
    case "day"                       => LogicalExpressions.days(column)
    case "hour"                      => LogicalExpressions.hours(column)
    case other                       => Expressions.apply(other, column)
  }

  /** Spark has resolved the names against the columns, so that upper and lower case are those of the schema. */
  private def idOf(schema: JsonNode, column: Seq[String]): Int = {
    val found = schema.path("fields").elements.asScala.find(_.required("name").textValue == column.head)
    val field = found.getOrElse(
      throw new LakewardenException(
        "RequestInvalid", s"The partition column ${column.head} does not exist in the table.", Some("partition-spec")))
    if (column.tail.isEmpty) field.required("id").intValue else idOf(field.required("type"), column.tail)
  }

  private def columnNames(struct: JsonNode, parent: Seq[String]): Map[Int, Seq[String]] =
    struct.path("fields").elements.asScala.flatMap { field =>
      val name = parent :+ field.required("name").textValue
      columnNames(field.required("type"), name) + (field.required("id").intValue -> name)
    }.toMap

  /** A positive number among the arguments. */
  private object Width {
    def unapply(expression: Expression): Option[Int] = expression match {
      case LiteralValue(value: Int, _) if value > 0                      => Some(value)
      case LiteralValue(value: Long, _) if value > 0 && value.isValidInt => Some(value.toInt)
      case _ => None
    }
  }
}

package org.apache.spark.sql.lakewarden.write

import java.net.URLEncoder
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.LocationName
import org.apache.spark.sql.lakewarden.schema.{FieldIds, PartitionTransforms}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** One field of a partition spec: a column, nested ones by the way to them, and what is made of its value. */
final class PartitionField(
    val name: String, val column: Seq[String], ordinals: Seq[Int], types: Seq[DataType],
    val transform: PartitionTransform)
    extends Serializable {

  val resultType: DataType = transform.resultType(types.last)
  @transient private lazy val function = transform.on(types.last)
  @transient private lazy val accessors = types.map(InternalRow.getAccessor(_)).toArray

  /** The partition value of a row; it stays as it is when the row's memory is used again. */
  def of(row: InternalRow): Any = {
    var here: Any = row
    var step = 0
    while (step < ordinals.length) {
      val parent = here.asInstanceOf[InternalRow]
      if (parent.isNullAt(ordinals(step))) return null
      here = accessors(step)(parent, ordinals(step))
      step += 1
    }
    function(here) match {
      case text: UTF8String => text.copy()
      case bytes: Array[Byte] => ArraySeq.unsafeWrapArray(bytes.clone)
      case other => other
    }
  }
}

/** A table's current partition spec: rows to partitions, partitions to directories and to JSON.
  *
  * Source: Iceberg table specification, "Partitioning".
  *
  * @param sortOrderId
  *   the sort order of the rows in a file; 0 for none
  */
final class PartitionLayout(val specId: Int, val fields: Seq[PartitionField], val sortOrderId: Int)
    extends Serializable {
  type Key = Seq[Any]

  def keyOf(row: InternalRow): Key = fields.map(_.of(row))

  def toJson(key: Key): ObjectNode = {
    val values = JsonNodeFactory.instance.objectNode()
    fields.zip(key).foreach { case (field, value) => values.set[JsonNode](field.name, json(field, value)) }
    values
  }

  /** The directories below the write's own, one a field; they are for people, and nothing is read from them. */
  def directories(key: Key): Seq[String] = fields.zip(key).map { case (field, value) =>
    DirectoryName.of(field.name, json(field, value).asText)
  }

  private def json(field: PartitionField, value: Any): JsonNode = {
    val plain = value match {
      case bytes: ArraySeq[_] => bytes.asInstanceOf[ArraySeq[Byte]].toArray
      case other => other
    }
    SingleValue.toJson(plain, field.resultType)
  }
}

object PartitionLayout {

  /** Of files that are not put into partitions by their rows. */
  val Unpartitioned = new PartitionLayout(0, Nil, 0)

  /** The current spec in a table's metadata.
    *
    * @param schema
    *   the table's, field ids in the metadata
    */
  def of(metadata: JsonNode, schema: StructType): PartitionLayout = {
    val spec = PartitionTransforms.current(metadata, "partition-specs", "spec-id", "default-spec-id")
    new PartitionLayout(
      spec.required("spec-id").asInt, spec.required("fields").asScala.map(field(_, schema)).toSeq,
      metadata.required("default-sort-order-id").asInt)
  }

  private def field(node: JsonNode, schema: StructType): PartitionField = {
    val transform = PartitionTransform.parse(node.required("transform").asText)
    val id = node.required("source-id").asInt
    val name = node.required("name").asText
    path(schema, id) match {
      case Some(way) => new PartitionField(name, way.map(_._1), way.map(_._2), way.map(_._3), transform)
      case None if transform == Void => throw LakewardenException.notSupportedYet(
          s"The partition field $name was removed, and its column was dropped.", "partition-spec",
          "Write to the table with another engine.")
      case None => throw invalid(s"The partition field $name has no column.")
    }
  }

  /** The way to a field through structs: names, ordinals, types. */
  private[write] def path(schema: StructType, id: Int): Option[Seq[(String, Int, DataType)]] =
    schema.fields.zipWithIndex.view.flatMap { case (field, ordinal) =>
      val step = (field.name, ordinal, field.dataType)
      field.dataType match {
        case _ if FieldIds.of(field) == id => Some(Seq(step))
        case nested: StructType => path(nested, id).map(step +: _)
        case _ => None
      }
    }.headOption

  private def invalid(problem: String): LakewardenException =
    new LakewardenException("MetadataInvalid", problem, Some("partition-spec"), None)
}

/** A value as part of a directory's name: percent-encoded as other writers of Iceberg do, where every reader takes the
  * name for one plain name below its parent; else short and without odd characters.
  */
private object DirectoryName {
  private val MaxBytes = 200

  def of(field: String, value: String): String = {
    val name = s"${escaped(field)}=${escaped(value)}"
    if (name.length <= MaxBytes && LocationName.isFit(name) && !LocationName.hasFinalDot(name)) name
    else s"$field=$value".replaceAll("[^0-9A-Za-z_=-]", "_").take(MaxBytes)
  }

  private def escaped(text: String): String =
    URLEncoder.encode(text, UTF_8).replace("+", "%20").replace("*", "%2A")
}

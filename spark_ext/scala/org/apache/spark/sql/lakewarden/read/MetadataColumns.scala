package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.connector.catalog.MetadataColumn
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.{PartitionTransform, SingleValue, Void}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.types.UTF8String

/** Iceberg's metadata columns of a row: the file that it is in, its number in it, and the file's partition. */
private[lakewarden] object MetadataColumns {
  val File = "_file"
  val Position = "_pos"
  val Spec = "_spec_id"
  val Partition = "_partition"
  val All: Seq[String] = Seq(File, Position, Spec, Partition)
  private val json = new ObjectMapper

  /** Those of a table.
    *
    * @param schema
    *   the table's, with ids
    */
  def of(metadata: JsonNode, schema: StructType): Seq[StructField] = {
    val partition = partitionType(metadata.required("partition-specs"), schema)
    Seq(
      StructField(File, StringType, nullable = false),
      StructField(Position, LongType, nullable = false),
      StructField(Spec, IntegerType, nullable = false)) ++
      Option.when(partition.nonEmpty)(StructField(Partition, partition, nullable = false))
  }

  /** As Spark takes one. */
  def toSpark(field: StructField): MetadataColumn = new MetadataColumn {
    override def name: String = field.name
    override def dataType: DataType = FieldIds.stripType(field.dataType)
    override def isNullable: Boolean = field.nullable
  }

  /** How a plan is asked for one. */
  def names(field: StructField): Seq[String] = field.dataType match {
    case parts: StructType => parts.fieldNames.toSeq.map(each => s"${field.name}.$each")
    case _ if ChangeColumns.names(field.name) => Nil
    case _                 => Seq(field.name)
  }

  /** Those of a scan, for its plan. */
  private[read] def in(
      plan: Plan, fields: Seq[StructField], changes: Option[ChangeColumns] = None): MetadataColumns = {
    val names = plan.header.required("partition-specs").elements.asScala.map { spec =>
      val own = spec.required("fields").elements.asScala.map { field =>
        field.required("field-id").intValue -> field.required("name").asText
      }
      spec.required("spec-id").intValue -> own.toMap
    }
    new MetadataColumns(fields, names.toMap, changes)
  }

  /** The fields of all specs, each once by its id; the name is that of the newest spec. Fields of columns that were
    * dropped are left out.
    */
  private def partitionType(specs: JsonNode, schema: StructType): StructType = {
    val newest = specs.elements.asScala.toSeq.sortBy(-_.required("spec-id").intValue)
    val known = for {
      field <- newest.flatMap(_.required("fields").elements.asScala)
      transform <- PartitionTransform.known(field.required("transform").asText) if transform != Void
      source <- typeOf(schema, field.required("source-id").intValue)
      part = StructField(field.required("name").asText, transform.resultType(source))
    } yield FieldIds.put(part, field.required("field-id").intValue, Map.empty)
    StructType(known.distinctBy(each => FieldIds.of(each)).distinctBy(_.name).sortBy(each => FieldIds.of(each)))
  }

  private def typeOf(schema: StructType, id: Int): Option[DataType] = schema.fields.view.flatMap { field =>
    field.dataType match {
      case _ if FieldIds.of(field) == id => Some(field.dataType)
      case inner: StructType             => typeOf(inner, id)
      case _                             => None
    }
  }.headOption
}

/** The metadata columns that a scan shows.
  *
  * @param fields
  *   ids of partition fields in the metadata
  * @param names
  *   by partition spec and id of a partition field its name there
  * @param changes
  *   the columns of changes among them
  */
private[read] final class MetadataColumns(
    val fields: Seq[StructField], names: Map[Int, Map[Int, String]], changes: Option[ChangeColumns])
    extends Serializable {
  import MetadataColumns._

  /** Whether the numbers of rows are among them. */
  val numbered: Boolean = fields.exists(_.name == Position)

  /** The columns for one file; none for the numbers of its rows. */
  def of(file: PlannedFile, rows: Int): Seq[Option[ColumnVector]] = fields.map { field =>
    field.name match {
      case name if changes.nonEmpty && file.change.nonEmpty =>
        Some(constant(changes.get.value(name, file.change.get), field.dataType, rows))
      case Position => None
      case File     => Some(constant(UTF8String.fromString(file.path), StringType, rows))
      case Spec     => Some(constant(file.specId, IntegerType, rows))
      case _        => Some(partition(file, field.dataType.asInstanceOf[StructType], rows))
    }
  }

  private def partition(file: PlannedFile, kind: StructType, rows: Int): ColumnVector = {
    val (values, own) = (MetadataColumns.json.readTree(file.partition), names.getOrElse(file.specId, Map.empty))
    val vector = new ConstantColumnVector(rows, FieldIds.strip(kind))
    vector.setNotNull()
    kind.fields.zipWithIndex.foreach { case (field, at) =>
      val value = own.get(FieldIds.of(field)).flatMap(name => Option(values.get(name))).filterNot(_.isNull)
      vector.setChild(at, constant(value.map(SingleValue.fromJson(_, field.dataType)).orNull, field.dataType, rows))
    }
    vector
  }

  private def constant(value: Any, kind: DataType, rows: Int): ConstantColumnVector = {
    val vector = new ConstantColumnVector(rows, kind)
    value match {
      case null                => vector.setNull()
      case each: Boolean       => vector.setBoolean(each)
      case each: Int           => vector.setInt(each)
      case each: Long          => vector.setLong(each)
      case each: Float         => vector.setFloat(each)
      case each: Double        => vector.setDouble(each)
      case each: Decimal       => vector.setDecimal(each, each.precision)
      case each: UTF8String    => vector.setUtf8String(each)
      case each: Array[Byte]   => vector.setBinary(each)
    }
    if (value != null) vector.setNotNull()
    vector
  }
}

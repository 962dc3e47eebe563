package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.{Identity, PartitionTransform, TimeTransform, Truncate, Void}
import org.apache.spark.sql.sources._
import org.apache.spark.sql.types._

/** Which filters the partition of a row decides, in every partition spec that the table ever had: the catalog then
  * plans exactly the files with matching rows, and Spark has nothing left to filter.
  *
  * Masked columns decide nothing, since rows are then filtered by what the mask shows. Nor do floating-point columns:
  * Spark and Iceberg differ in NaN and in zeros.
  *
  * Source: Apache Iceberg's `ExpressionUtil.selectsPartitions`.
  *
  * @param schema
  *   the table's, with ids
  * @param masked
  *   ids of the columns that can be masked
  */
private[read] final class PartitionFilters(metadata: JsonNode, schema: StructType, masked: Set[Int]) {
  private val exact = new FilterJson(schema, exact = true)

  /** By spec its fields. */
  private lazy val specs: Seq[Seq[PartitionSource]] =
    metadata.required("partition-specs").elements.asScala.toSeq.map(_.required("fields").elements.asScala.toSeq.flatMap(
      each => PartitionTransform.known(each.required("transform").asText).map(PartitionSource(
        each.required("source-id").asInt, each.required("name").asText, _))))

  /** The columns that every spec is partitioned by as they are, with the name that their partition fields have. */
  lazy val identities: Map[String, String] = schema.flatMap { field =>
    val names = specs.flatMap(_.filter(each => isOf(field, each) && each.transform == Identity).map(_.name)).distinct
    Option.when(names.size == 1 && decided(field, _.transform == Identity))(field.name -> names.head)
  }.toMap

  /** Whether the partition alone tells which rows match. */
  def decides(filter: Filter): Boolean = exact.of(Seq(filter)).nonEmpty && (filter match {
    case And(left, right)                => decides(left) && decides(right)
    case Or(left, right)                 => decides(left) && decides(right)
    case AlwaysTrue() | AlwaysFalse()    => true
    case IsNull(name)                    => decides(name)(_ => true)
    case IsNotNull(name)                 => decides(name)(_ => true)
    case EqualNullSafe(name, null)       => decides(name)(_ => true)
    case EqualNullSafe(name, _)          => decides(name)(_ == Identity)
    case EqualTo(name, _)                => decides(name)(_ == Identity)
    case In(name, _)                     => decides(name)(_ == Identity)
    case StringStartsWith(name, _)       => decides(name)(_ == Identity)
    case LessThan(name, value)           => decides(name, value, after = false)
    case GreaterThanOrEqual(name, value) => decides(name, value, after = false)
    case LessThanOrEqual(name, value)    => decides(name, value, after = true)
    case GreaterThan(name, value)        => decides(name, value, after = true)
    case _                               => false
  })

  private def decides(name: String)(by: PartitionTransform => Boolean): Boolean =
    column(name).exists(field => decided(field, each => by(each.transform)))

  /** Whether no partition has values on both sides of a cut: just before the value, or just after it. */
  private def decides(name: String, value: Any, after: Boolean): Boolean = column(name).exists { field =>
    def cut = PartitionFilters.number(field.dataType, value).map(each => if (after) Math.addExact(each, 1L) else each)
    decided(field, each => each.transform == Identity || cut.exists(PartitionFilters.begins(each.transform, field.dataType, _)))
  }

  private def decided(field: StructField, by: PartitionSource => Boolean): Boolean =
    PartitionFilters.isCompared(field.dataType) && !masked(FieldIds.of(field)) &&
      specs.forall(_.exists(each => isOf(field, each) && by(each)))

  /** A removed field is null in every file. */
  private def isOf(field: StructField, each: PartitionSource): Boolean =
    each.sourceId == FieldIds.of(field) && each.transform != Void

  private def column(name: String): Option[StructField] =
    WantedColumn.find(schema, name).filter(_.path.size == 1).map(found => schema(found.path.head))
}

/** What a partition value is made of. */
private final case class PartitionSource(sourceId: Int, name: String, transform: PartitionTransform)

private object PartitionFilters {

  /** Old writers rounded times and numbers below zero up. */
  private val Oldest = 1L

  private def isCompared(dataType: DataType): Boolean = dataType match {
    case BooleanType | IntegerType | LongType | DateType | TimestampType | TimestampNTZType | StringType => true
    case _: DecimalType                                                                                  => true
    case _                                                                                               => false
  }

  /** Whether a partition begins with a value, so that those before it are in other partitions. */
  private def begins(transform: PartitionTransform, dataType: DataType, value: Long): Boolean = transform match {
    case _: TimeTransform | _: Truncate if value > Oldest =>
      val partition = transform.on(dataType)
      partition(internal(dataType, value)) != partition(internal(dataType, value - 1))
    case _ => false
  }

  private def internal(dataType: DataType, value: Long): Any = dataType match {
    case IntegerType | DateType => value.toInt
    case _                      => value
  }

  /** As Spark counts the values of a type; none: it does not. */
  private def number(dataType: DataType, value: Any): Option[Long] = (dataType, value) match {
    case (IntegerType, number: Int) if number < Int.MaxValue => Some(number.toLong)
    case (LongType, number: Long) if number < Long.MaxValue  => Some(number)
    case (DateType, _)                                       => Moments.days(value).map(_.toLong).filter(_ < Int.MaxValue)
    case (TimestampType, _)                                  => Moments.micros(value).filter(_ < Long.MaxValue)
    case (TimestampNTZType, _)                               => Moments.localMicros(value).filter(_ < Long.MaxValue)
    case _                                                   => None
  }
}

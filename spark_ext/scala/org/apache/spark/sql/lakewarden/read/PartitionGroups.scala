package org.apache.spark.sql.lakewarden.read

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.connector.read.partitioning.{KeyGroupedPartitioning, Partitioning}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write._
import org.apache.spark.sql.types.{DoubleType, FloatType, StructType}

/** Groups the files of a plan by partition value: one task a value, so that Spark joins and groups their rows without
  * a shuffle.
  *
  * Source: Apache Iceberg's `SparkPartitioningAwareScan`.
  *
  * @param fields
  *   the partition fields whose values tell the groups apart
  */
private[read] final class PartitionGroups private (fields: Seq[PartitionField], files: Seq[PlannedFile]) {

  /** What Spark is told. */
  def partitioning: Partitioning =
    new KeyGroupedPartitioning(
      fields.flatMap(each => each.transform.expression(each.column)).toArray, files.map(key).distinct.size)

  /** Whether each task reads one file. */
  def areSingle: Boolean = files.groupBy(key).values.forall(_.size == 1)

  /** A task for each value that some of the files have. */
  def pack(some: Seq[PlannedFile], lease: PlanLease): Array[InputPartition] =
    some.groupBy(key).map { case (values, group) =>
      val splits = group.map(each => FileSplit(each, 0, each.size))
      KeyedSplits(splits, new GenericInternalRow(values.toArray[Any]))(lease): InputPartition
    }.toArray

  private def key(file: PlannedFile): Seq[Any] = {
    val values = PartitionGroups.json.readTree(file.partition)
    fields.map { field =>
      val value = values.required(field.name)
      if (value.isNull) null else SingleValue.fromJson(value, field.resultType)
    }
  }
}

private[read] object PartitionGroups {
  private val json = new ObjectMapper

  /** The groups of a plan, if all its files have the table's current partition spec and a field of it can tell them
    * apart: one made of a top-level column that is read without a mask.
    *
    * @param wanted
    *   the columns that are read, with ids
    */
  def of(plan: Plan, layout: PartitionLayout, wanted: StructType): Option[PartitionGroups] = {
    val read = wanted.fields.filterNot(each => plan.masked(FieldIds.of(each))).map(each => Seq(each.name)).toSet
    val fields = layout.fields.filter(each => read(each.column) && groups(each))
    Option.when(plan.showsAllRows && fields.nonEmpty && plan.files.forall(_.specId == layout.specId))(new PartitionGroups(fields, plan.files))
  }

  /** Whether Spark compares the values as the catalog does: NaN and zeros may differ. */
  private def groups(field: PartitionField): Boolean = field.transform match {
    case Identity                     => field.resultType != FloatType && field.resultType != DoubleType
    case _: Bucket | _: TimeTransform => true
    case _: Truncate | Void           => false
  }
}

package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{
  Expression, Expressions, FieldReference, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.lakewarden.catalog.SortTerm
import org.apache.spark.sql.lakewarden.schema.PartitionTransforms
import org.apache.spark.sql.types.StructType

/** How the rows of a write come to their writers: brought together, and in an order.
  *
  * Rows are sorted by partition, so that there are few files and one is open at a time, and in each partition by the
  * table's sort order. Partition fields that the sort order begins with, or that its first field sorts by as well, are
  * not sorted by twice.
  *
  * Source: Apache Iceberg's `SortOrderUtil.buildSortOrder` and `SparkWriteUtil.writeRequirements`.
  */
final class RowOrder private (partitions: Seq[PartitionField], fields: Seq[RowOrder.SortedBy]) {

  def distribution(settings: WriteSettings): Distribution = settings.distribution match {
    case "hash" if clusters.nonEmpty => Distributions.clustered(clusters.toArray)
    case "range" if sorted.nonEmpty  => Distributions.ordered(sorted.toArray)
    case _                           => Distributions.unspecified
  }

  /** The same where rows to delete come as well: they have no values, and come with those of their file. */
  def distribution(settings: WriteSettings, file: Expression): Distribution =
    if (settings.distribution == "none" || clusters.isEmpty) Distributions.unspecified
    else Distributions.clustered((file +: clusters).toArray)

  /** A writer with many open files needs no order but the table's own. */
  def ordering(settings: WriteSettings): Array[SortOrder] =
    if (settings.fanOut && fields.isEmpty) Array.empty else sorted.toArray

  private def clusters = partitions.flatMap(each => each.transform.expression(each.column))

  private def sorted: Seq[SortOrder] = {
    val first = unsorted.flatMap(each => each.transform.expression(each.column)).map(
      Expressions.sort(_, SortDirection.ASCENDING, NullOrdering.NULLS_FIRST))
    first ++ fields.flatMap(_.sort)
  }

  /** The partition fields that the sort order does not sort by. */
  private def unsorted: Seq[PartitionField] = {
    val prefix = fields.takeWhile(field => partitions.exists(field.isOf))
    val next = fields.drop(prefix.length).headOption
    partitions.filterNot(each => prefix.exists(_.isOf(each)) || next.exists(_.sorts(each)))
  }
}

object RowOrder {

  /** The order for a table's current partition spec and sort order.
    *
    * @param schema
    *   the table's, field ids in the metadata
    */
  def of(metadata: JsonNode, schema: StructType, layout: PartitionLayout): RowOrder = {
    val order = PartitionTransforms.current(metadata, "sort-orders", "order-id", "default-sort-order-id")
    new RowOrder(layout.fields, order.required("fields").asScala.flatMap(field(_, schema)).toSeq)
  }

  /** The order that a statement gives in place of the table's.
    *
    * @param columns
    *   the z-order of these, or none; then `terms` are sorted by
    */
  def of(terms: Seq[SortTerm], columns: Seq[Seq[String]], layout: PartitionLayout): RowOrder = {
    val wanted = terms.map(each => Field(
      each.term.column, PartitionTransform.parse(each.term.transform), direction(!each.ascending),
      nulls(each.nullsFirst)))
    new RowOrder(layout.fields, wanted ++ Option.when(columns.nonEmpty)(ZOrdered(columns)))
  }

  /** What rows are sorted by. */
  private sealed trait SortedBy {
    def sort: Option[SortOrder]
    def isOf(partition: PartitionField): Boolean = false

    /** Whether rows in its order are in that of a partition field, too. */
    def sorts(partition: PartitionField): Boolean = false
  }

  /** Several columns at once. */
  private final case class ZOrdered(columns: Seq[Seq[String]]) extends SortedBy {
    override def sort: Option[SortOrder] = {
      val references = columns.map(FieldReference(_): Expression)
      Some(Expressions.sort(
        Expressions.apply(ZOrder.Name, references: _*), SortDirection.ASCENDING, NullOrdering.NULLS_FIRST))
    }
  }

  /** One field of the sort order. */
  private final case class Field(
      column: Seq[String], transform: PartitionTransform, direction: SortDirection, nulls: NullOrdering)
      extends SortedBy {

    override def sort: Option[SortOrder] = transform.expression(column).map(Expressions.sort(_, direction, nulls))

    override def isOf(partition: PartitionField): Boolean = partition.column == column && partition.transform == transform

    override def sorts(partition: PartitionField): Boolean = partition.column == column &&
      ((transform, partition.transform) match {
        case (Identity, _: TimeTransform | _: Truncate) => true
        case (fine: TimeTransform, coarse: TimeTransform) => Units.indexOf(fine.unit) > Units.indexOf(coarse.unit)
        case _                                          => false
      })
  }

  private val Units = Seq("year", "month", "day", "hour")

  private def field(node: JsonNode, schema: StructType): Option[Field] =
    PartitionLayout.path(schema, node.required("source-id").asInt).map { way =>
      Field(
        way.map(_._1), PartitionTransform.parse(node.required("transform").asText),
        direction(node.required("direction").asText == "desc"),
        nulls(node.required("null-order").asText == "nulls-first"))
    }

  private def direction(descending: Boolean): SortDirection =
    if (descending) SortDirection.DESCENDING else SortDirection.ASCENDING

  private def nulls(first: Boolean): NullOrdering = if (first) NullOrdering.NULLS_FIRST else NullOrdering.NULLS_LAST
}

package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.expressions.{Expressions, FieldReference, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.lakewarden.schema.{FieldIds, PartitionTransforms}
import org.apache.spark.sql.types._

/** The order of the rows in every file of a plan, where it is certain: all files say that they are sorted by the
  * table's current sort order. Deletes leave out rows, and keep the order.
  *
  * It is told as far as Spark compares values as all writers do, and sees the columns as they are. Columns that the table
  * is partitioned by come first: all rows of a file have the same value.
  */
private[read] object FileOrder {

  /** By what the rows of each file are sorted, nothing if that is not certain.
    *
    * @param metadata
    *   the table's
    * @param constant
    *   names of the columns that have one value in each file
    * @param wanted
    *   the columns that are read, with ids
    */
  def of(plan: Plan, metadata: JsonNode, constant: Set[String], wanted: StructType): Seq[SortOrder] = {
    val order = PartitionTransforms.current(metadata, "sort-orders", "order-id", "default-sort-order-id")
    val id = order.required("order-id").intValue
    val shown = wanted.fields.toSeq.filterNot(field => plan.masked(FieldIds.of(field)))
    if (id == Unsorted || !plan.showsAllRows || !plan.files.forall(_.sortOrderId == id)) Nil
    else {
      val (same, sorted) = (shown.filter(each => constant(each.name)), order.required("fields").elements.asScala.toSeq)
      val fields = sorted.map(each => column(each, shown).map(each -> _)).takeWhile(_.nonEmpty).flatten
      val own = fields.filterNot { case (_, field) => same.contains(field) }
      if (own.isEmpty) Nil
      else same.map(ascending) ++ own.map { case (each, field) => sort(each, field) }
    }
  }

  private val Unsorted = 0

  private def column(order: JsonNode, shown: Seq[StructField]): Option[StructField] =
    shown.find(each => FieldIds.of(each) == order.required("source-id").intValue)
      .filter(each => order.required("transform").asText == "identity" && isOrdered(each.dataType))

  /** Writers differ in NaN and in zeros. */
  private def isOrdered(dataType: DataType): Boolean = dataType match {
    case FloatType | DoubleType => false
    case other                  => other.isInstanceOf[AtomicType]
  }

  private def ascending(field: StructField): SortOrder =
    Expressions.sort(FieldReference(Seq(field.name)), SortDirection.ASCENDING, NullOrdering.NULLS_FIRST)

  private def sort(order: JsonNode, field: StructField): SortOrder = Expressions.sort(
    FieldReference(Seq(field.name)),
    if (order.required("direction").asText == "desc") SortDirection.DESCENDING else SortDirection.ASCENDING,
    if (order.required("null-order").asText == "nulls-first") NullOrdering.NULLS_FIRST else NullOrdering.NULLS_LAST)
}

package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.expressions.{FieldReference, NamedReference, SortOrder}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.partitioning.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.lakewarden.catalog.{AsOf, TableHandle}
import org.apache.spark.sql.lakewarden.options.ReadOptions
import org.apache.spark.sql.lakewarden.schema.{FieldIds, PartitionTransforms}
import org.apache.spark.sql.lakewarden.write.PartitionLayout
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{StructField, StructType}

/** The scan of a query, which reads less than the plan's files where Spark says so while the query runs.
  *
  * @param decided
  *   the filters that the catalog applies by partitions, and Spark not again
  * @param limit
  *   how many rows are enough
  * @param named
  *   the files that filters name; none: all
  */
private[read] final class QueryScan(
    handle: TableHandle, asOf: Option[AsOf], wanted: StructType, filters: Seq[Filter],
    decided: Seq[Filter], aggregates: Option[PushedAggregates], metadata: Seq[StructField], limit: Option[Int],
    named: Option[Set[String]], options: ReadOptions)
    extends GuardedScan(
      handle, asOf, wanted, filters, decided = decided, aggregates = aggregates, metadata = metadata, options = options)
    with SupportsRuntimeFiltering
    with SupportsReportPartitioning
    with SupportsReportOrdering {
  private val table = handle.table
  private var chosen = Option.empty[Set[String]]

  /** The columns by which the table's rows are brought together, and that are shown as they are. */
  override def filterAttributes(): Array[NamedReference] = {
    val clustering = Seq("partition-specs", "sort-orders").flatMap(PartitionTransforms.sources(table.metadata, _)).toSet
    val read = if (aggregates.isEmpty) wanted.fields.filter(each => clustering(FieldIds.of(each)) && !plan.masked(FieldIds.of(each))) else Array.empty[StructField]
    read.map(each => FieldReference(Seq(each.name)): NamedReference)
  }

  /** Leaves out the files without a matching row, by another plan of the same snapshot. Its keys are not used: what is
    * read are files of the first plan. It is asked for the same columns, so that one whose name has become another's
    * is noticed.
    */
  override def filter(runtime: Array[Filter]): Unit = {
    val known = new FilterJson(table.schema)
    val said = runtime.toSeq.filter(known.says)
    chosen = Option.when(said.nonEmpty) {
      new PlanRequest(handle, asOf, wanted, Nil, filters ++ said, decided = decided, increment = increment).send().files.map(_.path).toSet
    }
  }

  override protected def files: Seq[PlannedFile] = {
    // Which files have visible rows, a scan of a few files would show.
    val some = Seq(chosen, named.filter(_ => plan.showsAllRows)).flatten
    val matching = plan.files.filter(file => some.forall(_(file.path)))
    limit.filter(_ => plan.showsAllRows).fold(matching)(QueryScan.enough(matching, _))
  }

  override def outputPartitioning(): Partitioning =
    groups.fold[Partitioning](new UnknownPartitioning(0))(_.partitioning)

  override protected def pack(files: Seq[PlannedFile], lease: PlanLease): Array[InputPartition] =
    groups.fold(super.pack(files, lease))(_.pack(files, lease))

  private lazy val groups: Option[PartitionGroups] =
    if (options.grouped && aggregates.isEmpty)
      PartitionGroups.of(plan, PartitionLayout.of(table.metadata, table.schema), wanted)
    else None

  /** The order of the rows of each task: those of one file. */
  override def outputOrdering(): Array[SortOrder] = ordering.toArray

  override protected def oneByOne: Boolean = ordering.nonEmpty

  private lazy val ordering: Seq[SortOrder] =
    if (options.ordered && aggregates.isEmpty && groups.forall(_.areSingle)) {
      val constant = new PartitionFilters(table.metadata, table.schema, table.viewer.masked).identities.keySet
      FileOrder.of(plan, table.metadata, constant, wanted)
    } else Nil

  override protected def identity: Product = (super.identity, decided.toSet, limit, named)
}

private object QueryScan {

  /** The first files that together have at least this number of rows. Files with deletes count as empty, because the
    * plan does not say how many rows are left.
    */
  private def enough(files: Seq[PlannedFile], rows: Int): Seq[PlannedFile] = {
    val before = files.scanLeft(0L)((sum, file) => if (file.deletes.isEmpty) sum + file.records else sum)
    files.zip(before).takeWhile(_._2 < rows).map(_._1)
  }
}

package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.lakewarden.catalog.{AsOf, TableHandle}
import org.apache.spark.sql.lakewarden.options.ReadOptions
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Builds a scan out of the columns and filters of a query.
  *
  * Filters serve to leave out files, row groups and pages. Spark applies them again, but for those that the partition of
  * a row decides.
  *
  * @param asOf
  *   which state of the table; none: the one that was loaded
  */
private[lakewarden] class GuardedScanBuilder(
    handle: TableHandle, asOf: Option[AsOf], options: CaseInsensitiveStringMap)
    extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownFilters
    with SupportsPushDownAggregates
    with SupportsPushDownLimit {
  private val table = handle.table

  /** An option that would have no effect is refused: a reader may have meant another state of the table by it. */
  private lazy val told = ReadOptions.of(options, table.properties, format)
  private val metadata = MetadataColumns.of(table.metadata, table.schema)
  private lazy val partitions = new PartitionFilters(table.metadata, table.schema, table.viewer.masked)
  private var wanted = table.schema
  private var shown = Seq.empty[StructField]
  private var pushed = Seq.empty[Filter]
  private var decided = Seq.empty[Filter]
  private var aggregates = Option.empty[PushedAggregates]
  private var limit = Option.empty[Int]

  /** The files that the filters name. Spark applies these filters again. */
  private var named = Option.empty[Set[String]]

  /** A column of the table stands for itself, whatever its name. */
  override def pruneColumns(required: StructType): Unit = {
    val (columns, others) = required.partition(field => table.schema.fieldNames.contains(field.name))
    wanted = FieldIds.restore(StructType(columns), table.schema)
    shown = FieldIds.restore(StructType(others), StructType(metadata))
  }

  override def pushFilters(filters: Array[Filter]): Array[Filter] = {
    val json = new FilterJson(table.schema)
    pushed = filters.toSeq.filter(json.says)
    decided = if (dropsRows) filters.toSeq.filter(partitions.decides) else Nil
    named =
      if (table.schema.fieldNames.contains(MetadataColumns.File)) None
      else filters.toSeq.flatMap(NamedFiles.of).reduceOption(_ & _)
    filters.filterNot(decided.contains)
  }

  /** Whether a row that matches no filter may be left out. */
  protected def dropsRows: Boolean = true

  /** Spark asks where no filter is left to it. Footers of ORC do not tell of times; rows that answer for them are
    * read faster in batches.
    */
  override def pushAggregation(aggregation: Aggregation): Boolean = {
    val known = new AggregateColumns(table.schema, partitions.identities, times = !writtenAsOrc)
    aggregates = Option.when(pushed.forall(decided.contains) && told.aggregates)(known.pushed(aggregation)).flatten
    aggregates.nonEmpty
  }

  private def writtenAsOrc: Boolean = format == DataFormat.Orc.name
  private def format: String = table.writeSettings.path("format").asText

  /** Spark tells it where no filter is left to it, and takes no more rows itself. */
  override def pushLimit(rows: Int): Boolean = {
    limit = Some(rows)
    true
  }

  override def pushedFilters(): Array[Filter] = pushed.toArray

  override def build(): Scan = scan(aggregates.fold(wanted)(_.wanted), pushed, shown, told)

  protected def scan(
      wanted: StructType, filters: Seq[Filter], metadata: Seq[StructField], options: ReadOptions): Scan =
    new QueryScan(handle, asOf, wanted, filters, decided, aggregates, metadata, limit, named, options)
}

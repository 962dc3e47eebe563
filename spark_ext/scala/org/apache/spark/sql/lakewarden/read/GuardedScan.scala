package org.apache.spark.sql.lakewarden.read

import java.util
import java.util.{OptionalLong, UUID}

import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.expressions.NamedReference
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.Scan.ColumnarSupportMode
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{AsOf, FileGroup, StreamThread, TableHandle}
import org.apache.spark.sql.lakewarden.options.{ReadOptions, StreamOptions}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{Metadata, StructField, StructType}

/** One scan of a guarded table.
  *
  * The catalog is asked once, as soon as columns and filters are known, and has answered, as a rule, when Spark
  * first wants to know how large the scan is or what to read. Two scans are equal only if they are of the same state
  * of the same table, for the same user by the same policies, with the same columns and filters: what Spark keeps of
  * one is never used for another user.
  *
  * @param wanted
  *   the columns, with ids
  * @param filters
  *   those of which something can be used before the rows are read
  * @param decided
  *   the filters that the catalog applies by partitions, and Spark not again
  * @param group
  *   the files to read and no others; none: all
  * @param aggregates
  *   what is answered in place of rows; none: rows
  * @param metadata
  *   the metadata columns, which come behind the others
  * @param options
  *   how the files are split and read
  * @param content
  *   what is read
  */
private[lakewarden] class GuardedScan(
    handle: TableHandle, asOf: Option[AsOf], wanted: StructType, filters: Seq[Filter],
    decided: Seq[Filter] = Nil, group: Option[FileGroup] = None, aggregates: Option[PushedAggregates] = None, metadata: Seq[StructField] = Nil,
    options: ReadOptions = ReadOptions(), content: PlanContent = PlanContent.Rows)
    extends Scan
    with Batch
    with SupportsReportStatistics
    with SupportsMetadata {
  private val table = handle.table
  private val session = SparkSession.active
  private val snapshots = options.snapshots
  private lazy val asked = ask(asOf, increment)
  if (!StreamThread.isCurrent) asked
  protected lazy val plan: Plan = asked.get

  /** The files that are read. */
  protected def files: Seq[PlannedFile] = plan.files

  /** By which rows may be left out. */
  protected def rowFilters: Seq[Filter] = filters

  override def readSchema(): StructType = aggregates.fold(StructType(FieldIds.strip(wanted) ++ shownMetadata))(_.schema)

  override def toBatch: Batch = {
    requireBatch()
    this
  }

  /** Throws what refuses the options in a batch. */
  protected def requireBatch(): Unit = {
    snapshots.requireBatch()
    snapshots.requireAppends()
  }

  /** The appends that a batch reads; none: all rows. */
  protected def increment: Option[Increment] = {
    if (snapshots.start.nonEmpty && asOf.nonEmpty) throw new LakewardenException(
      "RequestInvalid", s"The query reads an earlier snapshot, and has the read option ${StreamOptions.Start}.",
      Some("read-option"), Some("Remove one of them."))
    snapshots.start.map { id =>
      val end = snapshots.end.orElse(table.snapshotId)
      if (end.isEmpty) throw new LakewardenException(
        "RequestInvalid", s"${table.fullName} has no snapshots.", Some("read-option"),
        Some(s"Remove ${StreamOptions.Start}."))
      Increment(Some(id), end)
    }
  }

  /** The scan of a whole table is not asked for. */
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = {
    snapshots.requireStream()
    if (decided.nonEmpty) throw new IllegalStateException("Streams are filtered by Spark.")
    if (asOf.nonEmpty) throw LakewardenException.notSupportedYet(
      s"An earlier snapshot of ${table.fullName} cannot be read as a stream.", "read-option",
      s"Use the read option ${StreamOptions.Start}.")
    new GuardedStream(handle, snapshots, this, new StreamPlans({
      case Appends(first, last) =>
        ask(None, Some(Increment(Some(first.id), Some(last.id), inclusive = true)), Nil, everyFile = true)
      case WholeSnapshot(id) => ask(Some(AsOf(id, currentSchema = true)), None, Nil, everyFile = true)
    }))
  }

  override def planInputPartitions(): Array[InputPartition] = {
    val own = lease(asked, () => ask(asOf, increment))
    val packed = pack(files, own)
    if (packed.isEmpty && aggregates.exists(!_.grouped)) Array(AnySplits(Nil)(own)) else packed
  }

  /** Tasks that read files of a plan of a stream.
    *
    * @param again
    *   asks for the same plan
    */
  private[read] def partitions(asked: AskedPlan, files: Seq[PlannedFile], again: () => AskedPlan)
      : Array[InputPartition] = any(files, lease(asked, again))

  private def lease(asked: AskedPlan, again: () => AskedPlan): PlanLease =
    new PlanLease(table.fullName, asked.get, FieldIds.all(wanted), asked.at, again)

  /** The tasks that read some files. */
  protected def pack(files: Seq[PlannedFile], lease: PlanLease): Array[InputPartition] = any(files, lease)

  /** Whether each task reads a part of one file alone. */
  protected def oneByOne: Boolean = false

  private def any(files: Seq[PlannedFile], lease: PlanLease): Array[InputPartition] = {
    val parallelism = session.sparkContext.defaultParallelism
    if (lease.showsAllRows) GuardedPartition.pack(files, lease, SQLConf.get, options, parallelism, oneByOne)
    else GuardedPartition.scatter(files, lease, SQLConf.get, parallelism)
  }

  override def createReaderFactory(): PartitionReaderFactory = readerFactory(plan)

  private[read] def readerFactory(plan: Plan): PartitionReaderFactory = {
    val gate = new FileGate(table.fullName, table.uuid, plan.allowed, plan.transport, new FileDigests(plan.verification))
    val conf = SentConfiguration.of(SparkContext.getOrCreate())
    val rows = new GuardedReaderFactory(
      table.fullName, UUID.randomUUID, gate, wanted, plan.compared, shown(plan), EnforcedReads.of(plan, wanted),
      telling = table.through.isEmpty, rowFilters, mode, conf)
    aggregates.fold[PartitionReaderFactory](rows)(new AggregateReaderFactory(table.fullName, _, plan.masked, rows))
  }

  private def ask(
      asOf: Option[AsOf], increment: Option[Increment], filters: Seq[Filter] = filters, everyFile: Boolean = false)
      : AskedPlan = {
    val request = new PlanRequest(
      handle, asOf, wanted, metadata, filters, decided, group, increment, content, options.statistics, enforces, everyFile)
    new AskedPlan(session)(request.send())
  }

  /** Whether rows can be hidden and values masked. */
  protected def enforces: Boolean = group.isEmpty && content != PlanContent.PositionDeletes

  /** The metadata columns of a plan's files. */
  protected def shown(plan: Plan): MetadataColumns = MetadataColumns.in(plan, metadata)

  override def columnarSupportMode(): ColumnarSupportMode =
    if (mode.columnar) ColumnarSupportMode.SUPPORTED else ColumnarSupportMode.UNSUPPORTED

  /** Rows as the catalog counts them; bytes as the share of the files that the columns make up. Neither tells of hidden
    * rows or values.
    */
  override def estimateStatistics(): Statistics = new Statistics {
    override def sizeInBytes: OptionalLong = {
      val share = wanted.defaultSize.toDouble / math.max(table.schema.defaultSize, 1)
      if (plan.restrictions.isEmpty) OptionalLong.of(math.max(1L, (plan.bytes * math.min(share, 1.0)).toLong))
      else OptionalLong.empty
    }
    override def numRows: OptionalLong =
      if (plan.showsAllRows) OptionalLong.of(plan.records) else OptionalLong.empty
    override def columnStats: util.Map[NamedReference, ColumnStatistics] =
      if (plan.restrictions.isEmpty) ColumnsTold.of(plan.statistics, wanted) else util.Map.of
  }

  override def description(): String = s"${table.fullName}${table.branch.shown} [filters=${filters.mkString(", ")}]"

  override def getMetaData(): Map[String, String] = Map(
    "Location" -> table.metadata.path("location").asText,
    "PushedAggregation" -> aggregates.fold("[]")(_.toString),
    "PushedFilters" -> filters.mkString("[", ", ", "]"),
    "ReadSchema" -> readSchema().catalogString)

  override def toString: String = s"GuardedScan(${description()})"

  override def equals(other: Any): Boolean = other match {
    case scan: GuardedScan => scan.identity == identity
    case _                 => false
  }

  override def hashCode: Int = identity.hashCode

  protected def identity: Product = (table.identity, asOf, snapshots, wanted, filters.toSet, group, aggregates, metadata)

  private def shownMetadata: Seq[StructField] =
    metadata.map(each => each.copy(dataType = FieldIds.stripType(each.dataType), metadata = Metadata.empty))

  /** An option or a setting of the session, within what neither loops nor takes all memory. */
  private def batchRows(conf: SQLConf): Int =
    math.min(math.max(options.batchRows.getOrElse(conf.parquetVectorizedReaderBatchSize), 1), 65536)

  /** Wide rows are not read in batches, since Spark does not compile code for them. */
  private def mode: ReadMode = {
    val conf = SQLConf.get
    val compiled = conf.wholeStageEnabled && wanted.length + metadata.length <= conf.wholeStageMaxNumFields
    ReadMode(compiled && aggregates.isEmpty, conf.offHeapColumnVectorEnabled, batchRows(conf))
  }
}

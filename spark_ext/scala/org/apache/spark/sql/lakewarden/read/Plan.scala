package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{AsOf, FileGroup, TableHandle}
import org.apache.spark.sql.lakewarden.crypto.{Footer, FooterDigest, TransportKey, WrappedKey}
import org.apache.spark.sql.lakewarden.restrictions.ReadRestrictions
import org.apache.spark.sql.lakewarden.schema.{FieldIds, IcebergSchema, PartitionTransforms}
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types._

/** A file that a scan reads.
  *
  * @param path
  *   its name in the table's metadata
  * @param location
  *   where it lies, canonically spelled
  * @param format
  *   the one that the table's metadata says
  * @param algorithm
  *   how its epoch encrypts it; none: in plaintext
  * @param footer
  *   how its epoch says that the footer is; none: in plaintext as a whole
  * @param columnKeys
  *   whether groups of columns have keys of their own, and the others are in plaintext; else it is encrypted whole
  * @param keys
  *   its data keys under the scan's key: the footer's, and those of all groups with a column that the scan reads
  * @param digest
  *   of its bytes, where its key metadata keeps one
  * @param footerDigest
  *   of its footer, where its key metadata keeps one: of Parquet files with column keys, but for old ones
  * @param withoutLike
  *   ids of columns whose absence does not mean NULL: their values stand in its partition, or it deletes by them
  * @param specId
  *   of the partition spec that it was written with
  * @param partition
  *   what the plan shows of its partition, as JSON
  * @param equalityIds
  *   of an equality delete the ids of the columns that it compares; else none
  * @param deletes
  *   the delete files that apply to it
  * @param sequence
  *   the sequence number of the snapshot that added it
  * @param change
  *   in a plan of changes, what happened to its rows
  * @param deletedBy
  *   delete files of which one deletes each row that is read; none: all rows are read that no delete file deletes
  * @param sortOrderId
  *   of the sort order that its rows have; 0 for none
  * @param isPlaced
  *   whether errors name its directories, in which standard clients and Spark write partition values
  */
private[read] final case class PlannedFile(
    path: String, location: String, format: DataFormat, size: Long, records: Long, algorithm: Option[String],
    footer: Option[Footer], columnKeys: Boolean, keys: Seq[WrappedKey], digest: Option[FileDigest],
    footerDigest: Option[FooterDigest], withoutLike: Set[Int], specId: Int, partition: String,
    equalityIds: Seq[Int] = Nil, deletes: Seq[PlannedFile] = Nil, sequence: Long = 0,
    sortOrderId: Int = 0, change: Option[RowChange] = None, deletedBy: Seq[PlannedFile] = Nil,
    isPlaced: Boolean = true) {

  /** As errors name it. */
  def shownPath: String = if (isPlaced) path else path.drop(path.lastIndexOf('/') + 1)

  /** The delete files that decide which of its rows are read. */
  def allDeletes: Seq[PlannedFile] = deletes ++ deletedBy
}

/** What the catalog answered to one scan.
  *
  * @param transport
  *   the key that the files' keys are wrapped under
  */
private[read] final class Plan(
    val header: JsonNode, val files: Seq[PlannedFile], val allowed: AllowedPaths, val transport: Option[TransportKey]) {

  /** How long after it was answered it may be begun with. */
  val validNanos: Long = TimeUnit.MILLISECONDS.toNanos(header.required("valid-ms").longValue)

  /** When files are checked against their digests. */
  val verification: Verification = {
    val said = header.required("verify-digest").asText
    Verification.All.find(_.name == said).getOrElse(throw LakewardenException.notSupportedYet(
      s"The value $said of encryption.verify-digest is not supported by this version of the plugin.",
        "verify-digest", "Install the plugin of the catalog's release."))
  }

  /** What is known of the columns' values, by field id; or null. */
  val statistics: JsonNode = header.required("column-statistics")

  /** What is read with, with ids. */
  lazy val schema: StructType = IcebergSchema.toSpark(header.required("schema"))

  /** Ids of the columns that are shown through masks in files, or as NULL. */
  val stored: Set[Int] = Plan.stored(header)

  /** What the reader enforces. */
  val restrictions: ReadRestrictions = ReadRestrictions.of(header.required("read-restrictions"), schema)

  /** By id how many bytes each value of the type `fixed` has. */
  def fixedLengths: Map[Int, Int] = IcebergSchema.fixedLengths(header.required("schema"))

  /** Ids of the top-level columns that are shown through masks, or of which a part is. */
  val masked: Set[Int] = stored ++ restrictions.masked(schema)

  /** Whether no row filter hides rows. Else nothing may tell how many rows, bytes or files there are. */
  def showsAllRows: Boolean = restrictions.filter.isEmpty

  /** The columns that equality deletes compare, with ids. */
  val compared: StructType = Plan.compared(header)

  /** Data files, and the delete files that apply to them. */
  def allFiles: Iterator[PlannedFile] = files.iterator.flatMap(each => Iterator(each) ++ each.allDeletes)

  /** In all data files together. */
  def bytes: Long = total(_.size)

  /** In all data files together, deleted rows too. */
  def records: Long = total(_.records)

  /** The snapshot that was planned; none for a table without rows. */
  def snapshotId: Option[Long] = Plan.snapshotId(header.path("snapshot-id"))

  /** What the metadata claims may be more than a number holds. */
  private def total(of: PlannedFile => Long): Long = files.map(of(_).toDouble).sum.toLong
}

private[read] object Plan {
  def stored(header: JsonNode): Set[Int] = header.required("masked").elements.asScala.map(_.intValue).toSet

  def compared(header: JsonNode): StructType = {
    val said = header.required("equality-columns")
    if (said.isNull) new StructType else IcebergSchema.toSpark(said)
  }

  def snapshotId(node: JsonNode): Option[Long] = Option(node).filter(_.isNumber).map(_.longValue).filter(_ >= 0)
}

/** Asks the catalog which files a scan reads, and compares the answer with what Spark resolved.
  *
  * The catalog decides by names, files are read by ids: a column that changed its name between Spark's analysis
  * and the plan refuses the scan, as do another table or another user than those that were loaded. Rows that came
  * meanwhile are not read, so that all scans of a query see one state.
  *
  * @param wanted
  *   the columns, with ids
  * @param metadata
  *   the metadata columns
  * @param decided
  *   the filters that nobody applies again
  * @param group
  *   the files to read and no others, as they are on their branch now; none: all
  * @param increment
  *   the appends to read; none: all rows
  * @param content
  *   what is read
  * @param statistics
  *   whether the plan says what it knows of the columns' values
  * @param enforces
  *   whether row filters and masks are applied to what is read
  * @param everyFile
  *   whether files are planned, too, that have no row for a row filter
  */
private[read] final class PlanRequest(
    handle: TableHandle, asOf: Option[AsOf], wanted: StructType, metadata: Seq[StructField], filters: Seq[Filter],
    decided: Seq[Filter] = Nil, group: Option[FileGroup] = None, increment: Option[Increment] = None,
    content: PlanContent = PlanContent.Rows, statistics: Boolean = false, enforces: Boolean = true,
    everyFile: Boolean = false) {
  private val table = handle.table
  private val loaded = table.snapshotId

  /** One plan, every path in it checked. */
  def send(): Plan = {
    val plan = ask(asOf)
    if (asOf.nonEmpty || group.nonEmpty || increment.nonEmpty || plan.snapshotId == loaded) plan
    else loaded.fold(new Plan(plan.header, Nil, plan.allowed, None))(id => ask(Some(AsOf(id))))
  }

  private def ask(asOf: Option[AsOf]): Plan = {
    val plan = handle.client.stream(table.engineSegments("plan"), body(asOf))(
      new PlanStream(table.fullName, showsPartitions).read(_, content))
    judge(plan)
    plan.allFiles.foreach(each => plan.allowed.check(each.location, table.fullName))
    plan
  }

  private def showsPartitions: Boolean =
    !PartitionTransforms.sources(table.metadata, "partition-specs").exists(table.viewer.masked)

  private def body(asOf: Option[AsOf]): JsonNode = {
    val node = PlanRequest.json.createObjectNode
    table.through.foreach(_.put(node, table.namespace, table.name))
    asOf.foreach(each => node.put("snapshot-id", each.snapshotId).put("use-snapshot-schema", !each.currentSchema))
    increment.foreach(_.put(node))
    if (asOf.isEmpty && group.isEmpty && increment.isEmpty) table.branch.ref.foreach(node.put("ref", _))
    group.foreach { each =>
      val files = node.put("ref", each.branch).putArray("files")
      each.paths.foreach(files.add(_))
    }
    if (content == PlanContent.PositionDeletes) node.put("position-deletes", true)
    if (content == PlanContent.Rows && statistics) node.put("column-statistics", true)
    if (everyFile) node.put("every-file", true)
    if (enforces) node.putArray("enforces").add("read-restrictions")
    val columns = node.putArray("columns")
    val own =
      if (content == PlanContent.PositionDeletes) wanted.fieldNames.toSeq else WantedColumn.names(wanted, table.schema)
    (own ++ metadata.flatMap(MetadataColumns.names)).foreach(columns.add)
    new FilterJson(table.schema).of(filters).foreach(node.set[JsonNode]("filter", _))
    node
  }

  private def judge(plan: Plan): Unit = {
    val header = plan.header
    if (header.path("table-uuid").asText != table.uuid.toString) throw changed("It was dropped and created again.")
    if (header.path("principal").asText != table.principal) throw changed("The session's user changed.")
    decided.flatMap(_.references).flatMap(WantedColumn.find(table.schema, _)).find(each => plan.masked(each.id)).foreach { column =>
      throw changed(s"The column ${column.path.head} is masked for you now.")
    }
    wanted.find(field => !agree(StructType(Seq(field)), plan.schema)).foreach { field =>
      throw changed(s"The column ${field.name}, or a part of it, was replaced by another one.")
    }
    plan.restrictions.requireFitting(table.fullName, wanted)
  }

  /** Whether all that is wanted has the same ids in the plan. */
  private def agree(ours: DataType, planned: DataType): Boolean = (ours, planned) match {
    case (struct: StructType, other: StructType) => struct.forall { field =>
        other.exists { found =>
          found.name == field.name && FieldIds.of(found) == FieldIds.of(field) && agree(field.dataType, found.dataType)
        }
      }
    case (ArrayType(element, _), other: ArrayType) => agree(element, other.elementType)
    case (MapType(key, value, _), other: MapType) => agree(key, other.keyType) && agree(value, other.valueType)
    case (primitive, other) => Seq(primitive, other).forall(_.isInstanceOf[AtomicType])
  }

  private def changed(what: String): LakewardenException = new LakewardenException(
    "TableChanged", s"The table ${table.fullName} was changed while the query was planned. $what",
    Some("table-changed"), Some("Run the query again."))
}

private object PlanRequest {
  private val json = new ObjectMapper
}

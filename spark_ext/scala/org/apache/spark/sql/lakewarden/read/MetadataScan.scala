package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.TimeUnit

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Builds the scan of a metadata table out of the columns of a query. Spark applies filters itself.
  *
  * @param schema
  *   the columns of the metadata table
  * @param identity
  *   two scans of the same are equal
  */
private[lakewarden] final class MetadataScanBuilder(
    pages: MetadataPages, schema: StructType, identity: Product, options: CaseInsensitiveStringMap)
    extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownLimit {
  private var wanted = schema
  private var limit = Option.empty[Int]

  override def pruneColumns(required: StructType): Unit = wanted = MetadataScanBuilder.pruned(schema, required)

  override def pushLimit(rows: Int): Boolean = {
    limit = Some(rows)
    true
  }

  override def isPartiallyPushed: Boolean = true

  override def build(): Scan = {
    val unknown = options.keySet.asScala.filterNot(MetadataScanBuilder.Known)
    if (unknown.nonEmpty) throw LakewardenException.notSupportedYet(
      s"The read option ${unknown.toSeq.sorted.mkString(", ")} is not supported for ${pages.name}.", "read-option",
      "Remove it. To read another state, use VERSION AS OF, TIMESTAMP AS OF, or the options snapshot-id, " +
        "as-of-timestamp, tag and branch.")
    new MetadataScan(pages, wanted, limit, identity)
  }
}

private object MetadataScanBuilder {

  /** What was used by then. */
  private val Known = Set("versionasof", "timestampasof", TableHandle.BranchOption)

  /** The columns that are required, and of structs the fields; lists and maps are read whole. */
  private def pruned(schema: StructType, required: StructType): StructType = StructType(required.map { field =>
    val known = schema(field.name)
    (known.dataType, field.dataType) match {
      case (whole: StructType, part: StructType) if part.nonEmpty => known.copy(dataType = pruned(whole, part))
      case _                                                      => known
    }
  })
}

/** One scan of a metadata table. The catalog makes the rows; they are asked for once. */
private[lakewarden] final class MetadataScan(
    pages: MetadataPages, wanted: StructType, limit: Option[Int], val identity: Product)
    extends Scan
    with Batch {
  private val session = SparkSession.active
  private lazy val asked = (System.nanoTime, session.withActive(pages.rows(wanted, limit)))

  override def readSchema(): StructType = wanted
  override def toBatch: Batch = this

  override def planInputPartitions(): Array[InputPartition] = {
    val (at, found) = asked
    val lease = new MetadataLease(pages, wanted, at, found.head.header, session)
    found.map(each => MetadataPartition(each.bytes)(lease): InputPartition).toArray
  }

  override def createReaderFactory(): PartitionReaderFactory = new MetadataReaderFactory(wanted.length)

  override def description(): String = s"${pages.name} [limit=${limit.fold("none")(_.toString)}]"

  override def equals(other: Any): Boolean = other match {
    case scan: MetadataScan => scan.same == same
    case _                  => false
  }

  override def hashCode: Int = same.hashCode

  private def same: Product = (identity, wanted, limit)
}

/** For how long rows of a metadata table can be shown without asking again, as `PlanLease` has it for files. */
private[read] final class MetadataLease(
    pages: MetadataPages, wanted: StructType, askedAt: Long, header: com.fasterxml.jackson.databind.JsonNode,
    session: SparkSession) {
  private val validNanos = TimeUnit.MILLISECONDS.toNanos(Answers.field(header, "valid-ms").longValue)
  private var asked = askedAt

  /** Throws what refuses the rows now. */
  def require(): Unit = synchronized {
    val now = System.nanoTime
    if (now - asked >= validNanos) {
      val again = session.withActive(pages.header(wanted))
      if (Answers.field(again, "policy-version") != Answers.field(header, "policy-version"))
        throw pages.changed("The policies changed.")
      asked = now
    }
  }
}

/** A page of rows.
  *
  * @param lease
  *   whether the rows can be shown still; it stays with the driver
  */
private[read] final case class MetadataPartition(bytes: Array[Byte])(@transient private val lease: MetadataLease)
    extends InputPartition {
  override def preferredLocations(): Array[String] = {
    lease.require()
    Array.empty
  }

  override def toString: String = s"MetadataPartition(${bytes.length} bytes)"
}

/** @param columns
  *   how many are read
  */
private[read] final class MetadataReaderFactory(columns: Int) extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("Metadata tables are read in batches.")

  override def createColumnarReader(partition: InputPartition): PartitionReader[
    org.apache.spark.sql.vectorized.ColumnarBatch] =
    new MetadataReader(partition.asInstanceOf[MetadataPartition].bytes, columns)
}

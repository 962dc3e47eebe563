package org.apache.spark.sql.lakewarden.read

import java.io.{ByteArrayInputStream, InputStream}

import scala.collection.mutable.ArrayBuffer
import scala.util.Using
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.SparkContext
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.schema.{FieldIds, IcebergSchema}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** A page of a metadata table.
  *
  * @param bytes
  *   its rows, as an Arrow IPC stream
  */
private[lakewarden] final case class MetadataPage(header: JsonNode, bytes: Array[Byte])

/** Asks the catalog for a metadata table, page by page.
  *
  * @param kind
  *   name of the metadata table
  * @param named
  *   the snapshot that the statement names; none: the current one
  */
private[lakewarden] final class MetadataPages(handle: TableHandle, kind: String, named: Option[Long]) {
  import MetadataPages._
  private val table = handle.table

  /** As users write it. */
  val name: String = s"${table.fullName}.$kind"

  private lazy val first = page(None, None, named, rows = false)

  /** Its columns. */
  def schema: StructType = columns(first)

  /** The snapshot that all pages are of; none for a metadata table that is of no snapshot. */
  private def snapshot: Option[Long] = Option(first.header.required("snapshot-id")).filter(_.isNumber).map(_.longValue)

  /** The pages of some columns.
    *
    * @param wanted
    *   the columns
    * @param limit
    *   how many rows are enough; none: all
    */
  def rows(wanted: StructType, limit: Option[Int] = None): Seq[MetadataPage] = {
    val names = paths(if (wanted.isEmpty) StructType(schema.take(1)) else wanted, Nil)
    def read(attempts: Int): Seq[MetadataPage] =
      try all(names, limit)
      catch { case changed: LakewardenException if changed.kind == Changed && attempts > 1 => read(attempts - 1) }
    val found = read(Attempts)
    found.foreach { each =>
      if (wanted.nonEmpty && columns(each) != wanted) throw changed("Its columns changed.")
    }
    found
  }

  /** What is said of some columns now, without rows: refused where the user may not see them any more. */
  def header(wanted: StructType): JsonNode = page(Some(paths(wanted, Nil)), None, snapshot, rows = false).header

  private def all(names: Seq[Seq[String]], limit: Option[Int]): Seq[MetadataPage] = {
    val found = new ArrayBuffer[MetadataPage]
    var (more, rows, bytes) = (true, 0L, 0L)
    while (more) {
      val next = page(Some(names), found.lastOption.map(_.header.required("next-page-token")), snapshot, rows = true)
      found += next
      rows += next.header.required("row-count").longValue
      bytes += next.bytes.length
      if (bytes > most) throw tooLarge
      more = next.header.required("next-page-token").isTextual && limit.forall(rows < _)
    }
    found.toSeq
  }

  private def page(
      names: Option[Seq[Seq[String]]], token: Option[JsonNode], snapshot: Option[Long], rows: Boolean): MetadataPage = {
    val body = json.createObjectNode.put("metadata-table", kind).put("rows", rows)
    snapshot.foreach(body.put("snapshot-id", _))
    token.foreach(body.set[JsonNode]("page-token", _))
    names.foreach(paths => body.set[JsonNode]("columns", json.valueToTree(paths.map(_.toArray).toArray)))
    val found = handle.client.stream(table.engineSegments("inspect"), body)(read)
    judge(found.header)
    found
  }

  private def read(stream: InputStream): MetadataPage = {
    val bytes = stream.readAllBytes()
    try Using.Manager { use =>
        val allocator = use(ArrowUtils.rootAllocator.newChildAllocator("lakewarden-metadata", 0, Long.MaxValue))
        val reader = use(new ArrowStreamReader(new ByteArrayInputStream(bytes), allocator))
        val said = reader.getVectorSchemaRoot.getSchema.getCustomMetadata
        MetadataPage(json.readTree(said.get("lakewarden.metadata-table")), bytes)
      }.get
    catch {
      case NonFatal(failure) => throw new LakewardenException(
          "CatalogUnavailable", s"The catalog's response is no page of $name.", Some("catalog"),
          Some("Install the plugin of the catalog's release."), failure)
    }
  }

  private def judge(header: JsonNode): Unit = {
    if (Answers.text(header, "table-uuid") != table.uuid.toString) throw changed("It was dropped and created again.")
    if (Answers.text(header, "principal") != table.principal) throw changed("The session's user changed.")
  }

  private def columns(page: MetadataPage): StructType =
    FieldIds.strip(IcebergSchema.toSpark(Answers.field(page.header, "schema")))

  def changed(what: String): LakewardenException = new LakewardenException(
    "TableChanged", s"The table ${table.fullName} was changed after the query on $name was planned. $what",
    Some("table-changed"), Some("Run the query again."))

  private def tooLarge: LakewardenException = new LakewardenException(
    "ResultTooLarge", s"The columns that the query reads of $name have more than $most bytes.",
    Some("metadata-table"),
    Some("Select fewer columns, use LIMIT, or give the driver more memory or a larger spark.driver.maxResultSize."))
}

private object MetadataPages {
  private val json = new ObjectMapper
  private val Changed = "ConcurrentModification"
  private val Attempts = 3

  /** A share of the driver's memory, and not more than Spark takes as the result of a query. */
  private def most: Long = {
    val share = Runtime.getRuntime.maxMemory / 4
    val setting = SparkContext.getOrCreate().getConf.get(MAX_RESULT_SIZE)
    if (setting > 0) math.min(share, setting) else share
  }

  /** Columns by name, and fields of structs with the names of the structs before them. */
  private def paths(schema: StructType, around: Seq[String]): Seq[Seq[String]] = schema.flatMap { field =>
    field.dataType match {
      case inner: StructType if inner.nonEmpty => paths(inner, around :+ field.name)
      case _                                   => Seq(around :+ field.name)
    }
  }
}

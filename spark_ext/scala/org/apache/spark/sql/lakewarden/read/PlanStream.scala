package org.apache.spark.sql.lakewarden.read

import java.io.{InputStream, IOException}
import java.util.{Base64, List => JList, Map => JMap}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto._
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.util.ArrowUtils

/** Reads a scan plan out of the catalog's Arrow stream.
  *
  * Source: docs/plan-format.md, "Scan plan"; tests/vectors/plans.json.
  *
  * @param table
  *   its name, for messages
  */
private[read] final class PlanStream(table: String) {
  import PlanStream._

  /** The whole plan. Throws `NotSupportedYet` for a plan that asks for what this plugin cannot do, and
    * `CatalogUnavailable` for what is no plan.
    */
  def read(stream: InputStream): Plan =
    try Using.Manager { use =>
        val allocator = use(ArrowUtils.rootAllocator.newChildAllocator("lakewarden-plan", 0, MaxBytes))
        decoded(use(new ArrowStreamReader(stream, allocator)))
      }.get
    catch {
      case known @ (_: LakewardenException | _: IOException) => throw known
      case NonFatal(failure) => throw new LakewardenException(
          "CatalogUnavailable", "The catalog's response is not a complete scan plan.", Some("catalog"),
          Some("Install the plugin of the catalog's release."), failure)
    }

  private def decoded(reader: ArrowStreamReader): Plan = {
    val batch = reader.getVectorSchemaRoot
    val said = batch.getSchema.getCustomMetadata
    val header = json.readTree(said.get("lakewarden.plan"))
    val files = new ArrayBuffer[PlannedFile]
    while (reader.loadNextBatch()) files ++= rows(batch, header.required("absent-with-values"))
    val allowed = AllowedPaths.of(header.required("allowed-paths").elements.asScala.map(_.asText).toSeq)
    val transport = Option(said.get("lakewarden.transport-key")).map(json.readTree).map(TransportKey.parse(_, "scan"))
    new Plan(header, files.toSeq, allowed, transport)
  }

  private def rows(batch: VectorSchemaRoot, absences: JsonNode): Seq[PlannedFile] = {
    val vectors = batch.getFieldVectors.asScala
    vectors.find(each => !Columns(each.getName) && each.getNullCount < batch.getRowCount)
      .foreach(each => throw unknown(s"the column ${each.getName}", "plan"))
    val columns = vectors.map(each => each.getName -> each).toMap
    (0 until batch.getRowCount).map(row => file(columns(_).getObject(row), absences))
  }

  private def file(value: String => AnyRef, absences: JsonNode): PlannedFile = {
    def valueOf[T](name: String): Option[T] = Option(value(name)).map(_.asInstanceOf[T])
    def text(name: String): Option[String] = Option(value(name)).map(_.toString)
    if (value("content") != Byte.box(0) || valueOf[JList[_]]("deletes").exists(!_.isEmpty))
      throw unknown("files with deleted rows", "deletes")
    val algorithm = text("algorithm")
    algorithm.filterNot(Algorithms).foreach(each => throw unknown(s"the algorithm $each", "algorithm"))
    PlannedFile(
      text("file_path").get,
      text("location").orElse(text("file_path")).get,
      DataFormat.named(text("file_format").get),
      valueOf[Long]("file_size_in_bytes").get,
      valueOf[Long]("record_count").get,
      algorithm,
      text("footer").map(each => Footer.named(each).getOrElse(throw unknown(s"the footer $each", "footer"))),
      valueOf[Boolean]("column_keys").getOrElse(false),
      valueOf[JList[JMap[String, _]]]("keys").toSeq.flatMap(_.asScala.map(wrappedKey)),
      valueOf[Array[Byte]]("digest").map(FileDigest.parse),
      valueOf[Array[Byte]]("footer_digest").map(FooterDigest.parse),
      absences.path(text("spec_id").get).elements.asScala.map(_.intValue).toSet)
  }

  private def wrappedKey(key: JMap[String, _]): WrappedKey = {
    val fieldIds = Option(key.get("field_ids")).toSeq.flatMap(_.asInstanceOf[JList[Integer]].asScala.map(_.intValue))
    new WrappedKey(KeyLabel(key.get("key_name").toString, fieldIds), key.get("wrapped").asInstanceOf[Array[Byte]])
  }

  private def unknown(what: String, rule: String): LakewardenException = LakewardenException.notSupportedYet(
    s"The scan plan of $table has $what, which this version of the plugin does not support.", rule,
    "Install the plugin of the catalog's release, or rewrite the table with an engine that can read it.")
}

private object PlanStream {
  private val json = new ObjectMapper
  private val Algorithms = Set("AES_GCM_V1", "AES_GCM_CTR_V1", OrcKeys.Algorithm)

  /** What a row can say; a value in any other column is refused. */
  private val Columns = Set(
    "content", "file_path", "location", "file_format", "record_count", "file_size_in_bytes", "sequence_number",
    "file_sequence_number", "split_offsets", "sort_order_id", "spec_id", "partition", "deletes", "algorithm", "footer",
    "column_keys", "keys", "digest", "footer_digest")

  /** Bytes of one batch of a plan in memory: 65,536 files with their keys are a tenth of it. */
  private val MaxBytes = 1L << 30
}

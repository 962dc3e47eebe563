package org.apache.spark.sql.lakewarden.read

import java.io.InputStream
import java.util.{Base64, List => JList, Map => JMap}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.Using

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{Footer, FooterDigest, KeyLabel, Secret, TransportKey, WrappedKey}
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.util.ArrowUtils

/** Reads a plan out of the catalog's Arrow stream.
  *
  * Source: docs/rest-api.md, "POST /engine/v1/tables/{namespace}/{table}/plan".
  *
  * @param table
  *   its name, for messages
  */
private[read] final class PlanStream(table: String) {
  import PlanStream._

  /** The whole plan; files with deletes, and such in other formats than Parquet and ORC, are `NotSupportedYet`. */
  def read(stream: InputStream): Plan =
    Using.Manager { use =>
      val allocator = use(ArrowUtils.rootAllocator.newChildAllocator("lakewarden-plan", 0, MaxBytes))
      decoded(use(new ArrowStreamReader(stream, allocator)))
    }.get

  private def decoded(reader: ArrowStreamReader): Plan = {
    val batch = reader.getVectorSchemaRoot
    val said = batch.getSchema.getCustomMetadata
    val header = json.readTree(said.get("lakewarden.plan"))
    val files = new ArrayBuffer[PlannedFile]
    val withoutLike = absences(header)
    while (reader.loadNextBatch()) files ++= rows(batch, withoutLike)
    val allowed = AllowedPaths.of(header.required("allowed-paths").elements.asScala.map(_.asText).toSeq)
    new Plan(header, files.toSeq, allowed, Option(said.get("lakewarden.transport-key")).map(transportKey))
  }

  private def rows(batch: VectorSchemaRoot, withoutLike: Int => Set[Int]): Seq[PlannedFile] = {
    val columns = batch.getFieldVectors.asScala.map(each => each.getName -> each).toMap
    (0 until batch.getRowCount).map(row => file(columns(_).getObject(row), withoutLike))
  }

  private def file(value: String => AnyRef, withoutLike: Int => Set[Int]): PlannedFile = {
    val deletes = Option(value("deletes")).exists(!_.asInstanceOf[JList[_]].isEmpty)
    if (value("content") != Byte.box(0) || deletes) throw LakewardenException.notSupportedYet(
        s"The table $table has files with deleted rows, which are not supported.", "deletes",
        "Rewrite the table with an engine that can read them.")
    val path = value("file_path").toString
    PlannedFile(
      path,
      Option(value("location")).fold(path)(_.toString),
      DataFormat.named(value("file_format").toString),
      value("file_size_in_bytes").asInstanceOf[Long],
      value("record_count").asInstanceOf[Long],
      Option(value("algorithm")).map(_.toString),
      Option(value("footer")).map(each => Footer.of(each.toString)),
      Option(value("column_keys")).exists(_.asInstanceOf[Boolean]),
      Option(value("keys")).toSeq.flatMap(_.asInstanceOf[JList[JMap[String, _]]].asScala.map(wrappedKey)),
      Option(value("digest")).map(bytes => FileDigest(bytes.asInstanceOf[Array[Byte]].toSeq)),
      Option(value("footer_digest")).map(bytes => FooterDigest.parse(bytes.asInstanceOf[Array[Byte]])),
      withoutLike(value("spec_id").asInstanceOf[Int]))
  }

  private def wrappedKey(key: JMap[String, _]): WrappedKey = {
    val fieldIds = Option(key.get("field_ids")).toSeq.flatMap(_.asInstanceOf[JList[Integer]].asScala.map(_.intValue))
    new WrappedKey(KeyLabel(key.get("key_name").toString, fieldIds), key.get("wrapped").asInstanceOf[Array[Byte]])
  }

  private def transportKey(text: String): TransportKey = {
    val node = json.readTree(text)
    def bytes(name: String): Array[Byte] = Base64.getDecoder.decode(node.required(name).textValue)
    new TransportKey(bytes("id"), "scan", new Secret(bytes("key")))
  }
}

private object PlanStream {
  private val json = new ObjectMapper

  /** Bytes of one batch of a plan in memory: 65,536 files with their keys are a tenth of it. */
  private val MaxBytes = 1L << 30

  /** By partition spec the ids of columns that a file may lack although they have values: sources of identity
    * partitions, whose values stand in the partition, and columns with a default for older files.
    */
  private def absences(header: JsonNode): Int => Set[Int] = {
    val defaults = withDefaults(header.required("schema"))
    val identity = header.required("partition-specs").elements.asScala.map { spec =>
      val fields = spec.path("fields").elements.asScala.filter(_.path("transform").asText == "identity")
      spec.required("spec-id").intValue -> fields.map(_.required("source-id").intValue).toSet
    }.toMap
    specId => identity.getOrElse(specId, Set.empty) ++ defaults
  }

  private def withDefaults(node: JsonNode): Set[Int] = {
    val hasDefault = node.hasNonNull("initial-default") && node.hasNonNull("id")
    val own = if (hasDefault) Set(node.get("id").intValue) else Set.empty[Int]
    node.elements.asScala.foldLeft(own)((known, inner) => known ++ withDefaults(inner))
  }
}

package org.apache.spark.sql.lakewarden.read

import java.io.{InputStream, IOException}
import java.util.{Base64, List => JList, Map => JMap}

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.arrow.compression.CommonsCompressionFactory
import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.dictionary.DictionaryProvider
import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto._
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.util.ArrowUtils

/** Reads a scan plan out of the catalog's Arrow stream.
  *
  * Source: docs/plan-format.md, "Scan plan"; tests/vectors/plans.json.
  *
  * @param table
  *   its name, for messages
  * @param showsPartitions
  *   whether the user sees the columns that it is or was partitioned by
  */
private[read] final class PlanStream(table: String, showsPartitions: Boolean) {
  import PlanStream._

  /** The whole plan. Throws `NotSupportedYet` for a plan that asks for what this plugin cannot do, and
    * `CatalogUnavailable` for what is no plan.
    */
  def read(stream: InputStream): Plan = read(stream, PlanContent.Rows)

  /** @param content
    *   what was asked for
    */
  def read(stream: InputStream, content: PlanContent): Plan =
    try Using.Manager { use =>
        val allocator = use(ArrowUtils.rootAllocator.newChildAllocator("lakewarden-plan", 0, MaxBytes))
        decoded(use(new ArrowStreamReader(stream, allocator, CommonsCompressionFactory.INSTANCE)), content)
      }.get
    catch {
      case known @ (_: LakewardenException | _: IOException) => throw known
      case NonFatal(failure) => throw new LakewardenException(
          "CatalogUnavailable", "The catalog's response is not a complete scan plan.", Some("catalog"),
          Some("Install the plugin of the catalog's release."), failure)
    }

  private def decoded(reader: ArrowStreamReader, content: PlanContent): Plan = {
    val batch = reader.getVectorSchemaRoot
    val said = batch.getSchema.getCustomMetadata
    val header = json.readTree(said.get("lakewarden.plan"))
    val files = new PlannedFiles(FieldIds.all(Plan.compared(header)), header, content)
    while (reader.loadNextBatch()) rows(batch, reader, known(content)).foreach(files.add)
    val allowed = AllowedPaths.of(header.required("allowed-paths").elements.asScala.map(_.asText).toSeq)
    val transport = Option(said.get("lakewarden.transport-key")).map(json.readTree).map(TransportKey.parse(_, "scan"))
    new Plan(header, files.result, allowed, transport)
  }

  /** By row the value of each column. */
  private def rows(
      batch: VectorSchemaRoot, dictionaries: DictionaryProvider, known: Set[String]): Iterator[String => AnyRef] = {
    val vectors = batch.getFieldVectors.asScala
    vectors.find(each => !known(each.getName) && each.getNullCount < batch.getRowCount)
      .foreach(each => throw unknown(s"the column ${each.getName}", "plan"))
    val columns = vectors.map(each => each.getName -> each).toMap
    val paths = PlannedPaths.of(columns("directory"), columns("file_name"), dictionaries)
    (0 until batch.getRowCount).iterator.map { row =>
      {
        case "file_path" => paths(row)
        case column      => columns(column).getObject(row)
      }
    }
  }

  /** The files of a plan, row after row. Rows name delete files by their numbers, which may be those of later rows.
    *
    * @param comparable
    *   ids of the columns that equality deletes can compare
    * @param header
    *   the plan's
    */
  private final class PlannedFiles(comparable: Set[Int], header: JsonNode, content: PlanContent) {
    private val data = new ArrayBuffer[(PlannedFile, Seq[Int], Seq[Int])]
    private val (ofDeletes, ofChanges) = (content == PlanContent.PositionDeletes, content == PlanContent.Changes)
    private val deletes = mutable.Map.empty[Int, PlannedFile]

    def add(value: String => AnyRef): Unit = {
      val number = data.size + deletes.size
      value("content") match {
        case Content(0) if ofChanges =>
          val changed = file(value, header).copy(change = Some(change(value)))
          data += ((changed, numbers(value("deletes")), numbers(value("deleted_by"))))
        case Content(0) if !ofDeletes => data += ((file(value, header), numbers(value("deletes")), Nil))
        case Content(1) if ofDeletes => data += ((file(value, header).copy(withoutLike = Set.empty), Nil, Nil))
        case other if ofDeletes      => throw unknown(s"a file with content $other", "deletes")
        case Content(1) =>
          require(numbers(value("equality_ids")).isEmpty, "a position delete that compares columns")
          deletes(number) = file(value, header).copy(withoutLike = Set.empty)
        case Content(2) =>
          val compared = numbers(value("equality_ids"))
          require(compared.nonEmpty && compared.forall(comparable), "the columns of an equality delete")
          // A delete file without a column that it compares would delete rows without a value.
          deletes(number) = file(value, header).copy(equalityIds = compared, withoutLike = compared.toSet)
        case other => throw unknown(s"a file with content $other", "deletes")
      }
    }

    def result: Seq[PlannedFile] = {
      val applied = data.iterator.flatMap(each => each._2 ++ each._3).toSet
      require(deletes.keySet.subsetOf(applied), "a delete file that applies to nothing")
      data.toSeq.map { case (file, applying, by) =>
        file.copy(deletes = applying.map(deletes), deletedBy = by.map(deletes))
      }
    }

    private def numbers(list: AnyRef): Seq[Int] =
      Option(list).toSeq.flatMap(_.asInstanceOf[JList[Integer]].asScala.map(_.intValue))
  }

  private def file(value: String => AnyRef, header: JsonNode): PlannedFile = {
    val absences = header.required("absent-with-values")
    def valueOf[T](name: String): Option[T] = Option(value(name)).map(_.asInstanceOf[T])
    def text(name: String): Option[String] = Option(value(name)).map(_.toString)
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
      absences.path(text("spec_id").get).elements.asScala.map(_.intValue).toSet,
      valueOf[Int]("spec_id").get,
      text("partition").get,
      sequence = valueOf[Long]("file_sequence_number").getOrElse(0L),
      sortOrderId = valueOf[Int]("sort_order_id").getOrElse(0),
      isPlaced = showsPartitions && header.required("read-restrictions").isNull)
  }

  private def change(value: String => AnyRef): RowChange = {
    val inserted = value("change_type") match {
      case Content(0) => true
      case Content(1) => false
      case other      => throw unknown(s"the change $other", "changes")
    }
    RowChange(
      inserted, value("change_ordinal").asInstanceOf[Int], value("commit_snapshot_id").asInstanceOf[Long],
      value("commit_timestamp_ms").asInstanceOf[Long])
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

  /** The content of a file, as manifests number it. */
  private object Content {
    def unapply(said: AnyRef): Option[Int] = Option(said).collect { case number: java.lang.Byte => number.intValue }
  }

  private val json = new ObjectMapper
  private val Algorithms = Set("AES_GCM_V1", "AES_GCM_CTR_V1", OrcKeys.Algorithm)

  /** What a row can say; a value in any other column is refused. */
  private val Columns = Set(
    "content", "directory", "file_name", "location", "file_format", "record_count", "file_size_in_bytes", "sequence_number",
    "file_sequence_number", "split_offsets", "sort_order_id", "spec_id", "partition", "deletes", "equality_ids",
    "algorithm", "footer", "column_keys", "keys", "digest", "footer_digest")

  /** What a row of a plan of changes can say as well. */
  private val OfChanges =
    Set("change_type", "change_ordinal", "commit_snapshot_id", "commit_timestamp_ms", "deleted_by")

  private def known(content: PlanContent): Set[String] =
    if (content == PlanContent.Changes) Columns ++ OfChanges else Columns

  /** Bytes of one batch of a plan in memory: 65,536 files with their keys are a tenth of it. */
  private val MaxBytes = 1L << 30
}

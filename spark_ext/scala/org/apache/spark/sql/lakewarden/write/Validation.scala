package org.apache.spark.sql.lakewarden.write

import java.util.Locale

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.LoadedTable
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Against which commits of others a removal by filter or partitions is validated.
  *
  * @param base
  *   the snapshot that the statement saw; none: the table was empty
  * @param isolation
  *   none: the removal is decided when it is committed
  */
final case class Validation(base: Option[Long], isolation: Option[String] = None) {
  def put(body: ObjectNode): Unit = {
    base.foreach(body.put("base-snapshot-id", _))
    isolation.foreach(body.put("isolation-level", _))
  }
}

object Validation {
  val (isolationOption, baseOption) = ("isolation-level", "validate-from-snapshot-id")
  private val Levels = Set("serializable", "snapshot")

  /** As Iceberg's write options say. Throws `RequestInvalid` for values that it does not know. */
  def of(table: LoadedTable, options: CaseInsensitiveStringMap): Validation = {
    val level = Option(options.get(isolationOption)).map(_.toLowerCase(Locale.ROOT))
    level.filterNot(Levels).foreach(each => throw invalid(isolationOption, each, "serializable or snapshot"))
    val base = Option(options.get(baseOption)).map { text =>
      text.toLongOption.getOrElse(throw invalid(baseOption, text, "the id of a snapshot"))
    }
    if (base.nonEmpty && level.isEmpty) throw new LakewardenException(
      "RequestInvalid", s"The write option $baseOption has no effect without $isolationOption.", Some("write-option"),
      Some(s"Add $isolationOption, or remove $baseOption."))
    Validation(base.orElse(table.snapshotId), level)
  }

  private def invalid(name: String, value: String, expected: String): LakewardenException = new LakewardenException(
    "RequestInvalid", s"'${value.take(80)}' is not a value of the write option $name.", Some("write-option"),
    Some(s"Use $expected."))
}

package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** How the position delete files of a write are written (docs/plan-format.md, "Position delete files").
  *
  * @param perFile
  *   whether each is for one data file; else for the data files of one partition
  */
final class DeleteForm(val format: DataFormat, val perFile: Boolean, val encryption: Option[WriteEncryption])

object DeleteForm {

  /** The columns of a position delete file (Iceberg table specification, "Position Delete Files"). */
  val Schema: StructType = StructType(Seq(
    FieldIds.put(StructField("file_path", StringType, nullable = false), 2147483546, Map.empty),
    FieldIds.put(StructField("pos", LongType, nullable = false), 2147483545, Map.empty)))

  /** Throws `NotSupportedYet` for what this writer does not write.
    *
    * @param encryption
    *   reads how the files are encrypted
    */
  private[write] def parse(node: JsonNode, encryption: JsonNode => WriteEncryption): DeleteForm = {
    val (format, granularity) = (Answers.text(node, "format"), Answers.text(node, "granularity"))
    val known = DataFormat.All.find(_.name == format).getOrElse(throw unsupported(s"the format $format"))
    if (granularity != "file" && granularity != "partition") throw unsupported(s"the granularity $granularity")
    val how = Option(Answers.field(node, "encryption")).filterNot(_.isNull).map(encryption)
    if (how.exists(_.columns.nonEmpty)) throw unsupported("column keys")
    new DeleteForm(known, granularity == "file", how)
  }

  private def unsupported(what: String): LakewardenException = LakewardenException.notSupportedYet(
    s"Writing delete files with $what is not supported in Spark.", "write-encryption",
    "Set write.delete.format.default=parquet, or the mode of the command to copy-on-write.")
}

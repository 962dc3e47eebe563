package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.lakewarden.LakewardenException

/** One data file while it is written. */
private[write] trait DataFile {
  def write(row: InternalRow): Unit

  /** Whether the file has the size that the table asks for; may be asked after each row. */
  def isFull: Boolean

  /** Ends the file.
    *
    * @return the file as the commit takes it (docs/rest-api.md, "Engines"), still without its partition
    */
  def close(): ObjectNode

  /** Ends the file in whatever state it is; nobody will read it. */
  def abandon(): Unit
}

/** The format of a table's new files.
  *
  * @param name
  *   as properties and manifests spell it; the ending of the files' names too
  */
sealed abstract class DataFormat(val name: String) {
  private[write] def start(template: FileTemplate, location: String): DataFile
}

object DataFormat {
  case object Parquet extends DataFormat("parquet") {
    private[write] override def start(template: FileTemplate, location: String): DataFile =
      new ParquetFile(template, location)
  }

  case object Orc extends DataFormat("orc") {
    private[write] override def start(template: FileTemplate, location: String): DataFile =
      new OrcFile(template, location)
  }

  val All: Seq[DataFormat] = Seq(Parquet, Orc)

  /** The format of this name. Throws `NotSupportedYet` for any other than Parquet and ORC. */
  def named(name: String): DataFormat = All.find(_.name.equalsIgnoreCase(name))
    .getOrElse(throw LakewardenException.notSupportedYet(
      s"Files in the format $name are not supported.", "file-format",
      "Rewrite the table with an engine that can read them."))

  /** The table property that says it. */
  val Property = "write.format.default"
}

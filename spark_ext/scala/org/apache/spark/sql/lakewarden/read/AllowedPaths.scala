package org.apache.spark.sql.lakewarden.read

import java.util.{List => JList}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.lakewarden.LakewardenException

/** Below which locations the files of a table may lie: the list in force, as the catalog sent it.
  *
  * A path is inside if it is spelled canonically and lies below an entry by whole segments. An empty list allows
  * nothing.
  */
private[lakewarden] final class AllowedPaths private (entries: Seq[Location]) extends Serializable {

  /** The location of a file that is inside; any other is refused.
    *
    * @param path
    *   its canonical spelling
    * @param table
    *   its name, for the message
    */
  def check(path: String, table: String): Location =
    find(path).getOrElse(throw new LakewardenException(
      "LocationNotAllowed",
      s"A data file of $table is outside the table's allowed locations: ${AllowedPaths.told(path)}",
      Some("allowed-paths"),
      Some("Ask the owner to add the location to read.allowed.data.paths, or to remove the file.")))

  private def find(path: String): Option[Location] =
    Location.of(path).filter(each => each.namesObject && entries.exists(_.contains(each)))
}

private[lakewarden] object AllowedPaths {
  private val ShownCharacters = 300

  /** Throws `LocationInvalid` if an entry is no canonical location. */
  def of(entries: Seq[String]): AllowedPaths = new AllowedPaths(entries.map { each =>
    Location.of(each).getOrElse(throw new LakewardenException(
      "LocationInvalid", s"An allowed location of the scan plan is not canonical: ${told(each)}",
      Some("location-invalid"), Some("Install the plugin of the catalog's release.")))
  })

  /** One byte a path, 1 where it may be read: by this the answers are compared with the catalog's own, in bulk. */
  def decideAll(entries: JList[String], paths: JList[String]): Array[Byte] = {
    val allowed = of(entries.asScala.toSeq)
    paths.asScala.map(path => if (allowed.find(path).nonEmpty) 1.toByte else 0.toByte).toArray
  }

  /** A path of the table's metadata as messages show it: cut short. */
  def shown(path: String): String =
    if (path.length <= ShownCharacters) path else path.take(ShownCharacters) + "…"

  /** A path that was refused: of one that is not canonical nothing, since it can hold anything. */
  private def told(path: String): String = Location.of(path).fold("(not a canonical location)")(_ => shown(path))
}

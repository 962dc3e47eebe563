package org.apache.spark.sql.lakewarden.read

import java.util.{List => JList}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.lakewarden.LakewardenException

/** Below which locations the files of a table may lie: the list in force, as the catalog sent it.
  *
  * A path is inside if it is an unambiguous location and lies below an entry by whole segments. An empty list
  * allows nothing.
  */
private[lakewarden] final class AllowedPaths private (entries: Seq[Location]) extends Serializable {

  /** Whether a file may be read from here. */
  def allows(path: String): Boolean = find(path).nonEmpty

  /** The location of a path that is inside; any other is refused.
    *
    * @param table
    *   its name, for the message
    */
  def check(path: String, table: String): Location =
    find(path).getOrElse(throw new LakewardenException(
      "LocationNotAllowed",
      s"A data file of $table is outside the table's allowed locations: ${AllowedPaths.shown(path)}",
      Some("allowed-paths"),
      Some("Ask the owner to add the location to read.allowed.data.paths, or to remove the file.")))

  private def find(path: String): Option[Location] =
    Location.parse(path).filter(each => each.namesObject && entries.exists(_.contains(each)))
}

private[lakewarden] object AllowedPaths {
  private val ShownCharacters = 300

  // What may be a user and password. A container before an account is none, nor is the port of a Hadoop host.
  private val NoCredentials = "(?:abfss?|wasbs?)://[^/:@]*@[^/:@]*(?:/|\\z)|(?:hdfs|viewfs)://[^/:@]*:[0-9]*(?:/|\\z)"
  private val Credentials = s"(?s)^(?!$NoCredentials)([^:/]*:)//[^/]*[:@].*".r
  // The same where scheme or slashes are not written as they should be.
  private val Scheme = "(?>(?:[^:/\\\\@]*:){0,8}(?=[/\\\\])|[^:/\\\\@]*:|)"
  private val Misplaced = s"(?s)^(?!$NoCredentials)($Scheme(?>[/\\\\]*))[^:/\\\\@]*(?:@|:.*@).*".r

  /** Throws `LocationInvalid` if an entry is no location. */
  def of(entries: Seq[String]): AllowedPaths = new AllowedPaths(entries.map { each =>
    Location.parse(each).getOrElse(throw new LakewardenException(
      "LocationInvalid", s"An allowed location is malformed or ambiguous: ${shown(each)}", Some("location-invalid")))
  })

  /** One byte a path, 1 where it may be read: by this the answers are held to the catalog's own, in bulk. */
  def decideAll(entries: JList[String], paths: JList[String]): Array[Byte] = {
    val allowed = of(entries.asScala.toSeq)
    paths.asScala.map(path => if (allowed.allows(path)) 1.toByte else 0.toByte).toArray
  }

  /** A path as messages show it: cut short, on one line, without credentials or query. */
  def shown(path: String): String = {
    val bare = Misplaced.replaceFirstIn(Credentials.replaceFirstIn(path.takeWhile(_ != '?'), "$1//***"), "$1***")
    val cut = if (bare.length <= ShownCharacters) bare else bare.take(ShownCharacters) + "…"
    cut.map(each => if (LocationName.hasForbidden(each.toString)) '?' else each)
  }
}

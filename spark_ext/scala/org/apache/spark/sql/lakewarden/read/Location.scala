package org.apache.spark.sql.lakewarden.read

import java.nio.charset.StandardCharsets.UTF_8

/** A file or directory by its one canonical spelling, such as `s3://bucket/a/b` or `file:///a/b`.
  *
  * The catalog parses locations and sends them canonically spelled. Nothing is parsed or repaired here: what the catalog
  * would have spelled otherwise, or refused, is no location.
  *
  * Source: policy/location, the one parser; tests/spark/test_read_locations.py compares the two.
  */
private[lakewarden] final case class Location private (canonical: String) {

  /** Whether it has a path: a whole bucket is no object. */
  def namesObject: Boolean = canonical.indexOf('/', canonical.indexOf("://") + 3) > 0

  /** Whether it is a file of this machine. */
  def isLocal: Boolean = canonical.startsWith("file:")

  /** The names from the root down, exactly as written. */
  def segments: Seq[String] = canonical.split("/", -1).toSeq.drop(3)

  /** Whether `other` is this location or lies below it, by whole segments: `/a/t1` does not contain `/a/t10`. */
  def contains(other: Location): Boolean = s"${other.canonical}/".startsWith(s"$canonical/")
}

private[lakewarden] object Location {
  private val MaxCharacters = 4200

  /** The most bytes that a path, and one name, can have; whether a location may have no path. */
  private final case class Bounds(path: Int, name: Int, root: Boolean)
  private val (inStore, inDirectories) = (Bounds(1024, 1024, root = true), Bounds(4094, 255, root = false))

  /** What stands before the path. No user or password fits in it. */
  private val Root =
    "(?:(file)://|(s3|gs|oss)://[a-z0-9._-]+|(abfss|wasbs)://[a-z0-9$-]+@[a-z0-9.-]+|(hdfs|viewfs)://[a-z0-9._-]+(?::[0-9]+)?)"
      .r

  /** The location of this spelling; none if the spelling is not canonical. */
  def of(text: String): Option[Location] = for {
    root <- Root.findPrefixMatchOf(text)
    scheme = root.subgroups.find(_ != null).get
    path = text.substring(root.end)
    if text.length <= MaxCharacters && isPath(path, scheme, bounds(scheme))
  } yield Location(text)

  private def bounds(scheme: String): Bounds = scheme match {
    case "file" | "hdfs" | "viewfs" => inDirectories
    case "oss" => Bounds(1023, 1023, root = true)
    case _ => inStore
  }

  private def isPath(path: String, scheme: String, bounds: Bounds): Boolean =
    if (path.isEmpty) bounds.root
    else {
      val (names, size) = (path.split("/", -1), bytes(path))
      val finalDots = scheme != "abfss" && scheme != "wasbs"
      names.head.isEmpty && size - 1 <= bounds.path && !LocationName.isBlank(path.last) &&
      names.tail.forall { name =>
        LocationName.isFit(name) && (size <= bounds.name || bytes(name) <= bounds.name) &&
        (finalDots || !LocationName.hasFinalDot(name))
      }
    }

  private def bytes(text: String): Int = text.getBytes(UTF_8).length
}

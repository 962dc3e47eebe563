package org.apache.spark.sql.lakewarden.read

import java.nio.charset.StandardCharsets.UTF_8
import java.util.regex.Pattern

/** A file or directory by its one canonical spelling, such as `s3://bucket/a/b` or `file:///a/b`.
  *
  * Locations are byte-literal: what is ambiguous is refused, never repaired. Equal by meaning are `s3`, `s3a` and
  * `s3n`, `file:/x` and `file:///x`, and a trailing slash.
  *
  * Source: policy/location.py, which is the rule book; tests/vectors/locations.json holds the two together.
  */
private[lakewarden] final case class Location private (scheme: String, canonical: String) {

  /** Whether it has a path: a whole bucket is no object. */
  def namesObject: Boolean = canonical.indexOf('/', scheme.length + 3) >= 0

  /** Whether it is a file of this machine. */
  def isLocal: Boolean = scheme == "file"

  /** The names from the root down, exactly as written. */
  def segments: Seq[String] = canonical.substring(scheme.length + 3).split('/').toSeq.tail

  /** Whether `other` is this location or lies below it, by whole segments: `/a/t1` does not contain `/a/t10`. */
  def contains(other: Location): Boolean = s"${other.canonical}/".startsWith(s"$canonical/")
}

private[lakewarden] object Location {
  private val MaxCharacters = 4200
  private val DriveLetter = "(?s)[A-Za-z][:|].*".r

  /** What sets one scheme apart: bounds in bytes of UTF-8, and whether a location may have no path. */
  private final case class Rules(
      name: String, authority: Pattern, maxPath: Int, maxName: Int, rootAllowed: Boolean, driveLetters: Boolean)

  private val Bucket = Pattern.compile(
    "(?![^/]*\\.\\.)(?![0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+\\z)[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
  private val S3 = Rules("s3", Bucket, 1024, 1024, rootAllowed = true, driveLetters = false)
  private val Local = Rules("file", Pattern.compile(""), 4094, 255, rootAllowed = false, driveLetters = true)
  private val Schemes = Map("s3" -> S3, "s3a" -> S3, "s3n" -> S3, "file" -> Local)

  /** The location that a text names; none if it is malformed or ambiguous, or its scheme is not known. */
  def parse(text: String): Option[Location] =
    for {
      rules <- Option(text).filter(isClean).flatMap(each => Schemes.get(each.takeWhile(_ != ':')))
      rest = text.substring(text.indexOf(':') + 1)
      (authority, path) <- split(rest)
      if rules.authority.matcher(authority).matches() && (path.isEmpty || path.startsWith("/"))
      bare = path.stripSuffix("/")
      if isFitPath(rules, bare)
    } yield Location(rules.name, s"${rules.name}://$authority$bare")

  private def isClean(text: String): Boolean =
    text.contains(':') && text.codePointCount(0, text.length) <= MaxCharacters &&
      !LocationName.hasForbidden(text) && !text.exists(each => each == '\\' || each == '?' || each == '#')

  /** What stands after the scheme as authority and path. */
  private def split(rest: String): Option[(String, String)] =
    if (!rest.startsWith("//")) Some(("", rest))
    else Some(rest.substring(2).span(_ != '/'))

  private def isFitPath(rules: Rules, path: String): Boolean =
    if (path.isEmpty) rules.rootAllowed
    else {
      val names = path.substring(1).split("/", -1)
      !isBlank(path.last) && bytes(path) - 1 <= rules.maxPath &&
      names.forall(each => LocationName.isFit(each) && bytes(each) <= rules.maxName) &&
      !(rules.driveLetters && LocationName.decodeFully(names.head).forall(DriveLetter.matches))
    }

  private def bytes(text: String): Int = text.getBytes(UTF_8).length

  private def isBlank(character: Char): Boolean =
    Character.isWhitespace(character) || Character.isSpaceChar(character)
}

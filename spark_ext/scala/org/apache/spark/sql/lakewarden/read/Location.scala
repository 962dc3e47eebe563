package org.apache.spark.sql.lakewarden.read

import java.nio.charset.StandardCharsets.UTF_8

/** A file or directory by its one canonical spelling, such as `s3://bucket/a/b` or `file:///a/b`.
  *
  * Locations are byte-literal: what is ambiguous is refused, never repaired. Equal by meaning are the spellings of
  * one scheme (`s3`, `s3a` and `s3n`), `file:/x` and `file:///x`, the case of a host, and a trailing slash.
  *
  * Source: policy/location/location.py, which is the rule book; tests/vectors/locations.json holds the two together.
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

  /** The location that a text names; none if it is malformed or ambiguous, or its scheme is not known. */
  def parse(text: String): Option[Location] =
    for {
      scheme <- Option(text).filter(isClean).flatMap(each => LocationScheme.of(each.takeWhile(_ != ':')))
      (written, path) <- split(text.substring(text.indexOf(':') + 1))
      authority <- scheme.spelled(written)
      bare = path.stripSuffix("/")
      if (path.isEmpty || path.startsWith("/")) && isFitPath(scheme, bare)
    } yield Location(scheme.name, s"${scheme.name}://$authority$bare")

  private def isClean(text: String): Boolean =
    text.contains(':') && text.codePointCount(0, text.length) <= MaxCharacters &&
      !LocationName.hasForbidden(text) && !text.exists(each => each == '\\' || each == '?' || each == '#')

  /** What stands after the scheme as authority and path. */
  private def split(rest: String): Option[(String, String)] =
    if (!rest.startsWith("//")) Some(("", rest))
    else Some(rest.substring(2).span(_ != '/'))

  private def isFitPath(scheme: LocationScheme, path: String): Boolean =
    if (path.isEmpty) scheme.rootAllowed
    else {
      val names = path.substring(1).split("/", -1)
      !isBlank(path.last) && bytes(path) - 1 <= scheme.maxPath && names.forall(isFitName(scheme, _)) &&
      isFitFirst(scheme, names.head)
    }

  private def isFitName(scheme: LocationScheme, name: String): Boolean =
    LocationName.isFit(name) && bytes(name) <= scheme.maxName &&
      (scheme.finalDots || !LocationName.hasFinalDot(name))

  private def isFitFirst(scheme: LocationScheme, name: String): Boolean =
    LocationName.decodeFully(name).exists { decoded =>
      !(scheme.driveLetters && DriveLetter.matches(decoded)) &&
      !scheme.reserved.contains(decoded.takeWhile(_ != '/'))
    }

  private def bytes(text: String): Int = text.getBytes(UTF_8).length

  private def isBlank(character: Char): Boolean =
    Character.isWhitespace(character) || Character.isSpaceChar(character)
}

package org.apache.spark.sql.lakewarden.read

import java.nio.ByteBuffer
import java.nio.charset.{CharacterCodingException, Charset}
import java.nio.charset.StandardCharsets.{UTF_16BE, UTF_8}
import java.text.Normalizer
import java.util.HexFormat
import java.util.regex.{Matcher, Pattern}

/** Whether one name (path segment) of a location is one that the catalog lets pass.
  *
  * A name is bytes, kept exactly as written. It is refused if some reader could take it for something other than one
  * plain name below its parent. So it is looked at as the most decoding of all readers would see it: percent-decoded
  * until nothing changes, compatibility forms folded. Seen that way it has no dot segment, no slash in front, no control
  * or format character, and no malformed UTF-8. An encoded slash inside passes.
  *
  * Source: policy/location/segments.py. Java's own Unicode tables decide here; a character that they do not know is
  * refused outside of the blocks of pictographs, since it could not be folded.
  */
private[lakewarden] object LocationName {
  private val MaxDecodings = 8
  private val Plain = Pattern.compile("[0-9A-Za-z_=][0-9A-Za-z_=.-]*")

  // Slashes and backslashes as NFKC leaves them, and confusables that best-fit conversions turn into them.
  private val Separators = "/\\\\\\u2044\\u2215\\u2216\\u29f5\\u29f8\\u29f9"
  private val Absolute = Pattern.compile(s"[$Separators]")
  private val FinalDot = Pattern.compile(s"\\.(?:\\z|[$Separators])")
  private val DotSegment = dotsBetween("")
  // Globbing readers expand braces, and `{x,..}` has a dot segment among its alternatives.
  private val DotAlternative = dotsBetween(",{}")
  private val Delimiters = Pattern.compile("[\\\\?#]")

  // `%u002e` is an escape in no standard; some decoders take it all the same.
  private val WideEscape = "%[uU]([0-9A-Fa-f]{4})".r
  private val Escapes = "(?:%[0-9A-Fa-f]{2})+".r

  // The joiner between two pictographs (a family), and the tags of a flag (Scotland). Source: UTS 51.
  private val Pictograph = "[\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u21ff\\u2300-\\u23ff\\u24c2\\u25a0-\\u27bf" +
    "\\u2900-\\u297f\\u2b00-\\u2bff\\u3030\\u303d\\u3297\\u3299\\x{1f000}-\\x{1faff}]"
  private val EmojiFormats = Pattern.compile(
    s"($Pictograph\\x{fe0f}?)\\u200d(?=$Pictograph)|" +
      "(\\x{1f3f4})[\\x{e0030}-\\x{e0039}\\x{e0061}-\\x{e007a}]{3,6}\\x{e007f}")
  private val Forbidden =
    Pattern.compile(s"[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\x{e0000}-\\x{e00ff}]|(?!$Pictograph)\\p{Cn}")

  /** Whether `name` can be one segment of a location. */
  def isFit(name: String): Boolean =
    Plain.matcher(name).matches() ||
      name.nonEmpty && isClean(name) && !Delimiters.matcher(name).find() && decoded(name).exists(isFitDecoded)

  /** Whether a fit name, or a part of it before a slash, ends in a dot once it is decoded. */
  def hasFinalDot(name: String): Boolean = decoded(name).exists(FinalDot.matcher(_).find())

  /** Whether readers that trim would cut the character off. */
  def isBlank(last: Char): Boolean = Character.isWhitespace(last) || Character.isSpaceChar(last)

  /** Whether the text has no control, format or separator character, no surrogate and no noncharacter. */
  def isClean(text: String): Boolean =
    !Forbidden.matcher(EmojiFormats.matcher(text).replaceAll("$1$2")).find()

  private def isFitDecoded(name: String): Boolean = {
    val dots = if (name.exists(each => each == '{' || each == '}')) DotAlternative else DotSegment
    isClean(name) && !dots.matcher(name).find() && !Absolute.matcher(name).lookingAt()
  }

  /** As the most decoding of all readers would see the name; none if it is not UTF-8 or encoded too often. */
  private def decoded(name: String): Option[String] =
    try {
      val rounds = LazyList.iterate(name)(decodedOnce).take(MaxDecodings + 1)
      rounds.zip(rounds.tail).collectFirst { case (before, after) if before == after => after }
    } catch { case _: CharacterCodingException => None }

  private def decodedOnce(name: String): String = {
    val folded = Normalizer.normalize(name, Normalizer.Form.NFKC)
    val narrow = WideEscape.replaceAllIn(folded, found => text(HexFormat.of.parseHex(found.group(1)), UTF_16BE))
    Escapes.replaceAllIn(narrow, found => text(HexFormat.of.withPrefix("%").parseHex(found.matched), UTF_8))
  }

  /** The text of decoded bytes, as a replacement. Throws where they are malformed. */
  private def text(bytes: Array[Byte], charset: Charset): String =
    Matcher.quoteReplacement(charset.newDecoder.decode(ByteBuffer.wrap(bytes)).toString)

  /** A dot segment between separators, also when a reader trims blanks or cuts `;parameters` off. */
  private def dotsBetween(more: String): Pattern =
    Pattern.compile(s"(?U)(?:\\A|[$more$Separators])[\\s+]*\\.{1,2}[\\s+]*(?:\\z|[;$more$Separators])")
}

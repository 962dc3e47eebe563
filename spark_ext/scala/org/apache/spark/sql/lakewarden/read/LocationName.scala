package org.apache.spark.sql.lakewarden.read

import java.nio.ByteBuffer
import java.nio.charset.{CharacterCodingException, CodingErrorAction}
import java.nio.charset.StandardCharsets.UTF_8
import java.text.Normalizer
import java.util.regex.{Matcher, Pattern}

import scala.annotation.tailrec

/** What one name (path segment) of a location may be.
  *
  * A name is bytes, kept exactly as written. It is refused if any reader could take it for something other than
  * one plain name below its parent; so it is looked at as the most decoding of all readers would see it:
  * percent-decoded until nothing changes, compatibility forms folded. Seen that way it may have no dot segment,
  * no slash in front, no control or format character, no malformed UTF-8. An encoded slash inside passes.
  *
  * Source: policy/location/segments.py, which is the rule book. Stricter in one point: a character that this JVM's
  * Unicode tables do not know is refused outside the blocks of pictographs, since the JVM could not fold it.
  */
private[read] object LocationName {
  private val MaxDecodings = 8

  // Blanks as Python's \s has them.
  private val Blanks = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
  // Slashes and backslashes as NFKC leaves them, and confusables that best-fit conversions turn into them.
  private val Separators = "/\\\\\\u2044\\u2215\\u2216\\u29f5\\u29f8\\u29f9"
  // A dot segment, also when a reader trims blanks (`+` is one in form encoding) or cuts `;parameters` off.
  private val Dots = s"[$Blanks+]*\\.{1,2}[$Blanks+]*"
  private val DotSegment = Pattern.compile(s"(?:\\A|[$Separators])$Dots(?:\\z|[;$Separators])")
  // Globbing readers expand braces, and `{x,..}` has a dot segment among its alternatives.
  private val DotAlternative = Pattern.compile(s"(?:\\A|[,{}$Separators])$Dots(?:\\z|[;,{}$Separators])")
  private val Absolute = Pattern.compile(s"[$Separators]")
  private val FinalDot = Pattern.compile(s"\\.(?:\\z|[$Separators])")
  // No escape in any standard; some decoders take it all the same.
  private val WideEscape = Pattern.compile("%[uU]([0-9A-Fa-f]{4})")
  private val Plain = Pattern.compile("[0-9A-Za-z_=][0-9A-Za-z_=.-]*")

  // Format characters (Cf), the block of tags, and the separators of lines and paragraphs.
  private val Formats = ranges(
    0xad -> 0xad, 0x600 -> 0x605, 0x61c -> 0x61c, 0x6dd -> 0x6dd, 0x70f -> 0x70f, 0x890 -> 0x891,
    0x8e2 -> 0x8e2, 0x180e -> 0x180e, 0x200b -> 0x200f, 0x2028 -> 0x202e, 0x2060 -> 0x206f, 0xfeff -> 0xfeff,
    0xfff9 -> 0xfffb, 0x110bd -> 0x110bd, 0x110cd -> 0x110cd, 0x13430 -> 0x1343f, 0x1bca0 -> 0x1bca3,
    0x1d173 -> 0x1d17a, 0xe0000 -> 0xe00ff)
  private val Pictographs = ranges(
    0xa9 -> 0xa9, 0xae -> 0xae, 0x203c -> 0x203c, 0x2049 -> 0x2049, 0x2122 -> 0x2122, 0x2139 -> 0x2139,
    0x2190 -> 0x21ff, 0x2300 -> 0x23ff, 0x24c2 -> 0x24c2, 0x25a0 -> 0x27bf, 0x2900 -> 0x297f,
    0x2b00 -> 0x2bff, 0x3030 -> 0x3030, 0x303d -> 0x303d, 0x3297 -> 0x3297, 0x3299 -> 0x3299,
    0x1f000 -> 0x1faff)
  private val FlagTags = ranges(0xe0030 -> 0xe0039, 0xe0061 -> 0xe007a)
  private val (joiner, emojiVariant, blackFlag, lastTag) = (0x200d, 0xfe0f, 0x1f3f4, 0xe007f)

  /** Whether the text has a control, format or separator character, a surrogate or a noncharacter.
    *
    * The joiners and tags inside an emoji are no such characters; anywhere else they are.
    */
  def hasForbidden(text: String): Boolean =
    !text.forall(each => each >= 0x20 && each < 0x7f) && {
      val characters = text.codePoints().toArray
      characters.indices.exists { at =>
        isForbidden(characters(at)) && !joinsEmoji(characters, at) && !isInFlag(characters, at)
      }
    }

  /** Whether `name` can be one segment of a location. */
  def isFit(name: String): Boolean =
    Plain.matcher(name).matches() ||
      name.nonEmpty && !hasForbidden(name) && decodeFully(name).exists(isFitDecoded)

  /** Whether a fit name, or a part of it before a slash, ends in a dot once it is decoded. */
  def hasFinalDot(name: String): Boolean = decodeFully(name).exists(FinalDot.matcher(_).find())

  /** The name as the most decoding of all readers would see it; none if it is not UTF-8 or encoded too often. */
  def decodeFully(name: String): Option[String] = decode(name, MaxDecodings)

  @tailrec
  private def decode(name: String, rounds: Int): Option[String] = {
    val folded = Normalizer.normalize(name, Normalizer.Form.NFKC)
    if (rounds == 0) None
    else if (!folded.contains('%')) Some(folded)
    else decodeOnce(folded) match {
      case Some(decoded) if decoded != name => decode(decoded, rounds - 1)
      case found => found
    }
  }

  private def isFitDecoded(decoded: String): Boolean = {
    val dots = if (decoded.exists(each => each == '{' || each == '}')) DotAlternative else DotSegment
    !hasForbidden(decoded) && !dots.matcher(decoded).find() && !Absolute.matcher(decoded).lookingAt()
  }

  private def decodeOnce(text: String): Option[String] = {
    val escapes = WideEscape.matcher(text)
    val wide = new java.lang.StringBuilder
    while (escapes.find()) {
      val character = Integer.parseInt(escapes.group(1), 16).toChar
      if (character.isSurrogate) return None
      escapes.appendReplacement(wide, Matcher.quoteReplacement(character.toString))
    }
    decodePercent(escapes.appendTail(wide).toString.getBytes(UTF_8))
  }

  private def decodePercent(bytes: Array[Byte]): Option[String] = {
    val decoded = ByteBuffer.allocate(bytes.length)
    var at = 0
    while (at < bytes.length) {
      val (value, length) = escapeAt(bytes, at).fold((bytes(at), 1))((_, 3))
      decoded.put(value)
      at += length
    }
    val decoder = UTF_8.newDecoder
      .onMalformedInput(CodingErrorAction.REPORT)
      .onUnmappableCharacter(CodingErrorAction.REPORT)
    try Some(decoder.decode(decoded.flip()).toString)
    catch { case _: CharacterCodingException => None }
  }

  private def escapeAt(bytes: Array[Byte], at: Int): Option[Byte] =
    if (bytes(at) != '%' || at + 2 >= bytes.length) None
    else {
      val (high, low) = (Character.digit(bytes(at + 1), 16), Character.digit(bytes(at + 2), 16))
      if (high < 0 || low < 0) None else Some((high * 16 + low).toByte)
    }

  private def isForbidden(character: Int): Boolean =
    character < 0x20 || character >= 0x7f && character <= 0x9f ||
      character >= 0xd800 && character <= 0xdfff ||
      character >= 0xfdd0 && character <= 0xfdef || (character & 0xfffe) == 0xfffe || Formats(character) ||
      Character.getType(character) == Character.UNASSIGNED && !Pictographs(character)

  /** A joiner between two pictographs (a family). Source: Unicode Technical Standard 51, "Emoji Sequences". */
  private def joinsEmoji(characters: Array[Int], at: Int): Boolean = {
    def is(offset: Int)(rule: Int => Boolean): Boolean = characters.lift(at + offset).exists(rule)
    characters(at) == joiner && is(1)(Pictographs) &&
    (is(-1)(Pictographs) || is(-1)(_ == emojiVariant) && is(-2)(Pictographs))
  }

  /** A tag in a flag (Scotland): three to six tags and the last one after a black flag. */
  private def isInFlag(characters: Array[Int], at: Int): Boolean =
    (FlagTags(characters(at)) || characters(at) == lastTag) && {
      val flag = characters.lastIndexWhere(each => !FlagTags(each), at - 1)
      val end = characters.indexWhere(each => !FlagTags(each), flag + 1)
      val tags = end - flag - 1
      flag >= 0 && characters(flag) == blackFlag && tags >= 3 && tags <= 6 && characters(end) == lastTag
    }

  private def ranges(all: (Int, Int)*): Int => Boolean =
    character => all.exists { case (first, last) => first <= character && character <= last }
}

package org.apache.spark.sql.lakewarden.statements

import scala.util.parsing.input.{NoPosition, OffsetPosition, Position, Reader}

/** A token of SQL, with its place in the text. */
sealed trait SqlToken {
  def text: String
  def start: Int
}

/** A keyword, or a name without quotes. */
final case class Word(text: String, start: Int) extends SqlToken

/** A name in backquotes, without them. */
final case class QuotedName(text: String, start: Int) extends SqlToken

/** A whole number without a sign. */
final case class Digits(text: String, start: Int) extends SqlToken

/** Anything else: a symbol, a string, or a character that no statement here has. */
final case class Other(text: String, start: Int) extends SqlToken

/** Splits a text into tokens, one at a time: the rest of a long statement of Spark's is never read.
  *
  * Source: Apache Iceberg's `IcebergSqlExtensions.g4`, which takes its tokens from Spark's grammar.
  */
object SqlToken {

  def tokens(text: String): LazyList[SqlToken] = LazyList.unfold(0) { from =>
    val start = skip(text, from)
    if (start >= text.length) None
    else Some(tokenAt(text, start))
  }

  private def tokenAt(text: String, start: Int): (SqlToken, Int) = text.charAt(start) match {
    case '`'              => quoted(text, start)
    case each if isPart(each) =>
      val end = endOf(text, start)(isPart)
      val word = text.substring(start, end)
      (if (word.forall(isDigit)) Digits(word, start) else Word(word, start), end)
    case each => (Other(each.toString, start), start + 1)
  }

  private def quoted(text: String, start: Int): (SqlToken, Int) = {
    val name = new StringBuilder
    var at = start + 1
    while (at < text.length) {
      if (text.charAt(at) != '`') name += text.charAt(at)
      else if (at + 1 < text.length && text.charAt(at + 1) == '`') {
        name += '`'
        at += 1
      } else return (QuotedName(name.toString, start), at + 1)
      at += 1
    }
    (Other("`", start), start + 1)
  }

  /** Past white space and comments. A hint is no comment. */
  private def skip(text: String, from: Int): Int = {
    var at = from
    while (at < text.length) {
      val next =
        if (text.charAt(at).isWhitespace) at + 1
        else if (text.startsWith("--", at)) lineEnd(text, at)
        else if (text.startsWith("/*", at) && !text.startsWith("/*+", at)) commentEnd(text, at)
        else at
      if (next == at) return at
      at = next
    }
    at
  }

  /** A backslash at the end of a line continues its comment. */
  private def lineEnd(text: String, from: Int): Int = {
    var at = from
    while (at < text.length && text.charAt(at) != '\n' && text.charAt(at) != '\r')
      at += (if (text.startsWith("\\\n", at)) 2 else 1)
    at
  }

  /** Comments can stand in comments; one without an end is none. */
  private def commentEnd(text: String, from: Int): Int = {
    var (at, depth) = (from, 0)
    while (at < text.length) {
      if (text.startsWith("/*", at)) { depth += 1; at += 2 }
      else if (text.startsWith("*/", at)) {
        depth -= 1
        at += 2
        if (depth == 0) return at
      } else at += 1
    }
    from
  }

  private def endOf(text: String, from: Int)(holds: Char => Boolean): Int = {
    val end = text.indexWhere(!holds(_), from)
    if (end < 0) text.length else end
  }

  private def isDigit(each: Char): Boolean = each >= '0' && each <= '9'
  private def isPart(each: Char): Boolean =
    isDigit(each) || each == '_' || (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z')
}

/** Tokens as the parser combinators read them. */
final class TokenReader(text: String, tokens: LazyList[SqlToken]) extends Reader[SqlToken] {
  override def first: SqlToken = tokens.headOption.getOrElse(Other("end of input", text.length))
  override def rest: TokenReader = new TokenReader(text, tokens.drop(1))
  override def atEnd: Boolean = tokens.isEmpty
  override def pos: Position = if (atEnd) NoPosition else OffsetPosition(text, first.start)
  override def offset: Int = first.start
}

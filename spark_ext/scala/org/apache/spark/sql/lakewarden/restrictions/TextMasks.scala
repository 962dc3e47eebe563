package org.apache.spark.sql.lakewarden.restrictions

import org.apache.spark.unsafe.types.UTF8String

/** Masks of texts, code point by code point.
  *
  * What is not UTF-8 becomes U+FFFD before: a code point of it would have any number of bytes, and four of them could show
  * the whole text.
  *
  * Source: Iceberg REST specification, `MaskAlphanum`, `ShowFirst4`, `ShowLast4`.
  */
private[restrictions] object TextMasks {
  private val Shown = 4

  /** What stands for a code point of one byte; of a longer one, `x`. */
  private val masked: Array[Byte] = Array.tabulate(128) { each =>
    (if (each >= '0' && each <= '9') 'n' else if ("(),.-@".indexOf(each.toChar) >= 0) each.toChar else 'x').toByte
  }

  def all(text: UTF8String): UTF8String = {
    val bytes = text.makeValid().getBytes
    between(bytes, 0, bytes.length)
  }

  def butFirst(text: UTF8String): UTF8String = {
    val bytes = text.makeValid().getBytes
    between(bytes, after(bytes, Shown), bytes.length)
  }

  def butLast(text: UTF8String): UTF8String = {
    val valid = text.makeValid()
    val (bytes, points) = (valid.getBytes, valid.numChars)
    if (points <= Shown) valid else between(bytes, 0, after(bytes, points - Shown))
  }

  /** The text with the code points between two of its bytes masked. */
  private def between(bytes: Array[Byte], from: Int, until: Int): UTF8String = {
    val out = new Array[Byte](bytes.length)
    System.arraycopy(bytes, 0, out, 0, from)
    var (at, end) = (from, from)
    while (at < until) {
      val each = bytes(at)
      // The other bytes of a longer code point begin with the bits 10.
      if ((each & 0xc0) != 0x80) {
        out(end) = if (each >= 0) masked(each.toInt) else 'x'
        end += 1
      }
      at += 1
    }
    System.arraycopy(bytes, until, out, end, bytes.length - until)
    UTF8String.fromBytes(out, 0, end + bytes.length - until)
  }

  /** Where the code points begin after so many; the end if there are not more. */
  private def after(bytes: Array[Byte], points: Int): Int = {
    var (at, seen) = (0, 0)
    while (at < bytes.length && (seen < points || (bytes(at) & 0xc0) == 0x80)) {
      if ((bytes(at) & 0xc0) != 0x80) seen += 1
      at += 1
    }
    // The last code point that counts may be of several bytes.
    at
  }
}

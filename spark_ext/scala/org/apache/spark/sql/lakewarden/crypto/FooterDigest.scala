package org.apache.spark.sql.lakewarden.crypto

import java.nio.{ByteBuffer, ByteOrder}
import java.security.MessageDigest

/** What the footer of a Parquet file is, byte for byte.
  *
  * The footer is the end of the file: what the number before the last four bytes counts, that number, and those bytes.
  * The key metadata of a file with column keys keeps its digest, since the types and places of columns stand in the
  * footer, under a key that is not the columns' own.
  *
  * Source: docs/key-metadata.md, "Key metadata"; Parquet, "File format".
  *
  * @param length
  *   of the footer in bytes
  * @param sha256
  *   of all of them
  */
final case class FooterDigest(length: Long, sha256: Seq[Byte]) {

  /** Whether these bytes are the footer, and no more or less than it. */
  def isOf(bytes: Array[Byte]): Boolean =
    MessageDigest.isEqual(FooterDigest.sha256(bytes, 0), sha256.toArray) && bytes.length == length &&
      FooterDigest.lengthIn(bytes) == length
}

object FooterDigest {

  /** The bytes behind what the number counts: the number, and the file's last four. */
  val EndLength = 8

  /** Out of the form that it has in key metadata. */
  def parse(bytes: Array[Byte]): FooterDigest = {
    require(bytes.length == 36, "a footer's digest has 36 bytes")
    val (length, sha256) = bytes.splitAt(Integer.BYTES)
    FooterDigest(Integer.toUnsignedLong(ByteBuffer.wrap(length).getInt), sha256.toSeq)
  }

  /** The digest of the footer that a file ends with.
    *
    * @param end
    *   of the file: its footer, and maybe what stands before it
    */
  def of(end: Array[Byte]): FooterDigest = {
    val length = lengthIn(end)
    require(length <= end.length, "the end of a file that was kept is shorter than its footer")
    FooterDigest(length, sha256(end, end.length - length.toInt).toSeq)
  }

  /** What the last bytes of a file say of its footer's length. */
  private def lengthIn(end: Array[Byte]): Long = {
    val number = ByteBuffer.wrap(end).order(ByteOrder.LITTLE_ENDIAN).getInt(end.length - EndLength)
    Integer.toUnsignedLong(number) + EndLength
  }

  private def sha256(bytes: Array[Byte], from: Int): Array[Byte] = {
    val digest = MessageDigest.getInstance("SHA-256")
    digest.update(bytes, from, bytes.length - from)
    digest.digest()
  }
}

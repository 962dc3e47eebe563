package org.apache.spark.sql.lakewarden.restrictions

import java.nio.{ByteBuffer, ByteOrder}
import java.security.MessageDigest

import org.apache.spark.unsafe.types.UTF8String

/** SHA-256 of values, after a salt.
  *
  * Source: Iceberg REST specification, `Sha256Global`, `Sha256QueryLocal`.
  *
  * @param salt
  *   empty for none
  */
private[restrictions] final class Hashes(salt: Array[Byte]) {
  private val digest = MessageDigest.getInstance("SHA-256")
  private val number = ByteBuffer.allocate(java.lang.Long.BYTES).order(ByteOrder.LITTLE_ENDIAN)

  def text(value: UTF8String): UTF8String = Hashes.hex(bytes(value.getBytes))

  def int(value: Int): Int = first(number.putInt(0, value), Integer.BYTES).getInt

  def long(value: Long): Long = first(number.putLong(0, value), java.lang.Long.BYTES).getLong

  def bytes(value: Array[Byte]): Array[Byte] = {
    digest.update(salt)
    digest.digest(value)
  }

  private def first(value: ByteBuffer, length: Int): ByteBuffer = {
    digest.update(salt)
    digest.update(value.array, 0, length)
    ByteBuffer.wrap(digest.digest()).order(ByteOrder.LITTLE_ENDIAN)
  }
}

private object Hashes {
  private val Digits = "0123456789abcdef".getBytes

  private def hex(bytes: Array[Byte]): UTF8String = {
    val text = new Array[Byte](2 * bytes.length)
    var at = 0
    while (at < bytes.length) {
      text(2 * at) = Digits((bytes(at) >> 4) & 0xf)
      text(2 * at + 1) = Digits(bytes(at) & 0xf)
      at += 1
    }
    UTF8String.fromBytes(text)
  }
}

package org.apache.spark.sql.lakewarden.crypto

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.US_ASCII
import java.security.{GeneralSecurityException, SecureRandom}
import java.util.{Base64, UUID}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers

/** A key made by the catalog for one scan or one write.
  *
  * @param purpose
  *   `scan` or `write`
  */
final class TransportKey(val id: Array[Byte], val purpose: String, val key: Secret) extends Serializable {
  override def toString: String = s"TransportKey($purpose)"
}

object TransportKey {

  /** As the catalog answers it. */
  def parse(node: JsonNode, purpose: String): TransportKey = {
    def bytes(name: String): Array[Byte] = Base64.getDecoder.decode(Answers.text(node, name))
    new TransportKey(bytes("id"), purpose, new Secret(bytes("key")))
  }
}

/** Which key of a file is meant: the master key's id, and the columns under the key (none: the whole file). */
final case class KeyLabel(keyName: String, fieldIds: Seq[Int] = Nil) {

  /** Role, key name with length, field ids with count. */
  def toBytes: Array[Byte] = {
    val name = keyName.getBytes(US_ASCII)
    val buffer = ByteBuffer.allocate(4 + name.length + 4 * fieldIds.length)
    buffer.put((if (fieldIds.isEmpty) 0 else 1).toByte).put(name.length.toByte).put(name)
    buffer.putShort(fieldIds.length.toShort)
    fieldIds.foreach(id => buffer.putInt(id))
    buffer.array
  }
}

object KeyLabel {

  /** Out of `key-name` and `field-ids` of a key in the catalog's answer. */
  def parse(node: JsonNode): KeyLabel = KeyLabel(
    Answers.text(node, "key-name"), Answers.field(node, "field-ids").elements.asScala.map(_.intValue).toSeq)
}

/** A data key of a file, wrapped under a transport key. */
final class WrappedKey(val label: KeyLabel, val wrapped: Array[Byte]) extends Serializable {
  override def toString: String = s"WrappedKey(${label.keyName})"
}

/** Whether a file's footer is encrypted, or in plaintext and signed. */
sealed abstract class Footer(val name: String) extends Serializable

object Footer {
  case object Encrypted extends Footer("encrypted")
  case object Plaintext extends Footer("plaintext")

  /** By the name that the catalog gives it; none for any other. */
  def named(name: String): Option[Footer] = Seq(Encrypted, Plaintext).find(_.name == name)
}

/** A file as keys know it: its table and the id that is part of its name.
  *
  * Source: docs/key-metadata.md, "File ids" and "Parquet AAD prefix".
  */
final case class FileIdentity(tableUuid: UUID, fileId: Seq[Byte]) {

  /** The AAD prefix that writer and reader both supply, and the file does not store. */
  def aadPrefix: Array[Byte] = FileIdentity.Prefix ++ toBytes

  /** Table UUID and file id. */
  def toBytes: Array[Byte] = FileIdentity.uuidBytes(tableUuid) ++ fileId
}

object FileIdentity {
  private val Prefix: Array[Byte] = "lakewarden/file/1\u0000".getBytes(US_ASCII)
  private val BaseName = """(?s)(?:.*-)?([0-9a-f]{32})(?:\.[A-Za-z0-9]+)*""".r

  /** The file at a location that has been checked.
    *
    * Throws `DecryptionRefused` if the name has no file id.
    */
  def of(tableUuid: UUID, location: String): FileIdentity =
    location.substring(location.lastIndexOf('/') + 1) match {
      case BaseName(digits) =>
        FileIdentity(tableUuid, digits.grouped(2).map(Integer.parseInt(_, 16).toByte).toSeq)
      case _ => throw DataKeys.refused("The file name contains no file id.")
    }

  private[crypto] def uuidBytes(uuid: UUID): Array[Byte] =
    ByteBuffer.allocate(16).putLong(uuid.getMostSignificantBits).putLong(uuid.getLeastSignificantBits).array
}

/** Data keys under transport keys: opened for a scan, made and wrapped for a write.
  *
  * Source: docs/key-metadata.md, "Transport keys".
  */
object DataKeys {

  /** Of data keys, in bytes. */
  val Lengths: Set[Int] = Set(16, 24, 32)
  private val KekPrefix = "lakewarden/write-kek/1\u0000".getBytes(US_ASCII)
  private lazy val random = new SecureRandom

  /** The data key out of a plan.
    *
    * Throws `DecryptionRefused` if it was changed, or is of another scan, table, file, key or column.
    */
  def open(transport: TransportKey, wrapped: WrappedKey, file: FileIdentity): Secret = {
    val bytes = wrapped.wrapped
    if (!Lengths(bytes.length - AesGcm.NonceLength - AesGcm.TagLength)) throw refused(
      "A data key has an invalid length.")
    try {
      val (nonce, ciphertext) = bytes.splitAt(AesGcm.NonceLength)
      new Secret(AesGcm.decrypt(transport.key, nonce, ciphertext, aad(transport, file, wrapped.label)))
    } catch {
      case _: GeneralSecurityException => throw refused("A data key belongs to another file, table or scan.")
    }
  }

  /** A key-encryption key for standard readers, as it came when the write was begun.
    *
    * Throws `DecryptionRefused` if it was changed, or is of another write, table or key.
    */
  def openKek(
      transport: TransportKey, sealedKek: Array[Byte], tableUuid: UUID, kekId: Array[Byte], label: KeyLabel): Secret =
    try {
      val aad = KekPrefix ++ transport.id ++ FileIdentity.uuidBytes(tableUuid) ++ kekId ++ label.toBytes
      val (nonce, ciphertext) = sealedKek.splitAt(AesGcm.NonceLength)
      new Secret(AesGcm.decrypt(transport.key, nonce, ciphertext, aad))
    } catch {
      case _: GeneralSecurityException => throw refused("A key for standard clients belongs to another write or table.")
    }

  /** A fresh data key of so many bytes. */
  def create(length: Int): Secret = {
    require(Lengths(length), "a data key has 16, 24 or 32 bytes")
    new Secret(randomBytes(length))
  }

  /** A data key that this executor made, wrapped for the commit. */
  def wrap(transport: TransportKey, dek: Secret, file: FileIdentity, label: KeyLabel): WrappedKey = {
    val nonce = randomBytes(AesGcm.NonceLength)
    new WrappedKey(label, nonce ++ AesGcm.encrypt(transport.key, nonce, dek.reveal, aad(transport, file, label)))
  }

  /** A nonce that no key has been used with. */
  def newNonce(): Array[Byte] = randomBytes(AesGcm.NonceLength)

  /** A fresh file id, as it stands in a file's name. */
  def newFileId(): String = randomBytes(16).map(each => f"$each%02x").mkString

  def refused(problem: String): LakewardenException = new LakewardenException(
    "DecryptionRefused", problem, Some("data-key"),
    Some("Restore the original file, and find out who changed it."))

  private def aad(transport: TransportKey, file: FileIdentity, label: KeyLabel): Array[Byte] = {
    val prefix = s"lakewarden/${transport.purpose}/1\u0000".getBytes(US_ASCII)
    prefix ++ transport.id ++ file.toBytes ++ label.toBytes
  }

  private def randomBytes(count: Int): Array[Byte] = {
    val bytes = new Array[Byte](count)
    random.nextBytes(bytes)
    bytes
  }
}

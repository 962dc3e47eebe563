package org.apache.spark.sql.lakewarden.crypto

import java.io.IOException
import java.nio.charset.StandardCharsets.US_ASCII
import java.security.{GeneralSecurityException, Key}
import java.util.{Collections, List => JList}
import javax.crypto.spec.SecretKeySpec

import org.apache.orc.EncryptionAlgorithm
import org.apache.orc.impl.{HadoopShims, KeyProvider, LocalKey}

import org.apache.spark.sql.lakewarden.LakewardenException

/** The keys of one ORC file, as ORC's reader and writer ask for them.
  *
  * ORC makes a local key for each encrypted column. It lies in the file, sealed with AES-GCM under the file's data
  * key; table, file and column are authenticated with it, so that no other file's key, nor another column's, is
  * taken for it. The provider is of this file alone and is handed to ORC directly: nothing is looked up by name in
  * what the JVM keeps for others.
  *
  * Source: docs/orc.md, "What is in the file".
  *
  * @param keyOf
  *   the data key of a column by its field id; none: the column is seen through its mask
  */
final class OrcKeys(file: FileIdentity, keyOf: Int => Option[Secret]) extends KeyProvider {
  override def getKeyNames: JList[String] = Collections.emptyList[String]
  override def getKind: HadoopShims.KeyProviderKind = HadoopShims.KeyProviderKind.UNKNOWN

  override def getCurrentKeyVersion(name: String): HadoopShims.KeyMetadata =
    new HadoopShims.KeyMetadata(name, 0, OrcKeys.algorithm(dataKey(name)))

  override def createLocalKey(metadata: HadoopShims.KeyMetadata): LocalKey = {
    val local = DataKeys.create(metadata.getAlgorithm.keyLength)
    val nonce = DataKeys.newNonce()
    val name = metadata.getKeyName
    new LocalKey(
      metadata.getAlgorithm, local.reveal, nonce ++ AesGcm.encrypt(dataKey(name), nonce, local.reveal, aad(name)))
  }

  /** Throws `IOException` for a column without a key, of which ORC then shows the mask; `DecryptionRefused` for a
    * local key that is not this column's.
    */
  override def decryptLocalKey(metadata: HadoopShims.KeyMetadata, wrapped: Array[Byte]): Key = {
    val (nonce, ciphertext) = wrapped.splitAt(AesGcm.NonceLength)
    val name = metadata.getKeyName
    val key = dataKey(name)
    try {
      val local = AesGcm.decrypt(key, nonce, ciphertext, aad(name))
      if (local.length != metadata.getAlgorithm.keyLength) throw foreign
      new SecretKeySpec(local, metadata.getAlgorithm.getAlgorithm)
    } catch { case _: GeneralSecurityException => throw foreign }
  }

  override def toString: String = "OrcKeys(***)"

  private def dataKey(name: String): Secret =
    OrcKeys.columnOf(name).flatMap(keyOf).getOrElse(throw new IOException("no key for this column"))

  private def aad(name: String): Array[Byte] = OrcKeys.Prefix ++ file.toBytes ++ name.getBytes(US_ASCII)

  private def foreign: LakewardenException = DataKeys.refused("A column key belongs to another file or column.")
}

object OrcKeys {

  /** How epochs name ORC's encryption. */
  val Algorithm = "ORC_AES_CTR"

  private val Prefix = "lakewarden/orc/1\u0000".getBytes(US_ASCII)
  private val Name = "c([0-9]{1,10})".r

  /** What a file calls the key of a top-level column. */
  def nameOf(fieldId: Int): String = s"c$fieldId"

  /** ORC's own name for AES-CTR with a key of this length. */
  def algorithm(key: Secret): EncryptionAlgorithm =
    EncryptionAlgorithm.values.find(_.keyLength == key.reveal.length)
      .getOrElse(throw DataKeys.refused("ORC does not support keys of this length."))

  private def columnOf(name: String): Option[Int] = name match {
    case Name(digits) => digits.toIntOption
    case _            => None
  }
}

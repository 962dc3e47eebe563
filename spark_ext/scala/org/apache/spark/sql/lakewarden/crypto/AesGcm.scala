package org.apache.spark.sql.lakewarden.crypto

import java.security.GeneralSecurityException
import javax.crypto.Cipher
import javax.crypto.spec.{GCMParameterSpec, SecretKeySpec}

/** AES-GCM as it is used everywhere here: nonces of 12 bytes and tags of 16, nothing else.
  *
  * Source: NIST SP 800-38D.
  */
object AesGcm {
  val NonceLength = 12
  val TagLength = 16

  /** Ciphertext and tag.
    *
    * Throws `GeneralSecurityException` if the nonce or the key has another length.
    */
  def encrypt(key: Secret, nonce: Array[Byte], plaintext: Array[Byte], aad: Array[Byte]): Array[Byte] =
    cipher(Cipher.ENCRYPT_MODE, key, nonce, aad).doFinal(plaintext)

  /** The plaintext of a ciphertext followed by its tag.
    *
    * Throws `GeneralSecurityException` if it is not authentic, or as `encrypt`.
    */
  def decrypt(key: Secret, nonce: Array[Byte], ciphertext: Array[Byte], aad: Array[Byte]): Array[Byte] =
    cipher(Cipher.DECRYPT_MODE, key, nonce, aad).doFinal(ciphertext)

  private def cipher(mode: Int, key: Secret, nonce: Array[Byte], aad: Array[Byte]): Cipher = {
    if (nonce.length != NonceLength) throw new GeneralSecurityException("a nonce has 12 bytes")
    val cipher = Cipher.getInstance("AES/GCM/NoPadding")
    cipher.init(mode, new SecretKeySpec(key.reveal, "AES"), new GCMParameterSpec(TagLength * 8, nonce))
    cipher.updateAAD(aad)
    cipher
  }
}

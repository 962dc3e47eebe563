package org.apache.spark.sql.lakewarden.rest

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.security.{KeyPair, KeyPairGenerator, MessageDigest, PrivateKey, SecureRandom, Signature}
import java.util.{Base64, Locale}
import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.databind.node.JsonNodeFactory

/** The key with which the engine in this driver signs its requests to one catalog.
  *
  * It is made at launch and stays in this object: SQL reaches static members, settings, variables and files, but
  * no fields of objects. No static member of this jar leads here, and it cannot be serialized, so that no
  * executor has it. The form of signatures is described in docs/rest-api.md ("Engines that sign").
  */
final class EngineKey private (private[this] val id: String, private[this] val key: PrivateKey) {
  private[this] val secondsAhead = new AtomicLong

  /** The further headers of a request that is signed.
    *
    * @param target
    *   path and query below the catalog's address, encoded
    * @param headers
    *   `Authorization`, and `Idempotency-Key` if there is one: what the signature has to cover
    */
  def sign(method: String, target: String, headers: Seq[(String, String)], body: Array[Byte])
      : Seq[(String, String)] = {
    val (path, query) = target.span(_ != '?')
    val digest = s"sha-256=${EngineKey.binary(MessageDigest.getInstance("SHA-256").digest(body))}"
    val covered = Seq("@method" -> method, "@path" -> path, "@query" -> s"?${query.stripPrefix("?")}") ++
      headers.map { case (name, value) => name.toLowerCase(Locale.ROOT) -> value } :+ ("content-digest" -> digest)
    val names = covered.map { case (name, _) => s""""$name"""" }.mkString("(", " ", ")")
    val parameters = names + EngineKey.parameters(EngineKey.now + secondsAhead.get, id)
    val base = (covered :+ ("@signature-params" -> parameters)).map { case (name, value) => s""""$name": $value""" }
      .mkString("\n")
    val signature = Signature.getInstance(EngineKey.Algorithm)
    signature.initSign(key)
    signature.update(base.getBytes(ISO_8859_1))
    Seq(
      "Content-Digest" -> digest, "Signature-Input" -> s"lakewarden=$parameters",
      "Signature" -> s"lakewarden=${EngineKey.binary(signature.sign())}")
  }

  /** Takes over the catalog's time, unless it is too far from this host's; whether to sign once more. */
  def follow(seconds: Long): Boolean = {
    val ahead = seconds - EngineKey.now
    val isNear = ahead.abs <= EngineKey.MaxAheadSeconds
    if (isNear) secondsAhead.set(ahead)
    isNear
  }

  override def toString: String = "EngineKey(***)"
}

object EngineKey {
  private val Algorithm = "Ed25519"
  private val PublicKeyBytes = 32
  private val NonceBytes = 16
  private val MaxAheadSeconds = 600L

  /** Makes a key and has the catalog register it.
    *
    * @param bootstrap
    *   asks the catalog with the engine's own token
    */
  def register(bootstrap: CatalogClient): EngineKey = {
    val pair = KeyPairGenerator.getInstance(Algorithm).generateKeyPair()
    val body = JsonNodeFactory.instance.objectNode.put("public-key", publicKey(pair))
    new EngineKey(Answers.text(bootstrap.post(Seq("engine", "v1", "keys"), Some(body)), "key-id"), pair.getPrivate)
  }

  /** The raw key is what X.509 ends with (RFC 8410, section 4). */
  private def publicKey(pair: KeyPair): String =
    Base64.getEncoder.encodeToString(pair.getPublic.getEncoded.takeRight(PublicKeyBytes))

  private def parameters(created: Long, id: String): String = {
    val nonce = new Array[Byte](NonceBytes)
    new SecureRandom().nextBytes(nonce)
    val text = new String(Base64.getUrlEncoder.withoutPadding.encode(nonce), UTF_8)
    s""";created=$created;nonce="$text";keyid="$id";alg="ed25519";tag="lakewarden-engine""""
  }

  private def binary(bytes: Array[Byte]): String = s":${Base64.getEncoder.encodeToString(bytes)}:"
  private def now: Long = System.currentTimeMillis / 1000
}

/** The keys of the engine in this driver, by the address of the catalog that knows them; none in a user's own
  * process.
  */
final class EngineKeys(private[this] val keys: Map[String, EngineKey]) {
  def at(address: CatalogAddress): Option[EngineKey] = keys.get(address.toString)

  /** Whether this application is an engine that acts for its users, not a user's own process. */
  def isEngine: Boolean = keys.nonEmpty

  override def toString: String = "EngineKeys(***)"
}

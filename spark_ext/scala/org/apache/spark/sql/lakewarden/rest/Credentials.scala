package org.apache.spark.sql.lakewarden.rest

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import org.apache.spark.sql.lakewarden.LakewardenException

/** The token that a request carries, and the key that signs it where an engine acts for the token's user. */
final class Credentials(private[this] val token: String, private[this] val engine: Option[EngineKey]) {

  /** What goes with one request; signed again each time. */
  def headers(
      method: String, target: String, idempotencyKey: Option[String], body: Array[Byte]): Seq[(String, String)] = {
    val own = Seq("Authorization" -> s"Bearer ${Credentials.checked(token)}") ++
      idempotencyKey.map("Idempotency-Key" -> _)
    own ++ engine.toSeq.flatMap(_.sign(method, target, own, body))
  }

  /** Takes over the time of a catalog that refused a signature as stale; whether to send the request once more. */
  def follow(seconds: Long): Boolean = engine.exists(_.follow(seconds))

  override def toString: String = "Credentials(***)"
}

/** What is kept of a token to compare it by. */
final class TokenDigest(private val sha256: Seq[Byte]) {
  override def equals(other: Any): Boolean = other match {
    case digest: TokenDigest => digest.sha256 == sha256
    case _                   => false
  }
  override def hashCode: Int = sha256.hashCode
  override def toString: String = "TokenDigest(***)"
}

object TokenDigest {
  def of(token: String): TokenDigest =
    new TokenDigest(MessageDigest.getInstance("SHA-256").digest(token.getBytes(UTF_8)).toSeq)
}

object Credentials {

  /** The HTTP client would quote a token with other characters in its complaint. */
  private def checked(token: String): String =
    if (token.nonEmpty && token.forall(each => each > ' ' && each <= '~')) token
    else
      throw new LakewardenException(
        "NotAuthenticated", "The token is empty or contains invalid characters.", Some("token"),
        Some("Use the token as it was issued, without spaces and line breaks."))
}

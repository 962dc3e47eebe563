package org.apache.spark.sql.lakewarden.rest

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest

import org.apache.spark.sql.lakewarden.LakewardenException

/** Who asks: a user, and the engine that acts for the user where it has a credential of its own. */
final class Credentials(userToken: String, engineToken: Option[String]) {

  /** What goes with each request. */
  def headers: Seq[(String, String)] =
    ("Authorization" -> s"Bearer ${Credentials.checked(userToken)}") +:
      engineToken.map(token => "Lakewarden-Engine-Token" -> Credentials.checked(token)).toSeq

  /** Tells whether two requests carry the same user's token. */
  def user: TokenDigest = new TokenDigest(MessageDigest.getInstance("SHA-256").digest(userToken.getBytes(UTF_8)).toSeq)

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

object Credentials {

  /** The HTTP client would quote a token with other characters in its complaint. */
  private def checked(token: String): String =
    if (token.nonEmpty && token.forall(each => each > ' ' && each <= '~')) token
    else
      throw new LakewardenException(
        "NotAuthenticated", "The token is empty, or has characters that no token has.", Some("token"),
        Some("Give the token as it was issued, without spaces and line ends."))
}

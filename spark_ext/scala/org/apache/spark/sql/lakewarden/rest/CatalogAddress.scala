package org.apache.spark.sql.lakewarden.rest

import java.net.{URI, URISyntaxException}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.lakewarden.LakewardenException

/** Where a catalog answers: `https`, host, possibly port and path; nothing else. Each request carries a token, so
  * `http` is for loopback addresses alone.
  */
final class CatalogAddress private (private val base: String) {

  /** Path and query of an operation below this address; each segment is encoded as a whole. */
  def target(path: Seq[String], query: Map[String, String]): String = {
    val segments = path.map(each => "/" + CatalogAddress.segment(each)).mkString
    val parameters = query.map { case (name, value) => CatalogAddress.encode(name) + "=" + CatalogAddress.encode(value) }
    segments + (if (parameters.isEmpty) "" else parameters.mkString("?", "&", ""))
  }

  /** The whole address of an operation. */
  def resolve(target: String): URI = URI.create(base + target)

  override def toString: String = base
}

object CatalogAddress {
  private val Unreserved = (('a' to 'z') ++ ('A' to 'Z') ++ ('0' to '9') ++ "-._~").map(_.toByte).toSet

  /** Parses the `uri` of a catalog. */
  def parse(text: String): CatalogAddress = {
    val uri =
      try new URI(text)
      catch { case _: URISyntaxException => throw invalid("The catalog's uri is not a URL.") }
    val web = uri.getScheme == "http" || uri.getScheme == "https"
    if (!web || uri.getHost == null) throw invalid("The catalog's uri is not an http or https URL with a host.")
    if (uri.getRawUserInfo != null || uri.getRawQuery != null || uri.getRawFragment != null)
      throw invalid("The catalog's uri contains user information, a query or a fragment.")
    if (uri.getScheme == "http" && !isThisMachine(uri.getHost))
      throw invalid("The catalog's uri is that of another host, and not https. The token would travel in plaintext.")
    new CatalogAddress(text.stripSuffix("/"))
  }

  /** Whether a host is a loopback address, or the name `localhost`; no other name is looked up. */
  private def isThisMachine(host: String): Boolean =
    host == "localhost" || host == "[::1]" || host.matches("127(\\.[0-9]{1,3}){3}")

  /** A name as one segment; what a proxy would resolve away is refused. */
  private def segment(name: String): String =
    if (name.isEmpty || name == "." || name == "..")
      throw new LakewardenException("RequestInvalid", s"'$name' is not a valid name.", Some("identifier"))
    else encode(name)

  private def encode(text: String): String =
    text.getBytes(UTF_8).map(each => if (Unreserved(each)) each.toChar.toString else f"%%${each & 0xff}%02X").mkString

  private def invalid(problem: String): LakewardenException = new LakewardenException(
    "CatalogNotTrusted", problem, Some("launch-configuration"),
    Some("Launch Spark with the catalog's address, such as https://catalog.example.com."))
}

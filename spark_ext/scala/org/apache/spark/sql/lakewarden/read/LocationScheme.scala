package org.apache.spark.sql.lakewarden.read

import java.util.Locale
import java.util.regex.Pattern

/** What sets one scheme apart from the others: bounds in bytes of UTF-8, and what may stand where.
  *
  * @param rootAllowed
  *   whether a location may have no path
  * @param driveLetters
  *   whether some reader takes a first name such as `C:` for a drive
  * @param foldsAuthority
  *   whether capitals in the authority mean the same as small letters
  * @param finalDots
  *   whether a name may end in a dot
  * @param reserved
  *   a first name that leads elsewhere
  */
private[read] final case class LocationScheme(
    name: String,
    authority: Pattern,
    maxPath: Int,
    maxName: Int,
    rootAllowed: Boolean = true,
    driveLetters: Boolean = false,
    foldsAuthority: Boolean = false,
    finalDots: Boolean = true,
    reserved: Option[String] = None) {

  /** The one spelling of an authority; none if it is no valid one. */
  def spelled(written: String): Option[String] =
    if (!authority.matcher(written).matches()) None
    else Some(if (foldsAuthority) written.toLowerCase(Locale.ROOT) else written)
}

/** The schemes that are understood, by each of their spellings.
  *
  * Source: policy/location/schemes.py, which is the rule book and says why.
  */
private[read] object LocationScheme {
  private val NoIpv4 = "(?![0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+\\z)"
  private val S3Bucket = s"(?!.*\\.\\.)$NoIpv4[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?"
  private val GsLabel = "[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
  private val GsBucket = s"(?=.{3,222}\\z)$NoIpv4$GsLabel(?:\\.$GsLabel)*"
  private val OssBucket = "[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
  private val Container = "(?:(?=[^@]{3,63}@)[a-z0-9]+(?:-[a-z0-9]+)*|\\$web|\\$root|\\$logs)"
  private val Label = "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
  private val HostLabel = "[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?"
  private val Port =
    "(?::(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
  private val HadoopHost = s"(?=[^:]{1,253}(?::|\\z))$HostLabel(?:\\.$HostLabel)*$Port"

  private val S3 = LocationScheme("s3", Pattern.compile(S3Bucket), 1024, 1024)
  private val Gs = LocationScheme("gs", Pattern.compile(GsBucket), 1024, 1024)
  private val Oss = LocationScheme("oss", Pattern.compile(OssBucket), 1023, 1023)
  private val Abfs = azure("abfss", "dfs", "blob")
  private val Wasb = azure("wasbs", "blob", "dfs")
  private val Local =
    LocationScheme("file", Pattern.compile(""), 4094, 255, rootAllowed = false, driveLetters = true)

  private val Spellings: Map[String, LocationScheme] = Map(
    "s3" -> S3, "s3a" -> S3, "s3n" -> S3, "gs" -> Gs, "oss" -> Oss, "abfs" -> Abfs, "abfss" -> Abfs, "wasb" -> Wasb,
    "wasbs" -> Wasb, "hdfs" -> hadoop("hdfs"), "viewfs" -> hadoop("viewfs"), "file" -> Local)

  /** The scheme of this spelling. */
  def of(spelling: String): Option[LocationScheme] = Spellings.get(spelling)

  /** `endpoint` is the second label of the host, or the third. */
  private def azure(name: String, endpoint: String, other: String): LocationScheme = {
    // Patterns without UNICODE_CASE fold ASCII only.
    val host = s"$Label(?:\\.$Label)?\\.(?i:$endpoint)(?:\\.$Label)+"
    val pattern = s"$Container@(?=.{1,253}\\z)(?!.*\\.(?i:$other)\\.)$host"
    LocationScheme(name, Pattern.compile(pattern), 1024, 1024, foldsAuthority = true, finalDots = false)
  }

  private def hadoop(name: String): LocationScheme = LocationScheme(
    name, Pattern.compile(HadoopHost), 4094, 255, rootAllowed = false, driveLetters = true, foldsAuthority = true,
    reserved = Some(".reserved"))
}

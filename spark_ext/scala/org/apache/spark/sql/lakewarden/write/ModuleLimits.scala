package org.apache.spark.sql.lakewarden.write

/** How far an encrypted Parquet file goes, before it is ended and another one begun, with keys of its own.
  *
  *   - Parquet numbers the row groups of a file and the pages of a column in a row group with 15 bits, since the
  *     numbers are part of each page's AAD. A file that comes to more cannot be ended.
  *   - With random nonces a key may be used 2^32 times (NIST SP 800-38D, 8.3). Whatever keys they are under, each use
  *     leaves at least 16 bytes in the file: a length of 4 and a nonce of 12, and with AES-GCM a tag of 16. So a file
  *     of less than 2^36 bytes stays below.
  *
  * Half of each is allowed, since Parquet's writer looks at sizes now and then only: after 100 rows at the earliest,
  * and at numbers of rows at once.
  *
  * Source: Parquet Modular Encryption, "AES GCM" and "Module AAD".
  *
  * @param rowsInGroup
  *   after which a row group ends
  * @param rowsInFile
  *   after which a file ends
  * @param bytesInFile
  *   after which a file ends
  */
private[write] final case class ModuleLimits(rowsInGroup: Int, rowsInFile: Long, bytesInFile: Long)

private[write] object ModuleLimits {
  private val Parts = 1 << 14
  private val Bytes = 1L << 35
  private val RowsBetweenSizes = 100

  /** Those of a plaintext file are what the table asks for. */
  val None: ModuleLimits = ModuleLimits(Int.MaxValue, Long.MaxValue, Long.MaxValue)

  def of(settings: WriteSettings): ModuleLimits = {
    val bytes = math.min(settings.targetFileSize, Bytes)
    val rowsInPage = fewestRows(settings.rowGroupSize, settings.pageSize, settings.pageRowLimit)
    val rowsInGroup = math.min(Parts.toLong * rowsInPage, Int.MaxValue).toInt
    ModuleLimits(rowsInGroup, Parts.toLong * fewestRows(bytes, settings.rowGroupSize, rowsInGroup), bytes)
  }

  /** The fewest rows of a part, where parts end by a number of rows, and by their size if that makes too many. */
  private def fewestRows(whole: Long, part: Long, rows: Int): Int =
    if (whole / part < Parts) rows else math.min(rows, RowsBetweenSizes)
}
